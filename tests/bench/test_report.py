"""The tables of the benchmark of the policy, of figures small enough to be checked by hand."""

from __future__ import annotations

import importlib.util

import pytest
from contenders import Host, Limit, Setting
from missing import missing
from regret import Cell, Measured

HERE = Host("8 CPUs", 8, cores=8, sockets=1)
NONE = Limit("none")


@pytest.fixture
def report():
    if importlib.util.find_spec("matplotlib") is None:
        missing("needs the extra `bench`")
    return importlib.import_module("report")


def test_a_plan_that_the_grid_does_not_have_is_shown_beside_the_best_of_the_grid(report):
    rates = {Setting(1, 2): 10, Setting(2, 2): 8, Setting(8, 2): 9}
    measured = Measured(
        {"limit": "none", "program": "cnn", "setting": list(setting), "round": 0, "rate": rate, "p99_ms": 1}
        for setting, rate in rates.items()
    )
    plans = {(NONE, HERE, "throughput"): Setting(8, 2)}
    _, table = report.one_for_all(measured, [Cell(NONE, HERE, "cnn")], plans, HERE, "throughput")
    cells = [cell.strip() for cell in table.splitlines()[-1].strip("|").split("|")]
    assert cells == ["none", "8 CPUs", "1/2", "0.0%", "8/2", "10.0%"]
