"""Measured turns to figures, all of them pure: what is best in a cell, how far from it another setting is.

A cell is a limit, a host and a program. Settings of one cell ran one after the other in each round, so all comparisons
are of turns of the same round, and the median over the rounds counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from contenders import ASKS_FOR_CPUS, Host, Limit, Setting, measured_as, seen, viewed

Line = Mapping[str, Any]
Value = Callable[[Line], float]


class Cell(NamedTuple):
    limit: Limit
    host: Host
    program: str


def rate(line: Line) -> float:
    """Steps a second: what throughput mode is judged by."""
    return line["rate"]


def promptness(line: Line) -> float:
    """One over the p99 of a step: what latency mode is judged by. Larger is better, as of a rate."""
    return 1 / line["p99_ms"]


class Measured:
    """The turns of each cell and setting, by round."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._turns: dict[tuple[str, str], dict[Setting, dict[int, Line]]] = {}
        for line in lines:
            settings = self._turns.setdefault((line["limit"], line["program"]), {})
            settings.setdefault(Setting(*line["setting"]), {})[line["round"]] = line

    def has(self, cell: Cell) -> bool:
        return (cell.limit.name, cell.program) in self._turns

    def all(self, cell: Cell) -> dict[Setting, dict[int, Line]]:
        return self._turns[cell.limit.name, cell.program]

    def knows(self, cell: Cell, setting: Setting) -> bool:
        return measured_as(cell.program, setting) in self.all(cell)

    def turns(self, cell: Cell, setting: Setting) -> dict[int, Line]:
        return self.all(cell)[measured_as(cell.program, setting)]

    def settings(self, cell: Cell, here: Host) -> list[Setting]:
        """All that was measured and can be had on the cell's host: each with the view and without."""
        found = list(self.all(cell))
        if cell.program not in ASKS_FOR_CPUS:
            return found
        views = {seen(cell.limit, cell.host), viewed(cell.limit.quota or here.cpus, here)}
        return [setting for setting in found if setting.sees in views]

    def ratios(self, cell: Cell, setting: Setting, to: Setting, value: Value) -> list[float]:
        """Of two settings, in each round."""
        own, other = self.turns(cell, setting), self.turns(cell, to)
        return [value(own[number]) / value(other[number]) for number in own if number in other]

    def best(self, cell: Cell, settings: Sequence[Setting], value: Value, without: int | None = None) -> Setting:
        """The setting with the largest median, each round taken in parts of its own middle; `without` one round."""
        turns = {setting: self.turns(cell, setting) for setting in settings}
        rounds = [number for number in next(iter(turns.values())) if number != without]
        middle = {number: statistics.median(value(turns[setting][number]) for setting in turns) for number in rounds}
        return max(turns, key=lambda one: statistics.median(value(turns[one][n]) / middle[n] for n in rounds))

    def regret(self, cell: Cell, own: Setting, settings: Sequence[Setting], value: Value) -> float:
        """1 - its value over that of the best of the settings, and 0 where the best is none in most rounds."""
        return max(1 - statistics.median(self.ratios(cell, own, self.best(cell, settings, value), value)), 0.0)

    def fair_regret(self, cell: Cell, own: Setting, settings: Sequence[Setting], value: Value) -> float:
        """The same with the best setting of each round chosen in the other rounds, so that luck does not count."""
        if len(self.turns(cell, own)) == 1:
            return self.regret(cell, own, settings, value)
        ratios = []
        for number, line in self.turns(cell, own).items():
            best = self.best(cell, settings, value, without=number)
            ratios.append(value(line) / value(self.turns(cell, best)[number]))
        return 1 - statistics.median(ratios)


def cannot_hang(settings: Iterable[Setting]) -> list[Setting]:
    """Those with at least two inter-op threads (bench/limits.py: with one a nested call waits for ever)."""
    return [setting for setting in settings if setting.inter is None or setting.inter >= 2]


def floor(cpus: float) -> int:
    return max(int(cpus), 1)


def floor_less_one(cpus: float) -> int:
    return max(int(cpus) - 1, 1)


def nearest(cpus: float) -> int:
    return max(int(cpus + 0.5), 1)


def ceil(cpus: float) -> int:
    return int(-(-cpus // 1))


def cpus_of(limit: Limit, here: Host) -> float:
    """The limit as a number. The emulated host is never without one."""
    return limit.quota or limit.cpuset or here.cpus


def one(_: float) -> int:
    return 1


def two(_: float) -> int:
    return 2


def four(_: float) -> int:
    return 4


INTRA_RULES = {
    "1": one,
    "down, less one": floor_less_one,
    "rounded down": floor,
    "to the nearest": nearest,
    "rounded up": ceil,
    "2": two,
}
INTER_RULES = {"1": one, "2": two, "4": four, "rounded down": floor, "to the nearest": nearest, "rounded up": ceil}
