"""The results of bench/policy.py: policy.txt with the tables, policy.svg with the picture."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
from common import markdown, spread
from contenders import (
    AS_DEFAULT,
    BLAS,
    DEFAULT,
    EMULATED,
    INFERENCE,
    INTER,
    INTRA,
    LIMITS,
    PEERS,
    PROGRAMS,
    TRAINING,
    Host,
    Limit,
    Setting,
    choices,
    hosts_under,
    seen,
    viewed,
)
from regret import INTER_RULES, INTRA_RULES, Cell, Measured, Value, cannot_hang, cpus_of, promptness, rate

Plans = Mapping[tuple[Limit, Host, str], Setting]
Paragraphs = list[str]

# What the project wants.
MEDIAN_REGRET = 0.04
LISTED_REGRET = 0.10
LATENCY_REGRET = 0.15
TO_DEFAULT_IN_TRAINING = 2.0
TO_DEFAULT_IN_INFERENCE = 5.0

MODES: dict[str, tuple[Value, tuple[str, ...]]] = {
    "throughput": (rate, PROGRAMS),
    "latency": (promptness, INFERENCE),
}


def write(output: Path, machines: Sequence[str], lines: Iterable[Mapping], plans: Plans, here: Host) -> None:
    """Write both files, and print the text."""
    lines = list(lines)
    measured = Measured(lines)
    possible = (Cell(limit, host, name) for limit in LIMITS for host in hosts_under(limit, here) for name in PROGRAMS)
    cells = [cell for cell in possible if measured.has(cell)]
    paragraphs = [*machines, describe_hosts(here), describe_turns(lines)]
    for mode in MODES:
        paragraphs += regrets(measured, cells, plans, here, mode)
        paragraphs += rules(measured, cells, plans, here, mode)
        paragraphs += one_for_all(measured, cells, plans, here, mode)
        paragraphs += peers(measured, cells, plans, mode)
    paragraphs += second_threads(measured, cells)
    paragraphs += blas(measured, here)
    paragraphs += views(measured, cells, here)
    paragraphs += grids(measured, cells)
    text = "\n\n".join(paragraphs) + "\n"
    (output / "policy.txt").write_text(text)
    draw(output / "policy.svg", measured, cells, plans, here)
    print(text)


def describe_hosts(here: Host) -> str:
    return "\n".join(
        f"{'emulated' if host == EMULATED else 'this machine'}: {host.cpus} CPUs, {host.cores} cores, {host.sockets} "
        f"socket{'s' if host.sockets > 1 else ''}"
        for host in (here, EMULATED)
    )


def describe_turns(lines: Sequence[Mapping]) -> str:
    others = [line["others"] for line in lines]
    rounds = {line["round"] for line in lines}
    rounds_of_all = {line["round"] for line in lines if line["program"] not in INFERENCE}
    return (
        f"{len(lines)} turns in {len(rounds_of_all)} rounds, of inference {len(rounds)}; other processes used "
        f"{statistics.median(others):.2f} CPUs in the median turn, {max(others):.2f} at most"
    )


def judged(cells: Sequence[Cell], mode: str) -> list[Cell]:
    """The cells that a mode is judged by."""
    return [cell for cell in cells if cell.program in MODES[mode][1]]


def rivals(measured: Measured, cell: Cell, here: Host, mode: str) -> list[Setting]:
    """The settings that a mode's plan is held against. Latency mode is for serving, whose graphs call no Python."""
    settings = measured.settings(cell, here)
    return cannot_hang(settings) if mode == "throughput" else settings


