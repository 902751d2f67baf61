"""The benchmark of the policy, run for a moment: that it works, and nothing of its figures."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from missing import missing

PROJECT = Path(__file__).resolve().parents[2]


def smoke(output: Path) -> str:
    """Run it to its end; returns what it printed. It leaves no group behind."""
    command = [sys.executable, PROJECT / "bench/policy.py", "--smoke", "--output", output]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/") as process:
        try:
            said, errors = process.communicate(timeout=600)
        finally:
            process.terminate()
    assert process.returncode == 0, errors
    assert not list(Path("/sys/fs/cgroup").glob(f"**/tflaunch-bench-{process.pid}-*"))
    return said


@pytest.fixture(scope="module")
def output(tmp_path_factory) -> Path:
    if os.geteuid() != 0:
        missing("needs root, to make control groups")
    if importlib.util.find_spec("matplotlib") is None:
        missing("needs the extra `bench`")
    directory = tmp_path_factory.mktemp("policy")
    smoke(directory)
    return directory


def test_it_measures_every_cell_and_shows_it(output):
    start, *turns = map(json.loads, (output / "policy.jsonl").read_text().splitlines())
    assert "tensorflow" in start["versions"]
    assert {(turn["program"], turn["round"]) for turn in turns} == {
        (program, number) for program, rounds in (("infer", 4), ("data", 2)) for number in range(rounds)
    }
    assert all(turn["rate"] > 0 and turn["threads"] > 1 and turn["peak_mib"] > 1 for turn in turns)
    seen_64 = [turn["threads"] for turn in turns if turn["setting"] == [None, None, 64, None]]
    assert min(seen_64) > 64  # TensorFlow's default is measured with nothing set

    text = (output / "policy.txt").read_text()
    for name in ("REGRET, throughput", "REGRET, latency", "RULES", "PEERS", "TensorFlow's default", "1 CPU"):
        assert name in text
    picture = (output / "policy.svg").read_text()
    assert "<svg" in picture and "ITEX launch" in picture


def test_it_goes_on_where_it_was_stopped(output):
    raw = output / "policy.jsonl"
    lines = raw.read_text().splitlines(keepends=True)
    raw.write_text("".join(lines[:-1]))
    assert ", 1 to be measured" in smoke(output)
    *again, start, last = raw.read_text().splitlines(keepends=True)
    assert again == lines[:-1]
    assert json.loads(start)["machine"]
    key = ("round", "limit", "program", "setting")
    assert [json.loads(last)[name] for name in key] == [json.loads(lines[-1])[name] for name in key]
    assert ", 0 to be measured" in smoke(output)
