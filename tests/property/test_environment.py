"""Any text in any variable: TFLAUNCH_* gives options or a UsageError, everything else is kept or replaced."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tflaunch.environment import BINDING_VARIABLES, VARIABLES, apply_changes, make_environment, make_mark
from tflaunch.errors import UsageError
from tflaunch.formats import FORMATS
from tflaunch.options import OPTIONS, Options, parse_options
from tflaunch.policy import Number, Plan

EXAMPLES = settings(deadline=None, max_examples=150)

# What execve can carry: any bytes but NUL, decoded as os.environ does it.
BYTES = st.binary(max_size=60).map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
NEARLY = st.text(alphabet="0123456789 ,.+-emxsuinftd\t\n٣", max_size=12)
NUMBERS = st.one_of(st.integers(-5, 1100), st.integers()).map(str)
COUNTS = st.integers(1, 1024).map(str)
LISTS = st.lists(COUNTS, min_size=2, max_size=4).map(",".join)
BLOCKTIMES = st.one_of(
    st.sampled_from(["infinite", "0", "1ms", "50us"]), st.integers(0, 2**31 - 1).map(lambda n: f"{n}ms")
)
EXPORTED = st.one_of(BYTES, NEARLY, NUMBERS, COUNTS, LISTS, BLOCKTIMES, st.just("default"), st.just(""))

NAMES = [variable.name for variable in VARIABLES]
ENVIRONMENTS = st.dictionaries(st.sampled_from([*NAMES, *BINDING_VARIABLES, "PATH"]), EXPORTED)
NUMBER = st.builds(Number, st.integers(1, 1024), st.just("why"), is_explicit=st.booleans())
IMPLIED = st.builds(Number, st.integers(1, 1024), st.just("why"))
PLANS = st.builds(Plan, NUMBER, NUMBER, NUMBER, NUMBER, IMPLIED, IMPLIED)
OVERRIDE = parse_options({"override_env": "1"}, {})

COUNT = r"[ \t\r\n]*(?=[0-9]{1,20}[ \t\r\n]*(?:,|\Z))0*([1-9][0-9]{0,3})[ \t\r\n]*"


def is_count(text):
    """1 to 1024 in ASCII digits, by another way than the code's."""
    match = re.fullmatch(COUNT, text)
    return match is not None and int(match[1]) <= 1024


def is_certainly_valid(name, text):
    """Whether the readers of the variable take the text as the number in it; False where it is not certain."""
    if name == "KMP_BLOCKTIME":
        return bool(re.fullmatch(r"infinite|[0-9]{1,9}(ms|us)?", text))
    if name == "OMP_NUM_THREADS":
        return all(is_count(part) for part in text.split(","))
    return is_count(text) and (name != "PYTHON_CPU_COUNT" or text == text.strip())


def is_certainly_invalid(name, text):
    """Empty, zero, negative, a fraction, a word, over 1024: whatever holds no digit or something else than digits."""
    if name == "KMP_BLOCKTIME":
        return not re.search(r"[0-9]|infinite", text.lower()) or bool(re.search(r"[^0-9a-z \t\r\n]", text.lower()))
    if name == "OMP_NUM_THREADS":
        return not all(is_count(part) for part in text.split(","))
    if name == "PYTHON_CPU_COUNT" and text == "default":
        return False
    return not is_count(text)