def regrets(measured: Measured, cells: Sequence[Cell], plans: Plans, here: Host, mode: str) -> Paragraphs:
    """How far the plan is from the best setting, in each cell."""
    value, _ = MODES[mode]
    rows, found, fair, of_all = [], [], [], []
    for cell in judged(cells, mode):
        own = plans[cell.limit, cell.host, mode]
        everything = measured.settings(cell, here)
        settings = rivals(measured, cell, here, mode)
        regret = measured.regret(cell, own, settings, value)
        price = measured.regret(cell, own, everything, value)
        best = measured.best(cell, settings, value)
        found.append(regret)
        fair.append(measured.fair_regret(cell, own, settings, value))
        of_all.append(price)
        ratios = measured.ratios(cell, own, best, value)
        mark = " *" if regret > (LISTED_REGRET if mode == "throughput" else LATENCY_REGRET) else ""
        rows.append([
            cell.limit.name, cell.host.name, cell.program, str(own), f"{regret:.1%}{mark}", str(best), spread(ratios),
            f"{fair[-1]:.1%}", f"{price:.1%}", str(measured.best(cell, everything, value)),
        ])  # fmt: skip
    what = "steps/s" if mode == "throughput" else "p99"
    header = ["limit", "host", "program", "plan", "regret", "best", "plan to best", "fair", "of all", "best of all"]
    bound = (
        f"median wanted: at most {MEDIAN_REGRET:.0%}; *: above {LISTED_REGRET:.0%}"
        if mode == "throughput"
        else f"wanted: at most {LATENCY_REGRET:.0%} in every cell; *: above"
    )
    return [
        f"REGRET, {mode} mode ({what}; {bound})\n"
        "best: among settings with inter-op 2 or more in throughput mode, among all in latency mode; "
        "plan to best: median (quartiles)\n"
        "fair: the best setting of a round is chosen in the other rounds; of all: with settings that can hang",
        markdown(header, rows),
        f"regret: median {statistics.median(found):.1%}, mean {statistics.mean(found):.1%}, worst {max(found):.1%}; "
        f"fair: median {statistics.median(fair):.1%}, mean {statistics.mean(fair):.1%}; "
        f"of all: median {statistics.median(of_all):.1%}, mean {statistics.mean(of_all):.1%}, worst {max(of_all):.1%}",
    ]


def rules(measured: Measured, cells: Sequence[Cell], plans: Plans, here: Host, mode: str) -> Paragraphs:
    """The same for other policies of two constants."""
    value, _ = MODES[mode]
    found: dict[tuple[Setting, ...], tuple[list[str], list[float]]] = {}
    chosen = judged(cells, mode)
    for (intra_name, intra), (inter_name, inter) in product(INTRA_RULES.items(), INTER_RULES.items()):
        own = {}
        for cell in chosen:
            cpus = cpus_of(cell.limit, here)
            own[cell] = plans[cell.limit, cell.host, mode]._replace(intra=intra(cpus), inter=inter(cpus))
        can_hang = any(setting.inter == 1 for setting in own.values())
        if not all(measured.knows(*pair) for pair in own.items()) or (mode == "throughput" and can_hang):
            continue
        regrets_of_one = [
            measured.regret(cell, setting, rivals(measured, cell, here, mode), value) for cell, setting in own.items()
        ]
        names, _ = found.setdefault(tuple(own.values()), ([], regrets_of_one))
        names.append(f"intra {intra_name}, inter {inter_name}")
    ordered = sorted(found.items(), key=lambda item: statistics.mean(item[1][1]))
    rows = [
        [
            " = ".join(names),
            *(f"{of(values):.1%}" for of in (statistics.mean, statistics.median, max)),
            str(len(below_choices(measured, dict(zip(chosen, settings)), value))),
        ]
        for settings, (names, values) in ordered
    ]
    return [
        f"RULES, {mode} mode: the same regret with other rules of two constants; equal ones in one line"
        + ("; those with inter-op 1, which can hang, are left out" if mode == "throughput" else "")
        + "\nbelow: pairs of a cell and a peer, as below",
        markdown(["rule", "mean", "median", "worst", "below"], rows),
    ]


