"""The environment for other programs, read back by the programs themselves where they are at hand."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tflaunch.environment import Change, make_environment
from tflaunch.formats import FORMATS
from tflaunch.options import Options, parse_options
from tflaunch.policy import Number, Plan

PLAN = Plan(*(Number(value, "why") for value in (3, 2, 4, 5, 1, 6)))
PLANNED = {
    "TF_NUM_INTRAOP_THREADS": "3",
    "TF_NUM_INTEROP_THREADS": "2",
    "OMP_NUM_THREADS": "4",
    "OPENBLAS_NUM_THREADS": "5",
    "MKL_NUM_THREADS": "5",
    "BLIS_NUM_THREADS": "5",
    "VECLIB_MAXIMUM_THREADS": "5",
    "NUMEXPR_MAX_THREADS": "4",
    "NUMEXPR_NUM_THREADS": "4",
    "NUMBA_NUM_THREADS": "4",
    "KMP_BLOCKTIME": "1",
    "LOKY_MAX_CPU_COUNT": "6",
    "PYTHON_CPU_COUNT": "6",
}
# What a caller may have exported: kept values in all their forms, one that is replaced, binding.
EXPORTED = {
    "TF_NUM_INTRAOP_THREADS": " 7 ",
    "OMP_NUM_THREADS": "4, 3,2",
    "OPENBLAS_NUM_THREADS": "abc",
    "KMP_BLOCKTIME": "infinite",
    "PYTHON_CPU_COUNT": "default",
    "KMP_AFFINITY": "granularity=fine,compact,1,0",
    "OMP_PLACES": "{0},{1}",
}
WANTED = {
    **PLANNED,
    "TF_NUM_INTRAOP_THREADS": "7",
    "OMP_NUM_THREADS": "4,3,2",
    "KMP_BLOCKTIME": "infinite",
    "PYTHON_CPU_COUNT": "default",
}
OVERRIDE = parse_options({"override_env": "1"}, {})


def changes_for(environ, options=None):
    return make_environment(PLAN, environ, options or Options())[0]


def shell(script, environ=None):
    """The environment of a program that a POSIX shell starts after the script."""
    done = subprocess.run(
        ["sh", "-euc", script + "\nexec env -0"],
        env={"PATH": "/usr/bin:/bin", **(environ or {})},
        capture_output=True,
        check=True,
    )
    entries = done.stdout.decode().split("\0")[:-1]
    return {
        name: value
        for name, _, value in (entry.partition("=") for entry in entries)
        if name not in ("PATH", "PWD", "SHLVL", "_", "OLDPWD")
    }


def pairs(lines):
    """NAME=VALUE lines as docker reads them: the rest of the line to the letter."""
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def parse_kubernetes(text):
    """The one form that is written: a list named env, of names and JSON strings, which YAML reads as they are."""
    head, *rest = text.split("\n")
    assert head == "env:"
    assert rest.pop() == ""
    values = {}
    for name_line, value_line in zip(rest[::2], rest[1::2], strict=True):
        name = re.fullmatch(r"  - name: ([A-Z_]+)", name_line)
        value = re.fullmatch(r'    value: (".*")', value_line)
        assert name, name_line
        assert value, value_line
        values[name[1]] = json.loads(value[1])
    return values


READ = {
    "sh": shell,
    "dotenv": lambda text: pairs(text.splitlines()),
    "json": json.loads,
    "docker": lambda text: pairs(line.removeprefix("--env=") for line in text.splitlines()),
    "kubernetes": parse_kubernetes,
}


class TestEveryFormat:
    """All formats hold the same names and values."""

    def test_the_list_is_complete(self):
        assert READ.keys() == FORMATS.keys()

    @pytest.mark.parametrize("form", READ)
    def test_planned_values(self, form):
        assert READ[form](FORMATS[form](changes_for({}))) == PLANNED

    @pytest.mark.parametrize("form", [form for form in READ if form != "sh"])
    def test_kept_values_lose_their_blanks(self, form):
        assert READ[form](FORMATS[form](changes_for(EXPORTED))) == WANTED

    @pytest.mark.parametrize("form", READ)
    def test_ends_with_one_newline(self, form):
        assert re.search(r"[^\n]\n\Z", FORMATS[form](changes_for({})))


class TestSh:
    """eval in a POSIX shell sets what the plan says, to the letter, and runs nothing that stands in a value."""

    def test_kept_values_are_as_exported(self):
        found = shell(FORMATS["sh"](changes_for(EXPORTED)), EXPORTED)
        kept = {name: EXPORTED[name] for name in EXPORTED if name != "OPENBLAS_NUM_THREADS"}
        assert found == {**PLANNED, **kept}

    def test_override_unsets_binding_variables(self):
        assert shell(FORMATS["sh"](changes_for(EXPORTED, OVERRIDE)), EXPORTED) == PLANNED

    @pytest.mark.parametrize(
        "value",
        [
            "a b",
            "$(exit 7)",
            "`exit 7`",
            "it's",
            '"',
            "\\",
            "a\nb",
            "; exit 7",
            "# no comment",
            "*",
            "~",
            "-n",
            "$HOME",
            "é",
        ],
    )
    def test_any_value(self, value):
        assert shell(FORMATS["sh"]((Change("OMP_NUM_THREADS", value, "keep", ""),))) == {"OMP_NUM_THREADS": value}


class TestDotenv:
    """One NAME=VALUE a line with neither quotes nor blanks, which docker would take as part of the value."""

    def test_lines(self):
        text = FORMATS["dotenv"](changes_for(EXPORTED, OVERRIDE))
        assert text.splitlines() == [f"{name}={value}" for name, value in PLANNED.items()]

    def test_no_quotes_or_blanks(self):
        for line in FORMATS["dotenv"](changes_for(EXPORTED)).splitlines():
            assert re.fullmatch(r"[A-Z_]+=[a-z0-9,]+", line)


class TestJson:
    """An object; a variable to be removed is null."""

    def test_override(self):
        assert json.loads(FORMATS["json"](changes_for(EXPORTED, OVERRIDE))) == {
            **PLANNED,
            "OMP_PLACES": None,
            "KMP_AFFINITY": None,
        }


class TestDocker:
    """The words that a shell makes of it are options of docker run, each one word."""

    def test_words(self, tmp_path):
        (tmp_path / "options").write_text(FORMATS["docker"](changes_for(EXPORTED)))
        done = subprocess.run(
            ["sh", "-c", 'printf "<%s>" $(cat options)'], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout == "".join(f"<--env={name}={value}>" for name, value in WANTED.items())


class TestKubernetes:
    """A value is always a string: the API server refuses a number there."""

    def test_text(self):
        changes = (Change("OMP_NUM_THREADS", "2", "set", ""), Change("KMP_BLOCKTIME", "1", "set", ""))
        assert FORMATS["kubernetes"](changes) == (
            'env:\n  - name: OMP_NUM_THREADS\n    value: "2"\n  - name: KMP_BLOCKTIME\n    value: "1"\n'
        )

    def test_removed_variables_are_left_out(self):
        assert parse_kubernetes(FORMATS["kubernetes"](changes_for(EXPORTED, OVERRIDE))) == PLANNED