class TestExportedVariables:
    """Valid values are kept to the letter, invalid ones replaced, and messages can be printed."""

    @EXAMPLES
    @given(plan=PLANS, environ=ENVIRONMENTS)
    def test_kept_or_replaced(self, plan, environ):
        changes, problems = make_environment(plan, environ, Options())
        result = apply_changes(changes, environ)
        told = " ".join(problem.message for problem in problems)
        for variable in VARIABLES:
            name, number = variable.name, getattr(plan, variable.number)
            if name not in environ or number.is_explicit:
                assert result[name] == str(number.value)
            elif is_certainly_valid(name, environ[name]):
                assert result[name] == environ[name]
            elif is_certainly_invalid(name, environ[name]):
                assert result[name] == str(number.value)
                assert f"{name} was " in told
        assert {name: result[name] for name in environ if name not in NAMES} == {
            name: value for name, value in environ.items() if name not in NAMES
        }
        assert result.keys() == environ.keys() | set(NAMES)

    @EXAMPLES
    @given(plan=PLANS, environ=ENVIRONMENTS)
    def test_override(self, plan, environ):
        changes, _ = make_environment(plan, environ, OVERRIDE)
        result = apply_changes(changes, environ)
        assert {name: result[name] for name in NAMES} == {
            variable.name: str(getattr(plan, variable.number).value) for variable in VARIABLES
        }
        assert not any(environ.get(name) and name in result for name in BINDING_VARIABLES)

    @EXAMPLES
    @given(plan=PLANS, environ=ENVIRONMENTS, marked=st.sets(st.sampled_from(NAMES)), other=BYTES)
    def test_the_mark_of_an_outer_one_only_makes_numbers_smaller(self, plan, environ, marked, other):
        mark = " ".join([*(f"{name}={environ.get(name, '')}" for name in marked), other])
        without = apply_changes(make_environment(plan, environ, Options())[0], environ)
        result = apply_changes(make_environment(plan, environ | {"TFLAUNCH_COMPUTED": mark}, Options())[0], environ)
        for name in NAMES:
            if result[name] != without[name]:
                assert name in marked
                assert int(result[name]) < int(without[name])
        environ |= {"TFLAUNCH_COMPUTED": mark}
        for change in make_mark(plan, make_environment(plan, environ, Options())[0], environ):
            assert (change.value or "").isprintable()

    @EXAMPLES
    @given(plan=PLANS, environ=ENVIRONMENTS, options=st.sampled_from([Options(), OVERRIDE]))
    def test_printable(self, plan, environ, options):
        changes, problems = make_environment(plan, environ, options)
        assert all(change.reason.isprintable() for change in changes)
        assert all(problem.message.isprintable() for problem in problems)

    @EXAMPLES
    @given(plan=PLANS, environ=ENVIRONMENTS, options=st.sampled_from([Options(), OVERRIDE]))
    def test_a_second_time_changes_nothing(self, plan, environ, options):
        """tflaunch inside tflaunch: the values of the first are valid and stand."""
        once = apply_changes(make_environment(plan, environ, options)[0], environ)
        again = apply_changes(make_environment(plan, once, options)[0], once)
        assert again == once

    @pytest.mark.parametrize("form", FORMATS)
    @EXAMPLES
    @given(plan=PLANS, environ=ENVIRONMENTS, options=st.sampled_from([Options(), OVERRIDE]))
    def test_formats(self, form, plan, environ, options):
        changes, _ = make_environment(plan, environ, options)
        text = FORMATS[form](changes)
        assert all(name in text for name in NAMES)
        text.encode("utf-8")


class TestTflaunchVariables:
    """Any text in any TFLAUNCH_* variable, or given as an option, is understood or refused in two printable lines."""

    TEXT = st.one_of(BYTES, st.text(max_size=30), NEARLY, NUMBERS, st.sampled_from(["latency", "ceil", "1500m", "yes"]))

    @EXAMPLES
    @given(
        environ=st.dictionaries(st.sampled_from([option.variable for option in OPTIONS]), TEXT),
        given=st.dictionaries(st.sampled_from([option.name for option in OPTIONS]), TEXT, max_size=3),
        spelling=st.sampled_from(["flag", "keyword"]),
    )
    def test_options_or_usage_error(self, environ, given, spelling):
        try:
            options = parse_options(given, environ, spelling)
        except UsageError as error:
            assert error.what.isprintable()
            assert error.hint.isprintable()
            assert error.exit_status == 2
            return
        assert all(0 < n <= 1024 for n in (options.intra_op, options.inter_op, options.omp) if n is not None)
        assert options.cpus is None or options.cpus.numerator > 0
        assert options.mode in ("throughput", "latency")
        assert options.rounding in ("auto", "floor", "nearest", "ceil")
        assert options.bind in ("none", "cores")
        assert not (options.verbose and options.quiet)
        assert all(origin.isprintable() for _, origin in options.origins)
