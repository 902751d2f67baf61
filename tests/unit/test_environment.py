"""What is done with each variable that the caller exported."""

from __future__ import annotations

import pytest

from tflaunch.environment import apply_changes, make_environment, make_mark
from tflaunch.options import Options, parse_options
from tflaunch.policy import Number, Plan

# A number of its own for each field, none of them among the exported values below.
PLAN = Plan(
    intra_op=Number(13, "why 13"),
    inter_op=Number(12, "why 12"),
    omp=Number(15, "why 15"),
    blas=Number(16, "why 16"),
    kmp_blocktime=Number(11, "why 11"),
    python_cpu_count=Number(17, "why 17"),
)
PLANNED = {
    "TF_NUM_INTRAOP_THREADS": "13",
    "TF_NUM_INTEROP_THREADS": "12",
    "OMP_NUM_THREADS": "15",
    "OPENBLAS_NUM_THREADS": "16",
    "MKL_NUM_THREADS": "16",
    "BLIS_NUM_THREADS": "16",
    "VECLIB_MAXIMUM_THREADS": "16",
    "NUMEXPR_MAX_THREADS": "15",
    "NUMEXPR_NUM_THREADS": "15",
    "NUMBA_NUM_THREADS": "15",
    "KMP_BLOCKTIME": "11",
    "LOKY_MAX_CPU_COUNT": "17",
    "PYTHON_CPU_COUNT": "17",
}
BINDING = ["OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"]
OVERRIDE = parse_options({"override_env": "1"}, {})

ALL = set(PLANNED)
COUNTS = ALL - {"KMP_BLOCKTIME"}
LISTS = {"OMP_NUM_THREADS"}
BLOCKTIME = {"KMP_BLOCKTIME"}
CPU_COUNT = {"PYTHON_CPU_COUNT"}
NOBODY: set[str] = set()

# An exported text, and the variables whose readers take it as it is meant.
VALUES = [
    pytest.param("1", ALL, id="one"),
    pytest.param("4", ALL, id="four"),
    pytest.param("04", ALL, id="leading-zero"),
    pytest.param("1024", ALL, id="the-most"),
    pytest.param("1025", BLOCKTIME, id="absurd"),
    pytest.param("2147483647", BLOCKTIME, id="the-most-milliseconds"),
    pytest.param("2147483648", NOBODY, id="above-31-bits"),
    pytest.param("99999999999999999999999", NOBODY, id="23-digits"),
    pytest.param("9" * 5000, NOBODY, id="5000-digits"),
    pytest.param("0", BLOCKTIME, id="zero"),
    pytest.param("00", BLOCKTIME, id="zeros"),
    pytest.param("", NOBODY, id="empty"),
    pytest.param("   ", NOBODY, id="blanks"),
    pytest.param("-1", NOBODY, id="negative"),
    pytest.param("-4", NOBODY, id="negative-four"),
    pytest.param("+4", NOBODY, id="plus"),
    pytest.param("4.0", NOBODY, id="decimal"),
    pytest.param("1e2", NOBODY, id="exponent"),
    pytest.param("0x4", NOBODY, id="hexadecimal"),
    pytest.param("1_0", NOBODY, id="underscore"),
    pytest.param("abc", NOBODY, id="word"),
    pytest.param("all", NOBODY, id="all"),
    pytest.param("auto", NOBODY, id="auto"),
    pytest.param("$(nproc)", NOBODY, id="unexpanded"),
    pytest.param("٣", NOBODY, id="arabic-digit"),
    pytest.param("\uff14", NOBODY, id="fullwidth-digit"),
    pytest.param("²", NOBODY, id="superscript"),
    pytest.param("4 4", NOBODY, id="two-words"),
    pytest.param("4;8", NOBODY, id="semicolon"),
    pytest.param("4,3,2", LISTS, id="list"),
    pytest.param("4, 3", LISTS, id="list-with-blanks"),
    pytest.param("4,0", NOBODY, id="list-with-zero"),
    pytest.param("4,,2", NOBODY, id="list-with-a-gap"),
    pytest.param("4,", NOBODY, id="list-with-no-end"),
    pytest.param(",", NOBODY, id="comma"),
    pytest.param("4,1025", NOBODY, id="list-with-absurd"),
    pytest.param("infinite", BLOCKTIME, id="infinite"),
    pytest.param("INFINITE", BLOCKTIME, id="infinite-in-capitals"),
    pytest.param("1ms", BLOCKTIME, id="milliseconds"),
    pytest.param("50us", BLOCKTIME, id="microseconds"),
    pytest.param("50s", NOBODY, id="seconds"),
    pytest.param("ms", NOBODY, id="unit-alone"),
    pytest.param("-1ms", NOBODY, id="negative-milliseconds"),
    pytest.param("1usms", NOBODY, id="two-units"),
    pytest.param("infinitems", NOBODY, id="infinite-with-unit"),
    pytest.param("default", CPU_COUNT, id="default"),
    pytest.param("DEFAULT", NOBODY, id="default-in-capitals"),
]


