"""The options: flags, TFLAUNCH_* variables and keywords give the same values and the same errors."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tflaunch.cpus import Cpus
from tflaunch.errors import UsageError
from tflaunch.options import OPTIONS, Options, parse_options

NAMES = [option.name for option in OPTIONS]
FLAGS = {
    "cpus": "--cpus",
    "intra_op": "--intra-op",
    "inter_op": "--inter-op",
    "omp": "--omp",
    "mode": "--mode",
    "rounding": "--rounding",
    "override_env": "--override-env",
    "view": "--view",
    "bind": "--bind",
    "bind_anyway": "--bind-anyway",
    "init": "--init",
    "strict": "--strict",
    "dry_run": "--dry-run",
    "verbose": "--verbose",
    "quiet": "--quiet",
}
SWITCHES = ["override_env", "bind_anyway", "init", "strict", "dry_run", "verbose", "quiet"]
THREADS = ["intra_op", "inter_op", "omp"]

GOOD = [
    ("cpus", "2", Cpus(2)),
    ("cpus", "1.5", Cpus(15, 10)),
    ("cpus", "1500m", Cpus(1500, 1000)),
    ("cpus", " 2 ", Cpus(2)),
    *((name, text, value) for name in THREADS for text, value in (("1", 1), ("7", 7), (" 7 ", 7), ("1024", 1024))),
    *(("mode", word, word) for word in ("throughput", "latency")),
    ("mode", "Latency", "latency"),
    *(("rounding", word, word) for word in ("auto", "floor", "nearest", "ceil")),
    *(("bind", word, word) for word in ("none", "cores")),
    ("bind", " Cores ", "cores"),
    *((name, word, True) for name in SWITCHES for word in ("1", "true", "yes", "on", "TRUE", " on ")),
    *((name, word, False) for name in SWITCHES for word in ("0", "false", "no", "off", "Off")),
]

NUMBERS_OF_CPUS = ["2", "1.5", "1500m"]
BAD_CPUS = [
    "0",
    "0.0",
    "0m",
    "-1",
    "+2",
    "1e2",
    "0x4",
    "abc",
    "nan",
    "inf",
    "1,5",
    "2k",
    "1m5",
    "٣",
    "9" * 30,
]
BAD_THREADS = ["0", "-1", "+4", "1.5", "4.0", "1e2", "0x4", "abc", "all", "1025", "4,2", "4 4", "٣", "9" * 30, "1500m"]
BAD = [
    *(("cpus", text, NUMBERS_OF_CPUS) for text in BAD_CPUS),
    *((name, text, ["1", "1024"]) for name in THREADS for text in BAD_THREADS),
    *(("mode", text, ["throughput", "latency"]) for text in ("fast", "training", "throughput,latency", "0")),
    *(("rounding", text, ["auto", "floor", "nearest", "ceil"]) for text in ("up", "round", "1")),
    *((name, text, ["1", "0", "true", "false"]) for name in SWITCHES for text in ("maybe", "2", "-1", "y")),
    *(("bind", text, ["none", "cores"]) for text in ("sockets", "core", "true", "1", "none,cores", "0-3")),
]


def told(given, environ, spelling="flag"):
    """The error as it is told: what, hint."""
    with pytest.raises(UsageError) as caught:
        parse_options(given, environ, spelling)
    assert caught.value.exit_status == 2
    assert str(caught.value) == f"{caught.value.what}\nhint: {caught.value.hint}"
    return caught.value.what, caught.value.hint


class TestTable:
    """Each row of the table is enough for the help, the README and the parser."""

    def test_names_are_the_fields_of_options(self):
        assert [*NAMES, "origins"] == list(Options._fields)

    @pytest.mark.parametrize("option", OPTIONS, ids=NAMES)
    def test_row(self, option):
        assert option.flag == FLAGS[option.name]
        assert option.variable == "TFLAUNCH_" + option.name.upper()
        assert option.is_switch == (option.name in SWITCHES)
        assert option.help.endswith(".")
        assert len(option.help) > 20

    def test_short_flags(self):
        assert {option.name: option.short for option in OPTIONS if option.short} == {"verbose": "-v", "quiet": "-q"}

    def test_help_of_the_program_lists_every_row(self):
        for command in ("run", "explain", "env"):
            done = subprocess.run(
                [sys.executable, "-m", "tflaunch", command, "--help"],
                env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"},
                capture_output=True,
                text=True,
                check=True,
            )
            for option in OPTIONS:
                assert option.flag in done.stdout
                assert option.variable in done.stdout


class TestDefaults:
    """With nothing said, every option leaves the decision to the plan."""

    def test_nothing(self):
        assert parse_options({}, {}) == Options()
        assert Options() == Options(
            cpus=None,
            intra_op=None,
            inter_op=None,
            omp=None,
            mode="throughput",
            rounding="auto",
            override_env=False,
            bind="none",
            bind_anyway=False,
            init=False,
            strict=False,
            dry_run=False,
            verbose=False,
            quiet=False,
        )

    @pytest.mark.parametrize("option", OPTIONS, ids=NAMES)
    def test_an_empty_variable_counts_as_unset(self, option):
        assert parse_options({}, {option.variable: ""}) == Options()

    def test_other_variables_are_none_of_ours(self):
        environ = {"TFLAUNCH": "x", "TFLAUNCH_": "x", "TFLAUNCH_OTHER": "x", "tflaunch_cpus": "x", "CPUS": "x"}
        assert parse_options({}, environ) == Options()


@pytest.mark.parametrize(("name", "text", "value"), GOOD)
class TestGoodValue:
    """A value means the same in each spelling, and is remembered as the user wrote it."""

    def test_flag(self, name, text, value):
        options = parse_options({name: text}, {})
        assert getattr(options, name) == value
        assert options.origin(name) == (FLAGS[name] if name in SWITCHES else f"{FLAGS[name]} {text}")

    def test_variable(self, name, text, value):
        options = parse_options({}, {f"TFLAUNCH_{name.upper()}": text})
        assert getattr(options, name) == value
        assert options.origin(name) == f"TFLAUNCH_{name.upper()}={text}"

    def test_keyword(self, name, text, value):
        options = parse_options({name: text}, {}, spelling="keyword")
        assert getattr(options, name) == value
        assert options.origin(name) == f"{name}={text}"

    def test_the_others_keep_their_defaults(self, name, text, value):
        options = parse_options({name: text}, {})
        assert options._replace(**{name: getattr(Options(), name)}, origins=()) == Options()
        assert [origin for origin, _ in options.origins] == [name]


@pytest.mark.parametrize(("name", "text", "accepted"), BAD)
class TestBadValue:
    """A value that cannot be used is told as it was said, with a hint that says what is accepted."""

    def test_flag(self, name, text, accepted):
        what, hint = told({name: text}, {})
        assert what.startswith(FLAGS[name])
        assert name in SWITCHES or text in what
        assert all(word in hint for word in accepted)

    def test_variable(self, name, text, accepted):
        what, hint = told({}, {f"TFLAUNCH_{name.upper()}": text})
        assert what.startswith(f"TFLAUNCH_{name.upper()}={text} ")
        assert all(word in hint for word in accepted)

    def test_keyword(self, name, text, accepted):
        what, hint = told({name: text}, {}, "keyword")
        assert what.startswith(f"{name}={text} ")
        assert all(word in hint for word in accepted)


class TestHostileText:
    """What is told of a value is one printable line, whatever is in it."""

    @pytest.mark.parametrize("text", ["\x1b[31m2", "2\n3", "\udcff", "\u202e2", "\x85"], ids=ascii)
    @pytest.mark.parametrize("name", [name for name in NAMES if name not in SWITCHES])
    def test_printable(self, name, text):
        for what, hint in (
            told({name: text}, {}),
            told({name: text}, {}, "keyword"),
            told({}, {f"TFLAUNCH_{name.upper()}": text}),
        ):
            assert what.isprintable()
            assert hint.isprintable()


class TestPrecedence:
    """What is given on the command line or as a keyword wins over the variable."""

    @pytest.mark.parametrize(
        ("name", "given", "exported"),
        [
            ("cpus", "2", "3"),
            *((name, "2", "3") for name in THREADS),
            ("mode", "throughput", "latency"),
            ("rounding", "auto", "ceil"),
            *((name, "1", "0") for name in SWITCHES),
            *((name, "0", "1") for name in SWITCHES),
        ],
    )
    def test_given_wins(self, name, given, exported):
        options = parse_options({name: given}, {f"TFLAUNCH_{name.upper()}": exported})
        assert options._replace(origins=()) == parse_options({name: given}, {})._replace(origins=())
        assert exported not in options.origin(name)

    def test_a_bad_variable_below_a_good_flag_is_not_read(self):
        assert parse_options({"cpus": "2"}, {"TFLAUNCH_CPUS": "abc"}).cpus == Cpus(2)

    def test_options_come_from_both(self):
        options = parse_options({"cpus": "2"}, {"TFLAUNCH_MODE": "latency"})
        assert (options.cpus, options.mode) == (Cpus(2), "latency")
        assert options.origins == (("cpus", "--cpus 2"), ("mode", "TFLAUNCH_MODE=latency"))


class TestVerboseAndQuiet:
    """They exclude each other where they were said together; either flag decides over both variables."""

    @pytest.mark.parametrize(
        ("given", "environ"),
        [
            pytest.param({"verbose": "1", "quiet": "1"}, {}, id="flags"),
            pytest.param({}, {"TFLAUNCH_VERBOSE": "1", "TFLAUNCH_QUIET": "1"}, id="variables"),
        ],
    )
    def test_both(self, given, environ):
        what, hint = told(given, environ)
        assert "verbose" in what
        assert "quiet" in what
        assert "-v" in hint
        assert "-q" in hint

    @pytest.mark.parametrize(
        ("given", "environ", "verbose", "quiet"),
        [
            pytest.param({"verbose": "1"}, {"TFLAUNCH_QUIET": "1"}, True, False, id="-v-over-quiet"),
            pytest.param({"quiet": "1"}, {"TFLAUNCH_VERBOSE": "1"}, False, True, id="-q-over-verbose"),
            pytest.param(
                {"quiet": "1"}, {"TFLAUNCH_VERBOSE": "1", "TFLAUNCH_QUIET": "1"}, False, True, id="-q-over-both"
            ),
            pytest.param({}, {"TFLAUNCH_QUIET": "1"}, False, True, id="variable"),
            pytest.param({}, {"TFLAUNCH_QUIET": "1", "TFLAUNCH_VERBOSE": "0"}, False, True, id="one-switched-off"),
            pytest.param({}, {"TFLAUNCH_QUIET": "0", "TFLAUNCH_VERBOSE": "0"}, False, False, id="both-switched-off"),
        ],
    )
    def test_one(self, given, environ, verbose, quiet):
        options = parse_options(given, environ)
        assert (options.verbose, options.quiet) == (verbose, quiet)
