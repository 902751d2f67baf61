"""How the benchmark of the policy judges: figures small enough to be checked by hand."""

from __future__ import annotations

import pytest
from contenders import EMULATED, Host, Limit, Setting
from regret import Cell, Measured, cannot_hang, ceil, floor, nearest, promptness, rate

HERE = Host("2 CPUs", 2, cores=2, sockets=1)
QUOTA = Limit("quota 1", quota=1.0)
CELL = Cell(QUOTA, HERE, "cnn")


def lines_of(program: str, rates: dict[Setting, list[float]]) -> list[dict]:
    return [
        {
            "limit": "quota 1",
            "program": program,
            "setting": list(setting),
            "round": number,
            "rate": value,
            "p99_ms": p99,
        }
        for setting, values in rates.items()
        for number, value in enumerate(values)
        for p99 in [1000 / value]
    ]


def test_regret_is_what_is_missing_to_the_best_in_the_median_round():
    measured = Measured(lines_of("cnn", {Setting(1, 2): [9, 8, 10], Setting(2, 2): [10, 10, 10]}))
    assert measured.regret(CELL, Setting(1, 2), [Setting(1, 2), Setting(2, 2)], rate) == pytest.approx(0.1)


def test_the_best_setting_has_no_regret():
    measured = Measured(lines_of("cnn", {Setting(1, 2): [9, 8, 10], Setting(2, 2): [7, 7, 7]}))
    assert measured.regret(CELL, Setting(1, 2), [Setting(1, 2), Setting(2, 2)], rate) == 0


def test_noise_makes_no_regret_below_zero():
    # In parts of each round's middle 2/2 is the best, and yet slower than 1/2 in two of three rounds.
    rates = {Setting(1, 2): [10.1, 5, 10.1], Setting(2, 2): [10, 10, 10], Setting(4, 2): [9, 9, 10.2]}
    measured = Measured(lines_of("cnn", rates))
    assert measured.regret(CELL, Setting(1, 2), [Setting(2, 2)], rate) == 0


def test_a_slow_round_hits_both_sides_of_a_ratio():
    measured = Measured(lines_of("cnn", {Setting(1, 2): [90, 9, 90], Setting(2, 2): [100, 10, 100]}))
    assert measured.ratios(CELL, Setting(1, 2), Setting(2, 2), rate) == pytest.approx([0.9, 0.9, 0.9])


def test_a_lucky_round_does_not_make_a_setting_the_best():
    rates = {Setting(1, 2): [10, 10, 10], Setting(2, 2): [9, 30, 9]}
    assert Measured(lines_of("cnn", rates)).best(CELL, list(rates), rate) == Setting(1, 2)


def test_the_fair_best_of_a_round_is_chosen_in_the_others():
    # Round 0 alone makes 2/2 the best of all rounds; the other two alone choose 1/2.
    rates = {Setting(1, 2): [10, 11, 10], Setting(2, 2): [20, 10, 10.5]}
    measured = Measured(lines_of("cnn", rates))
    assert measured.best(CELL, list(rates), rate) == Setting(2, 2)
    # Round 0 against 1/2: 10/10. Round 1 against 2/2: 11/10. Round 2 against 2/2: 10/10.5. The median is 1.
    assert measured.fair_regret(CELL, Setting(1, 2), list(rates), rate) == pytest.approx(0)


def test_latency_is_better_where_p99_is_smaller():
    rates = {Setting(1, 1): [20, 20, 20], Setting(1, 2): [10, 10, 10]}  # p99 of 50 and 100 ms
    measured = Measured(lines_of("cnn", rates))
    assert measured.regret(CELL, Setting(1, 2), list(rates), promptness) == pytest.approx(0.5)


def test_one_inter_op_thread_can_hang_and_nothing_set_cannot():
    settings = [Setting(1, 1), Setting(1, 2), Setting(4, 4), Setting(None, None, 64)]
    assert cannot_hang(settings) == settings[1:]


OF_VIEWS = {Setting(1, 2): [3.0], Setting(1, 2, 1): [4.0], Setting(1, 2, 64): [2.0]}


class TestHosts:
    """A program that asks for CPUs is measured on each host; for the others the host makes no difference."""

    def test_a_program_that_asks_for_cpus_has_the_view_and_its_own_host(self):
        measured = Measured(lines_of("data", OF_VIEWS))
        assert measured.settings(Cell(QUOTA, HERE, "data"), HERE) == [Setting(1, 2), Setting(1, 2, 1)]
        assert measured.settings(Cell(QUOTA, EMULATED, "data"), HERE) == [Setting(1, 2, 1), Setting(1, 2, 64)]

    def test_another_program_has_one_measurement_for_both_hosts(self):
        measured = Measured(lines_of("cnn", {Setting(1, 2): [3.0]}))
        cell = Cell(QUOTA, EMULATED, "cnn")
        assert measured.turns(cell, Setting(1, 2, 64)) == measured.turns(cell, Setting(1, 2, 1))


@pytest.mark.parametrize(
    "cpus, down, middle, up", [(0.5, 1, 1, 1), (1, 1, 1, 1), (1.4, 1, 1, 2), (1.5, 1, 2, 2), (2, 2, 2, 2)]
)
def test_rules_round_as_they_are_named(cpus, down, middle, up):
    assert (floor(cpus), nearest(cpus), ceil(cpus)) == (down, middle, up)