def one_for_all(measured: Measured, cells: Sequence[Cell], plans: Plans, here: Host, mode: str) -> Paragraphs:
    """How near any one setting comes to all programs under a limit, whatever rule chooses it."""
    value, _ = MODES[mode]
    rows = []
    for limit, host in dict.fromkeys((cell.limit, cell.host) for cell in judged(cells, mode)):
        own = plans[limit, host, mode]
        here_judged = [cell for cell in judged(cells, mode) if (cell.limit, cell.host) == (limit, host)]
        grid = (own._replace(intra=intra, inter=inter) for intra, inter in product(INTRA, INTER))
        settings = list(dict.fromkeys((own, *grid)))  # where there are many CPUs the plan is none of the grid
        if mode == "throughput":
            settings = cannot_hang(settings)
        worst = {
            setting: max(
                measured.regret(cell, setting, rivals(measured, cell, here, mode), value) for cell in here_judged
            )
            for setting in settings
            if all(measured.knows(cell, setting) for cell in here_judged)
        }
        best = min(worst, key=worst.__getitem__)
        rows.append([limit.name, host.name, str(best), f"{worst[best]:.1%}", str(own), f"{worst[own]:.1%}"])
    return [
        f"ONE FOR ALL, {mode} mode: the setting whose worst regret over the programs is the smallest, and the plan",
        markdown(["limit", "host", "setting", "its worst", "plan", "its worst"], rows),
    ]


def below_choices(
    measured: Measured, plan: Mapping[Cell, Setting], value: Value
) -> list[tuple[Cell, str, list[float]]]:
    """Where a plan is below what a peer chooses by more than the spread, and the ratios of the rounds."""
    found = []
    for cell, own in plan.items():
        for name, setting in choices(cell.limit, cell.host).items():
            ratios = measured.ratios(cell, own, setting, value)
            if name not in AS_DEFAULT and max(_quartiles(ratios)) < 1:
                found.append((cell, name, ratios))
    return found


def peers(measured: Measured, cells: Sequence[Cell], plans: Plans, mode: str) -> Paragraphs:
    """The plan against each peer."""
    value, _ = MODES[mode]
    hosts = list(dict.fromkeys(cell.host for cell in cells))
    rows = []
    for name in (DEFAULT, *AS_DEFAULT, *PEERS):
        row = [name]
        for host in hosts:
            medians = [
                statistics.median(
                    measured.ratios(cell, plans[cell.limit, host, mode], choices(cell.limit, host)[name], value)
                )
                for cell in judged(cells, mode)
                if cell.host == host
            ]
            row += [f"{statistics.geometric_mean(medians):.2f}", f"{min(medians):.2f}", f"{max(medians):.2f}"]
        rows.append(row)
    header = ["peer", *(f"{host.name}: {what}" for host in hosts for what in ("mean", "least", "most"))]
    what = "steps/s" if mode == "throughput" else "p99, the peer's over ours"
    below = below_choices(measured, {cell: plans[cell.limit, cell.host, mode] for cell in judged(cells, mode)}, value)
    paragraphs = [
        f"PEERS, {mode} mode: ratio to each ({what}; geometric mean, least and most over the cells)",
        markdown(header, rows),
        f"below a peer by more than the spread (three quarters of the rounds): {len(below)} pairs",
    ]
    if below:
        rows = [
            [
                cell.limit.name, cell.host.name, cell.program, name, str(choices(cell.limit, cell.host)[name]),
                spread(ratios),
            ]
            for cell, name, ratios in below
        ]  # fmt: skip
        paragraphs.append(markdown(["limit", "host", "program", "peer", "its setting", "ratio"], rows))
    if mode == "throughput":
        paragraphs.append(to_default_at_one(measured, cells, plans))
    return paragraphs


