"""The report of `verify` as a person reads it."""

from __future__ import annotations

import re

import pytest

from tflaunch.builds import Build
from tflaunch.render_verification import print_verification
from tflaunch.tensorflow_log import Pool
from tflaunch.verification import Probe, make_fresh, make_of_script, with_timeout

BUILD = Build("tensorflow-cpu", "2.21.0", (), ())
PLANNED = {"intra_op": 3, "inter_op": 2, "omp": 3}
LOGGED = {"intra_op": 3, "inter_op": 2, "session_inter_op": 2}
PROBE = Probe(
    tensorflow="2.21.0",
    grown={**LOGGED, "iterator_of_one": 3, "iterator": 66, "jit_compile": 110},
    logged=LOGGED,
    xla_intra_op=3,
    process_threads=197,
    allowed_cpus=64,
    libraries=[{"api": "openmp", "kind": "openmp", "library": "libgomp", "threads": 3}],
)


@pytest.fixture
def show(monkeypatch, capsys):
    """Prints the document and gives the lines on standard output and on standard error."""

    def show(document, *, columns=80, to_standard_error=False):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.delenv("FORCE_COLOR", raising=False)
        print_verification(document, to_standard_error=to_standard_error)
        captured = capsys.readouterr()
        return captured.out.splitlines(), captured.err.splitlines()

    return show


def test_all_as_planned(show):
    lines, _ = show(make_fresh(PLANNED, {}, PROBE, BUILD))
    text = "\n".join(lines)
    assert lines[0] == "tflaunch verify: tensorflow-cpu 2.21.0"
    assert re.search(r"^intra-op +3 +3 +3 *$", text, re.MULTILINE)
    assert re.search(r"^inter-op \(v1 Session\) +2 +2 +2 *$", text, re.MULTILINE)
    assert re.search(r"^tf\.data +64 +CPUs the process sees", text, re.MULTILINE)
    assert re.search(r"^libgomp +3 +OMP_NUM_THREADS", text, re.MULTILINE)
    assert "threads in the process: 197, CPUs in its mask: 64" in lines
    assert lines[-1] == "All as planned."


def test_differences_are_named(show):
    probe = PROBE._replace(grown={**PROBE.grown, "intra_op": 64}, logged={**LOGGED, "inter_op": 9})
    text = " ".join(show(make_fresh(PLANNED, {}, probe, BUILD), columns=200)[0])
    assert "differs: intra-op was planned 3 and is 64" in text
    assert "differs: inter-op (eager): TensorFlow's log says 9, its threads are 2" in text
    assert "All as planned" not in text


def test_a_script(show):
    """Its report goes to standard error, and says what was not observed."""
    document = make_of_script(PLANNED, (Pool("intra_op", 5), Pool("inter_op", 2), Pool("inter_op", 6)), 40, 8, BUILD)
    out, lines = show(with_timeout(document, 9), columns=200, to_standard_error=True)
    text = "\n".join(lines)
    assert out == []
    assert re.search(r"^intra-op +3 +5 +not seen", text, re.MULTILINE)
    assert re.search(r"^inter-op, all pools +2, 6", text, re.MULTILINE)
    assert "differs: intra-op was planned 3 and is 5: the script sets it" in text
    assert "the script did not end within 9 s" in text


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_width(show, columns):
    assert max(map(len, show(make_fresh(PLANNED, {}, PROBE, BUILD), columns=columns)[0])) <= columns


def test_untrusted_names(show):
    document = make_fresh(PLANNED, {}, PROBE, Build("tensor\x1b[31mflow", "1\r", (), ()))
    assert not set("\x1b\r") & set("".join(show(document)[0]))