def changes_for(environ, options=None, plan=PLAN):
    """The changes by name, and the problems."""
    changes, problems = make_environment(plan, environ, options or Options())
    by_name = {change.name: change for change in changes}
    assert len(by_name) == len(changes)
    return by_name, problems


def codes(problems):
    return [problem.code for problem in problems]


class TestNothingExported:
    """Every variable is set to the planned number, with that number's reason; nothing else is touched."""

    def test_set(self):
        changes, problems = changes_for({"PATH": "/bin", "HOME": "/root"})
        assert {name: change.value for name, change in changes.items()} == PLANNED
        assert {change.action for change in changes.values()} == {"set"}
        assert all(change.reason == f"why {change.value}" for change in changes.values())
        assert problems == ()

    @pytest.mark.parametrize("options", [Options(), OVERRIDE], ids=["plain", "override"])
    def test_no_binding_variable_is_ever_set(self, options):
        changes, _ = changes_for({}, options)
        assert not changes.keys() & set(BINDING)


@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.parametrize(("exported", "taken_by"), VALUES)
class TestExportedValue:
    """A valid exported value is kept to the letter; an invalid one is replaced with a warning that names it."""

    def test_kept_or_replaced(self, name, exported, taken_by):
        changes, problems = changes_for({name: exported})
        change = changes[name]
        if name in taken_by:
            assert (change.action, change.value) == ("keep", exported)
            assert "exported" in change.reason
            assert PLANNED[name] in change.reason
            assert "--override-env" in change.reason
            assert "invalid_value_replaced" not in codes(problems)
        else:
            assert (change.action, change.value) == ("replace", PLANNED[name])
            assert f"why {PLANNED[name]}" in change.reason
            assert "no valid value" in change.reason
            (problem,) = problems
            assert problem.code == "invalid_value_replaced"
            assert problem.message.startswith(f"{name} was ")
            assert (exported or "empty") in problem.message
            assert PLANNED[name] in problem.message
        others = {other: c.value for other, c in changes.items() if other != name}
        assert others == {other: value for other, value in PLANNED.items() if other != name}

    def test_override_replaces_both(self, name, exported, taken_by):
        changes, problems = changes_for({name: exported}, OVERRIDE)
        change = changes[name]
        assert (change.action, change.value) == ("replace", PLANNED[name])
        assert "--override-env" in change.reason
        assert (exported or "empty") in change.reason
        assert problems == ()


# strtol takes blanks before a number but Python refuses to start with PYTHON_CPU_COUNT="4 ", so that one is no count.
@pytest.mark.parametrize("name", sorted(COUNTS - CPU_COUNT))
@pytest.mark.parametrize("exported", [" 4 ", "\t4", "4\n"], ids=["blanks", "tab", "newline"])
def test_blanks_around_a_count_are_kept(name, exported):
    """TensorFlow, OpenMP and OpenBLAS read " 4 " as 4, so it is the caller's number."""
    change = changes_for({name: exported})[0][name]
    assert (change.action, change.value) == ("keep", exported)


@pytest.mark.parametrize(("exported", "action"), [(" 4", "keep"), ("4 ", "replace"), ("4\n", "replace")])
def test_blanks_around_the_cpu_count_of_python(exported, action):
    """PYTHON_CPU_COUNT='4 ' python3.13 -c pass: Fatal Python error: config_init_cpu_count."""
    assert changes_for({"PYTHON_CPU_COUNT": exported})[0]["PYTHON_CPU_COUNT"].action == action