def to_default_at_one(measured: Measured, cells: Sequence[Cell], plans: Plans) -> str:
    """What is wanted at 1 CPU on a host with 64."""
    rows, training = [], []
    for cell in cells:
        if cell.limit.quota == 1 and cell.host == EMULATED and cell.program in (*TRAINING, *INFERENCE):
            default = choices(cell.limit, cell.host)[DEFAULT]
            rows.append([cell.program])
            for mode in MODES:
                own = plans[cell.limit, cell.host, mode]
                of_rate, of_p99 = (measured.ratios(cell, own, default, value) for value in (rate, promptness))
                rows[-1] += [spread(of_rate), spread(of_p99)]
                if mode == "throughput" and cell.program in TRAINING:
                    training.append(statistics.median(of_rate))
    header = ["program", *(f"{mode} mode: {what}" for mode in MODES for what in ("steps/s", "p99"))]
    return (
        "AT 1 CPU on the emulated host: ratio to TensorFlow's default (wanted of steps/s: "
        f"{TO_DEFAULT_IN_TRAINING:g} in training, {TO_DEFAULT_IN_INFERENCE:g} in inference)\n"
        + markdown(header, rows)
        + (
            f"\ngeometric mean of training, throughput mode: {statistics.geometric_mean(training):.2f}"
            if training
            else ""
        )
    )


def second_threads(measured: Measured, cells: Sequence[Cell]) -> Paragraphs:
    """What a second thread of each pool brings or costs, which is what the policy decides on."""
    paragraphs = []
    limits = list(dict.fromkeys(cell.limit for cell in cells))
    for what, more, less in (
        ("intra-op: 2/2 to 1/2", Setting(2, 2), Setting(1, 2)),
        ("inter-op: 1/2 to 1/1", Setting(1, 2), Setting(1, 1)),
        ("inter-op: 2/2 to 2/1", Setting(2, 2), Setting(2, 1)),
    ):
        rows = []
        for program in dict.fromkeys(cell.program for cell in cells):
            rows.append([program])
            for cell in (cell for cell in cells if cell.program == program and cell.host != EMULATED):
                known = measured.knows(cell, more) and measured.knows(cell, less)
                rows[-1].append(spread(measured.ratios(cell, more, less, rate)) if known else "")
        table = markdown(["program", *(limit.name for limit in limits)], rows)
        paragraphs += [f"A SECOND THREAD, {what}, steps/s", table]
    return paragraphs


def blas(measured: Measured, here: Host) -> Paragraphs:
    """Whether BLAS gets the full number beside TensorFlow."""
    rows = []
    for cell in (Cell(limit, here, program) for program in BLAS for limit in LIMITS):
        if measured.has(cell):
            rows.append([cell.program, cell.limit.name])
            for intra in (1, 2):
                ratios = measured.ratios(cell, Setting(intra, 2, None, 2), Setting(intra, 2, None, 1), rate)
                rows[-1].append(spread(ratios))
    if not rows:
        return []
    return [
        "BLAS: a product of NumPy alone and before each step of CNN training, OMP_NUM_THREADS=2 to 1, steps/s",
        markdown(["program", "limit", "with 1/2", "with 2/2"], rows),
    ]


def views(measured: Measured, cells: Sequence[Cell], here: Host) -> Paragraphs:
    """What the view brings to a program that asks for CPUs."""
    rows = []
    for cell in cells:
        if cell.program == "data" and cell.limit.quota:
            without, within = seen(cell.limit, cell.host), viewed(cell.limit.quota, here)
            if without != within:
                rows.append([cell.limit.name, cell.host.name])
                for pool in VIEWED_POOLS:
                    on, off = Setting(*pool, within), Setting(*pool, without)
                    known = measured.knows(cell, on) and measured.knows(cell, off)
                    rows[-1].append(spread(measured.ratios(cell, on, off, rate)) if known else "")
    if not rows:
        return []
    header = ["limit", "host", *(f"{intra}/{inter}" for intra, inter in VIEWED_POOLS)]
    return ["VIEW: tf.data training with the view to without, steps/s", markdown(header, rows)]


