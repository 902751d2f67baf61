"""What people read of `verify`: pools planned and observed, pools that no variable sizes, and the verdict."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tflaunch.text import printable
from tflaunch.verification import SIZED_POOLS, Difference, Verification, openmp_pool, planned_of


def print_verification(verification: Verification, *, to_standard_error: bool) -> None:
    """Print the document as tables; to standard error where standard output was a script's."""
    console = Console(stderr=to_standard_error, highlight=False, emoji=False, markup=False)
    name = f"{verification['distribution'] or 'TensorFlow'} {verification['tensorflow'] or ''}".strip()
    console.print(f"tflaunch verify: {printable(name)}\n", style="dim")
    console.print(_sized(verification))
    if verification["pools"] or verification["openmp"]:
        console.print()
        console.print(_others(verification))
    observed = verification["observed"]
    line = f"threads in the process: {observed['process_threads']}, CPUs in its mask: {observed['allowed_cpus']}"
    view = verification["view"]
    if view and view["process_threads_without"] is not None:
        line += f"; without the view {view['process_threads_without']} and {view['allowed_cpus_without']}"
    console.print(f"\n{line}\n", soft_wrap=False)
    if verification["agrees"]:
        console.print("All as planned.", style="green")
    for difference in verification["differences"]:
        console.print(Text("differs: ", style="yellow") + Text(printable(describe(difference))))


def describe(difference: Difference) -> str:
    """One line for people."""
    name = SIZED_POOLS.get(difference["pool"], difference["pool"])
    what = name
    if difference["planned"] is not None:
        seen = ", ".join(str(threads) for threads in difference["observed"])
        what = f"{name} was planned {difference['planned']} and is {seen}"
    return f"{what}: {difference['reason']}" if difference["reason"] else what


def _sized(verification: Verification) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("pool", no_wrap=True)
    for heading in ("planned", "by its log", "by its threads"):
        table.add_column(heading, justify="right")
    for pool, name in SIZED_POOLS.items():
        observed = verification["observed"].get(pool)
        if isinstance(observed, dict):
            table.add_row(name, str(planned_of(pool, verification["planned"])), *map(_number, observed.values()))
    pools = verification["observed"].get("inter_op_pools")
    if isinstance(pools, list) and len(pools) > 1:
        table.add_row("inter-op, all pools", "", ", ".join(map(str, pools)), "")
    return table


def _others(verification: Verification) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("pool", no_wrap=True)
    table.add_column("threads", justify="right")
    view = verification["view"]
    without = {pool["name"]: str(pool["threads"]) for pool in view["pools_without"]} if view else {}
    if without:
        table.add_column("without the view", justify="right")
    table.add_column("sized by", overflow="fold")
    for pool in (*verification["pools"], *map(openmp_pool, verification["openmp"])):
        threads = [str(pool["threads"])] + ([without.get(pool["name"], "")] if without else [])
        table.add_row(printable(pool["name"]), *threads, pool["sized_by"])
    return table


def _number(threads: object) -> str:
    return "not seen" if threads is None else str(threads)