class TestSameValue:
    """An exported value that the plan agrees with is kept, and said so."""

    @pytest.mark.parametrize("name", PLANNED)
    @pytest.mark.parametrize("options", [Options(), OVERRIDE], ids=["plain", "override"])
    def test_keep(self, name, options):
        changes, problems = changes_for({name: PLANNED[name]}, options)
        change = changes[name]
        assert (change.action, change.value) == ("keep", PLANNED[name])
        assert "the plan agrees" in change.reason
        assert problems == ()


class TestExplicitOption:
    """A number that the user gave as an option stands above exported values, valid or not, without a warning."""

    EXPLICIT = PLAN._replace(
        intra_op=Number(13, "--intra-op 13", is_explicit=True),
        omp=Number(15, "--omp 15", is_explicit=True),
        blas=Number(15, "as OMP", is_explicit=True),
    )

    @pytest.mark.parametrize("exported", ["4", "abc", "", "-1"], ids=["valid", "word", "empty", "negative"])
    def test_replaces(self, exported):
        changes, problems = changes_for(dict.fromkeys(PLANNED, exported), plan=self.EXPLICIT)
        for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            assert changes[name].action == "replace"
            assert (exported or "empty") in changes[name].reason
            assert not any(name in problem.message for problem in problems)
        assert changes["TF_NUM_INTRAOP_THREADS"].value == "13"
        assert changes["OMP_NUM_THREADS"].value == changes["OPENBLAS_NUM_THREADS"].value == "15"
        assert "--intra-op 13" in changes["TF_NUM_INTRAOP_THREADS"].reason

    def test_leaves_the_variables_it_does_not_size(self):
        changes, _ = changes_for(dict.fromkeys(PLANNED, "4"), plan=self.EXPLICIT)
        for name in ("TF_NUM_INTEROP_THREADS", "KMP_BLOCKTIME", "PYTHON_CPU_COUNT", "LOKY_MAX_CPU_COUNT"):
            assert (changes[name].action, changes[name].value) == ("keep", "4")


class TestInsideAnother:
    """What an outer tflaunch computed nobody chose: a smaller number takes its place, and no larger one."""

    OUTER = dict.fromkeys(PLANNED, "64")
    MARK = " ".join(f"{name}=64" for name in PLANNED)

    @staticmethod
    def mark_for(environ, plan=PLAN):
        """What the program gets to know, or None."""
        changes, _ = make_environment(plan, environ, Options())
        values = [change.value for change in make_mark(plan, changes, environ)]
        return values[0] if values else None

    def test_smaller_numbers_take_their_place(self):
        changes, problems = changes_for({**self.OUTER, "TFLAUNCH_COMPUTED": self.MARK})
        assert {name: change.value for name, change in changes.items()} == PLANNED
        assert {change.action for change in changes.values()} == {"replace"}
        assert all("'64'" in change.reason and "outer tflaunch" in change.reason for change in changes.values())
        assert problems == ()

    def test_larger_ones_do_not(self):
        environ = dict.fromkeys(PLANNED, "4") | {"TFLAUNCH_COMPUTED": self.MARK.replace("64", "4")}
        changes, _ = changes_for(environ)
        assert {(change.action, change.value) for change in changes.values()} == {("keep", "4")}

    def test_one_that_was_changed_since_is_the_callers(self):
        environ = {**self.OUTER, "TFLAUNCH_COMPUTED": self.MARK, "OMP_NUM_THREADS": "32"}
        changes, problems = changes_for(environ)
        assert (changes["OMP_NUM_THREADS"].action, changes["OMP_NUM_THREADS"].value) == ("keep", "32")
        assert codes(problems) == ["kept_above_limit"]
        assert changes["TF_NUM_INTRAOP_THREADS"].action == "replace"

    @pytest.mark.parametrize(
        "mark",
        [
            "",
            "=",
            "OMP_NUM_THREADS",
            "OMP_NUM_THREADS=",
            "OMP_NUM_THREADS=64x",
            "OMP_NUM_THREADS = 64",
            "OMP_NUM_THREADS=" + "9" * 5000,
            "omp_num_threads=64",
            "\x00\x1b[31m\udcff",
            "OMP_NUM_THREADS=64;TF_NUM_INTRAOP_THREADS=64",
        ],
    )
    def test_a_mark_of_something_else_marks_nothing(self, mark):
        changes, _ = changes_for({**self.OUTER, "TFLAUNCH_COMPUTED": mark})
        assert {change.action for change in changes.values()} == {"keep"}

    @pytest.mark.parametrize("value", ["0", "1025", "9" * 5000, "abc"])
    def test_a_mark_does_not_make_a_value_valid(self, value):
        changes, problems = changes_for({"OMP_NUM_THREADS": value, "TFLAUNCH_COMPUTED": f"OMP_NUM_THREADS={value}"})
        assert (changes["OMP_NUM_THREADS"].action, changes["OMP_NUM_THREADS"].value) == ("replace", "15")
        assert codes(problems) == ["invalid_value_replaced"]

    def test_what_was_computed_is_marked(self):
        assert self.mark_for({}) == " ".join(f"{name}={value}" for name, value in PLANNED.items())

    def test_what_the_user_said_is_not(self):
        plan = PLAN._replace(intra_op=Number(13, "--intra-op 13", is_explicit=True))
        mark = self.mark_for({"OMP_NUM_THREADS": "4", "KMP_BLOCKTIME": "11"}, plan)
        names = [entry.partition("=")[0] for entry in mark.split()]
        assert set(PLANNED) - set(names) == {"TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS", "KMP_BLOCKTIME"}

    def test_the_mark_goes_on_to_the_innermost(self):
        assert "OMP_NUM_THREADS=15" in self.mark_for({**self.OUTER, "TFLAUNCH_COMPUTED": self.MARK}).split()
        kept = {"OMP_NUM_THREADS": "4", "TFLAUNCH_COMPUTED": "OMP_NUM_THREADS=4"}
        assert "OMP_NUM_THREADS=4" in self.mark_for(kept).split()

    def test_there_is_none_where_all_was_said(self):
        all_exported = dict.fromkeys(PLANNED, "4")
        assert self.mark_for(all_exported) is None
        (change,) = make_mark(PLAN, make_environment(PLAN, all_exported, Options())[0], {"TFLAUNCH_COMPUTED": "x"})
        assert (change.action, change.value) == ("unset", None)