def grids(measured: Measured, cells: Sequence[Cell]) -> Paragraphs:
    """Everything, in medians."""
    rows = []
    for cell in cells:
        if cell.host == EMULATED:
            continue  # the same turns
        for setting, turns in measured.all(cell).items():
            lines = list(turns.values())
            rows.append([
                cell.limit.name, cell.program, str(setting),
                *(f"{statistics.median(line[key] for line in lines):{form}}" for key, form in FIGURES.items()),
            ])  # fmt: skip
    return ["EVERYTHING: medians over the rounds", markdown(["limit", "program", "setting", *FIGURES], rows)]


VIEWED_POOLS = ((1, 1), (1, 2), (2, 2))

FIGURES = {
    "rate": ".1f", "p50_ms": ".3g", "p99_ms": ".3g", "throttled": ".0%", "throttled_s": ".2f", "threads": ".0f",
    "peak_mib": ".0f",
}  # fmt: skip


def _quartiles(values: Sequence[float]) -> list[float]:
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else list(values)


def draw(path: Path, measured: Measured, cells: Sequence[Cell], plans: Plans, here: Host) -> None:
    """A heat map of regret in throughput mode, and bars against the peers on both hosts."""
    plt.rcParams["svg.fonttype"] = "none"  # text stays text
    plt.rcParams["svg.hashsalt"] = "policy"  # the same picture of the same figures, byte for byte
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), width_ratios=(3, 2), layout="constrained")
    columns = list(dict.fromkeys((cell.limit, cell.host) for cell in cells))
    names = [program for program in PROGRAMS if any(cell.program == program for cell in cells)]
    shares = []
    for program in names:
        mode = "latency" if program in INFERENCE else "throughput"
        value, _ = MODES[mode]
        row = []
        for limit, host in columns:
            cell = Cell(limit, host, program)
            regret = measured.regret(cell, plans[limit, host, mode], rivals(measured, cell, here, mode), value)
            row.append(100 * regret)
        shares.append(row)
    left.imshow(shares, cmap="YlOrRd", vmin=0, vmax=40, aspect="auto")
    for y, row in enumerate(shares):
        for x, share in enumerate(row):
            left.text(x, y, f"{share:.0f}", ha="center", va="center", color="white" if share > 25 else "black")
    left.set_xticks(range(len(columns)), [f"{limit.name}\n{host.name}" for limit, host in columns], fontsize=7)
    left.set_yticks(range(len(names)), [f"{name} (p99)" if name in INFERENCE else name for name in names])
    left.set_title("Regret in %: distance of tflaunch's plan from the best setting")

    hosts = list(dict.fromkeys(host for _, host in columns))
    peers_shown = (DEFAULT, *PEERS)
    for number, host in enumerate(hosts):
        means = []
        for peer in peers_shown:
            medians = [
                statistics.median(
                    measured.ratios(cell, plans[cell.limit, host, mode], choices(cell.limit, host)[peer], value)
                )
                for cell in cells
                if cell.host == host
                for mode in ("latency" if cell.program in INFERENCE else "throughput",)
                for value in (MODES[mode][0],)
            ]
            means.append(statistics.geometric_mean(medians))
        heights = [y + 0.4 * (number - (len(hosts) - 1) / 2) for y in range(len(peers_shown))]
        bars = right.barh(heights, means, 0.38, label=f"host with {host.name}")
        right.bar_label(bars, [f"{mean:.2f}" for mean in means], padding=3, fontsize=9)
    right.axvline(1, color="black", linewidth=1)
    right.set_yticks(range(len(peers_shown)), peers_shown)
    right.invert_yaxis()
    right.margins(x=0.15)
    right.legend(loc="upper center", bbox_to_anchor=(0.4, -0.06), ncols=2, frameon=False)
    right.set_title("tflaunch to each: steps/s, for inference p99\n(geometric mean of all programs and limits)")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