class TestOverride:
    """--override-env, or its variable, is named in the reason of what it replaced."""

    def test_variable_is_named(self):
        options = parse_options({}, {"TFLAUNCH_OVERRIDE_ENV": "1"})
        changes, _ = changes_for({"OMP_NUM_THREADS": "4", "KMP_AFFINITY": "compact"}, options)
        assert "TFLAUNCH_OVERRIDE_ENV=1" in changes["OMP_NUM_THREADS"].reason
        assert "TFLAUNCH_OVERRIDE_ENV=1" in changes["KMP_AFFINITY"].reason

    def test_switched_off_keeps(self):
        options = parse_options({}, {"TFLAUNCH_OVERRIDE_ENV": "0"})
        assert changes_for({"OMP_NUM_THREADS": "4"}, options)[0]["OMP_NUM_THREADS"].action == "keep"


class TestBinding:
    """A binding variable is kept with a warning, unset with --override-env, and left alone where it binds nothing."""

    @pytest.mark.parametrize(
        ("name", "exported"),
        [
            ("OMP_PROC_BIND", "true"),
            ("OMP_PROC_BIND", "close"),
            ("OMP_PROC_BIND", "spread,close"),
            ("OMP_PLACES", "cores"),
            ("OMP_PLACES", "{0},{1}"),
            ("GOMP_CPU_AFFINITY", "0-3"),
            ("KMP_AFFINITY", "granularity=fine,compact,1,0"),
            ("KMP_AFFINITY", "scatter"),
        ],
    )
    def test_binds(self, name, exported):
        changes, problems = changes_for({name: exported})
        assert (changes[name].action, changes[name].value) == ("keep", exported)
        assert codes(problems) == ["binding_variable"]
        assert name in problems[0].message
        assert exported in problems[0].message
        assert "--override-env" in problems[0].message

        changes, problems = changes_for({name: exported}, OVERRIDE)
        assert (changes[name].action, changes[name].value) == ("unset", None)
        assert exported in changes[name].reason
        assert "--override-env" in changes[name].reason
        assert problems == ()

    @pytest.mark.parametrize(
        ("name", "exported"),
        [
            ("OMP_PROC_BIND", "false"),
            ("OMP_PROC_BIND", "FALSE"),
            ("OMP_PROC_BIND", " false "),
            ("KMP_AFFINITY", "none"),
            ("KMP_AFFINITY", "disabled"),
            ("KMP_AFFINITY", "verbose,none"),
        ],
    )
    def test_harmless(self, name, exported):
        changes, problems = changes_for({name: exported})
        assert (changes[name].action, changes[name].value) == ("keep", exported)
        assert problems == ()

    @pytest.mark.parametrize("name", BINDING)
    @pytest.mark.parametrize("options", [Options(), OVERRIDE], ids=["plain", "override"])
    def test_empty(self, name, options):
        changes, problems = changes_for({name: ""}, options)
        assert name not in changes
        assert problems == ()


class TestBindCores:
    """With --bind cores no OpenMP runtime may narrow the mask again: the option was said after what is exported."""

    CORES = parse_options({"bind": "cores"}, {})

    def test_nothing_exported(self):
        changes, problems = changes_for({}, self.CORES)
        assert changes.keys() - PLANNED.keys() == {"OMP_PROC_BIND"}
        change = changes["OMP_PROC_BIND"]
        assert (change.action, change.value) == ("set", "false")
        assert "--bind cores" in change.reason
        assert "one CPU" in change.reason
        assert problems == ()

    @pytest.mark.parametrize("exported", ["true", "close", "spread,close", "master", "", "no", "falsely"])
    def test_it_replaces(self, exported):
        changes, problems = changes_for({"OMP_PROC_BIND": exported}, self.CORES)
        change = changes["OMP_PROC_BIND"]
        assert (change.action, change.value) == ("replace", "false")
        assert (exported or "empty") in change.reason
        assert "--bind cores" in change.reason
        assert problems == ()

    @pytest.mark.parametrize("exported", ["false", "FALSE", " false "])
    def test_it_agrees(self, exported):
        changes, problems = changes_for({"OMP_PROC_BIND": exported}, self.CORES)
        assert (changes["OMP_PROC_BIND"].action, changes["OMP_PROC_BIND"].value) == ("keep", exported)
        assert problems == ()

    @pytest.mark.parametrize("name", ["OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"])
    @pytest.mark.parametrize("exported", ["cores", "0-3", "granularity=fine,compact,1,0", "none", ""])
    @pytest.mark.parametrize("options", [CORES, CORES._replace(override_env=True)], ids=["plain", "override"])
    def test_it_unsets(self, name, exported, options):
        changes, problems = changes_for({name: exported}, options)
        assert (changes[name].action, changes[name].value) == ("unset", None)
        assert (exported or "empty") in changes[name].reason
        assert "--bind cores" in changes[name].reason
        assert problems == ()

    def test_variable_is_named(self):
        options = parse_options({}, {"TFLAUNCH_BIND": "cores"})
        assert "TFLAUNCH_BIND=cores" in changes_for({}, options)[0]["OMP_PROC_BIND"].reason

    def test_the_program(self):
        environ = {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores", "KMP_AFFINITY": "none", "PATH": "/bin"}
        changes, _ = make_environment(PLAN, environ, self.CORES)
        assert apply_changes(changes, environ) == {"PATH": "/bin", **PLANNED, "OMP_PROC_BIND": "false"}

    @pytest.mark.parametrize("said", [{"bind": "none"}, {"bind_anyway": "1"}])
    def test_not_asked_for(self, said):
        changes, problems = changes_for({"OMP_PROC_BIND": "close"}, parse_options(said, {}))
        assert (changes["OMP_PROC_BIND"].action, changes["OMP_PROC_BIND"].value) == ("keep", "close")
        assert codes(problems) == ["binding_variable"]
        assert not changes_for({}, parse_options(said, {}))[0].keys() & set(BINDING)


class TestInterOpOne:
    """One inter-op thread can hang a program, so whoever asks for it is told."""

    def test_exported(self):
        changes, problems = changes_for({"TF_NUM_INTEROP_THREADS": "1"})
        assert changes["TF_NUM_INTEROP_THREADS"].value == "1"
        assert codes(problems) == ["inter_op_one"]
        assert "hang" in problems[0].message

    def test_exported_with_blanks(self):
        assert codes(changes_for({"TF_NUM_INTEROP_THREADS": " 1 "})[1]) == ["inter_op_one"]

    def test_option(self):
        plan = PLAN._replace(inter_op=Number(1, "--inter-op 1", is_explicit=True))
        assert codes(changes_for({}, plan=plan)[1]) == ["inter_op_one"]

    def test_planned_in_latency_mode(self):
        plan = PLAN._replace(inter_op=Number(1, "latency mode"))
        assert changes_for({}, plan=plan)[1] == ()
        assert changes_for({"TF_NUM_INTEROP_THREADS": "1"}, plan=plan)[1] == ()

    def test_replaced_or_two(self):
        assert changes_for({"TF_NUM_INTEROP_THREADS": "1"}, OVERRIDE)[1] == ()
        assert changes_for({"TF_NUM_INTEROP_THREADS": "2"})[1] == ()


class TestKeptAboveLimit:
    """A kept pool larger than the CPUs there are is told; the plan's own numbers and the counts of CPUs are not."""

    POOLS = sorted(COUNTS - {"TF_NUM_INTEROP_THREADS", "LOKY_MAX_CPU_COUNT", "PYTHON_CPU_COUNT"})

    @pytest.mark.parametrize("name", POOLS)
    def test_above(self, name):
        changes, problems = changes_for({name: "18"})
        assert changes[name].value == "18"
        assert codes(problems) == ["kept_above_limit"]
        assert f"{name}=18" in problems[0].message
        assert "17 CPUs" in problems[0].message
        assert "--override-env" in problems[0].message

    def test_the_outermost_level_of_a_list(self):
        assert codes(changes_for({"OMP_NUM_THREADS": "64,2"})[1]) == ["kept_above_limit"]
        assert changes_for({"OMP_NUM_THREADS": "2,64"})[1] == ()

    @pytest.mark.parametrize("name", POOLS)
    def test_up_to_the_limit(self, name):
        assert changes_for({name: "17"})[1] == ()

    def test_what_an_option_asked_for(self):
        plan = PLAN._replace(omp=Number(64, "--omp 64", is_explicit=True), blas=Number(64, "as OMP", is_explicit=True))
        assert changes_for({"OMP_NUM_THREADS": "64"}, plan=plan)[1] == ()


HOSTILE = [
    pytest.param("\x1b[2J\x1b[31m", id="escape-sequence"),
    pytest.param("4\n8", id="newline"),
    pytest.param("4\r", id="carriage-return"),
    pytest.param("\x07", id="bell"),
    pytest.param("\x9b31m", id="c1-control"),
    pytest.param("\udcff\udc80", id="undecodable-bytes"),
    pytest.param("\u202e4", id="right-to-left-override"),
    pytest.param("\u200b4", id="zero-width-space"),
    pytest.param("\U000e0041", id="tag-character"),
]


class TestUntrustedText:
    """Whatever is in a variable, no message and no reason can move a terminal's cursor or break its encoding."""

    @pytest.mark.parametrize("exported", HOSTILE)
    @pytest.mark.parametrize("options", [Options(), OVERRIDE, TestBindCores.CORES], ids=["plain", "override", "bind"])
    def test_printable(self, exported, options):
        changes, problems = changes_for(dict.fromkeys([*PLANNED, *BINDING], exported), options)
        for text in [change.reason for change in changes.values()] + [problem.message for problem in problems]:
            assert text.isprintable(), ascii(text)
            text.encode("utf-8")

    def test_still_recognizable(self):
        """The escape is written once, as a person would look for it."""
        (problem,) = changes_for({"OMP_NUM_THREADS": "\x1b[31m"})[1]
        assert r"'\x1b[31m'" in problem.message


class TestApplyChanges:
    """The program's environment: the caller's with the changes, and the caller's own left as it is."""

    def test_result(self):
        environ = {"PATH": "/bin", "OMP_NUM_THREADS": "abc", "KMP_AFFINITY": "compact", "MKL_NUM_THREADS": "4"}
        before = dict(environ)
        changes, _ = make_environment(PLAN, environ, OVERRIDE)
        assert apply_changes(changes, environ) == {"PATH": "/bin", **PLANNED}
        changes, _ = make_environment(PLAN, environ, Options())
        assert apply_changes(changes, environ) == {
            "PATH": "/bin",
            **PLANNED,
            "KMP_AFFINITY": "compact",
            "MKL_NUM_THREADS": "4",
        }
        assert environ == before
