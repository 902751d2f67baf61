"""What people read: `explain` in a terminal, and `run --dry-run`.

rich fits the text to the width, wraps it, and colours it only on a terminal (NO_COLOR and FORCE_COLOR are obeyed).
"""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tflaunch import __version__, topology
from tflaunch.cpulist import format_cpulist
from tflaunch.decision import Decision
from tflaunch.environment import BINDING_VARIABLES
from tflaunch.files import Files
from tflaunch.machine import Details
from tflaunch.policy import Plan
from tflaunch.readers import NOT_ASKING, affected_by_view, find_installed, read_by
from tflaunch.text import printable

LABELS = {
    "intra_op": "intra-op",
    "inter_op": "inter-op",
    "omp": "OMP",
    "blas": "BLAS",
    "kmp_blocktime": "KMP blocktime",
    "python_cpu_count": "Python CPU count",
}
ACTION_STYLES = {"set": "green", "keep": "cyan", "replace": "yellow", "unset": "yellow"}

# More rows than this say less than one row of all CPUs.
MAX_PICTURE_ROWS = 16


def print_explanation(decision: Decision, details: Details, files: Files) -> None:
    """Print what was found, a picture of the CPUs, the limit, and each number with its reason."""
    console = Console(highlight=False, emoji=False, markup=False)
    sections = Table.grid(padding=(0, 2, 0, 0))
    sections.add_column(style="bold", no_wrap=True)
    sections.add_column(overflow="fold")
    unicode = console.encoding.lower().startswith("utf")
    for label, content in (
        ("Machine", _machine(decision, details)),
        ("CPUs", _picture(decision, files, allowed="■" if unicode else "#", other="·" if unicode else ".")),
        ("Limit", _limit(decision)),
        ("Plan", _plan(decision)),
        ("View", _view(decision)),
        ("Binding", _binding(decision)),
        ("Environment", _environment(decision)),
        ("Not sized", _not_sized(decision)),
        ("Warnings", _warnings(decision, files)),
    ):
        if content is not None:
            sections.add_row(label, content)
            sections.add_row()
    with console.capture() as capture:
        console.print(f"tflaunch {__version__}\n", style="dim")
        console.print(sections)
    # rich fills lines with blanks up to the width, which nobody wants in a file or a bug report.
    print("\n".join(line.rstrip() for line in capture.get().rstrip().split("\n")))


def dry_run(decision: Decision, argv: list[str]) -> str:
    """The binding, the changes of the environment and the command, as lines for a shell."""
    lines = []
    if decision.binding is not None:
        lines.append(f"# bind: {decision.binding.reason}")
        if decision.binding.cpus:
            argv = ["taskset", "-c", format_cpulist(decision.binding.cpus), *argv]
    lines += [
        f"unset {change.name}  # {change.reason}"
        if change.value is None
        else f"export {change.name}={shlex.quote(change.value)}  # {change.action}: {change.reason}"
        for change in decision.changes
        if change.name not in BINDING_VARIABLES or change.action != "keep"
    ]
    lines.append(f"exec {shlex.join(argv)}")
    # Line feeds are kept: in the quotes of the shell they are those of an argument.
    return "\n".join(map(printable, "\n".join(lines).split("\n")))


def _machine(decision: Decision, details: Details) -> Text:
    machine = decision.machine
    lines = []
    if details.model:
        lines.append(", ".join([printable(details.model), *details.instruction_sets]))
    lines.append(
        f"{_count(len(machine.online), 'CPU')} online ({format_cpulist(machine.online)}), "
        f"{len(machine.allowed)} allowed ({format_cpulist(machine.allowed)})"
    )
    threads = max(len(core) for core in machine.cores)
    shape = [_count(len(machine.cores), "core"), _count(len(details.sockets), "socket")]
    if details.numa_nodes:
        shape.append(_count(len(details.numa_nodes), "NUMA node"))
    shape.append("no SMT" if threads == 1 else f"{threads} threads per core")
    lines.append("of the allowed: " + ", ".join(shape))
    if len(details.cpu_kinds) > 1 or details.cpu_kinds[0].kind != "performance":
        kinds = ", ".join(
            f"{_count(len(kind.cpus), kind.kind + ' CPU')} ({format_cpulist(kind.cpus)})" for kind in details.cpu_kinds
        )
        lines.append(kinds)
    return Text("\n".join(lines))


def _picture(decision: Decision, files: Files, allowed: str, other: str) -> Table:
    """The online CPUs by NUMA node, or by socket where there are none; CPUs of a core stand together."""
    machine = decision.machine
    everything = machine.online | machine.allowed
    rows = {f"node {node}": cpus for node, cpus in topology.read_numa_nodes(files, everything).items()}
    if not rows:
        rows = {f"socket {socket}": cpus for socket, cpus in topology.read_sockets(files, everything).items()}
    if len(rows) > MAX_PICTURE_ROWS or everything.difference(*rows.values()) or len(rows) == 1:
        rows = {"": everything}
    cores = topology.read_cores(files, everything)
    has_smt = any(len(core) > 1 for core in cores)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, cpus in rows.items():
        groups = [sorted(core & cpus) for core in sorted(cores, key=min) if core & cpus]
        if not has_smt:
            singles = sorted(cpus)
            groups = [singles[start : start + 8] for start in range(0, len(singles), 8)]
        picture = Text()
        for group in groups:
            for cpu in group:
                is_allowed = cpu in machine.allowed
                picture.append(allowed if is_allowed else other, style="green" if is_allowed else "dim")
            picture.append(" ")
        table.add_row(label, picture) if label else table.add_row(picture)
    legend = f"{allowed} allowed" + (f"  {other} not allowed" if everything - machine.allowed else "")
    legend += "; a group is a core" if has_smt else "; each is a core" + ("" if len(everything) <= 8 else ", in eights")
    table.add_row(*([""] if len(rows) > 1 else []), Text(legend, style="dim"))
    return table


def _limit(decision: Decision) -> Text:
    limit = decision.limit
    lines = [f"{limit.cpus} CPU{'' if str(limit.cpus) == '1' else 's'}: {limit.reason}"]
    lines += [
        f"{reading.source}{'' if reading.cpus is None else f' = {reading.cpus} CPUs'}"
        for reading in limit.quota.readings
        if reading.source not in limit.reason
    ]
    text = Text("\n".join(lines))
    text.stylize("bold", 0, len(lines[0].partition(":")[0]))
    return text


def _plan(decision: Decision) -> Table:
    table = _grid()
    for name in Plan._fields:
        number = getattr(decision.plan, name)
        table.add_row(LABELS[name], Text(str(number.value), style="bold", justify="right"), number.reason)
    return table


def _view(decision: Decision) -> Text:
    view = decision.view
    if view.cpus is None:
        return Text(f"none: {view.reason}")
    text = Text(
        f"{_count(view.cpus, 'CPU')} {view.reason}\nseen by {', '.join(affected_by_view(find_installed()))}\n"
        f"not by {NOT_ASKING}"
    )
    text.stylize("bold", 0, len(_count(view.cpus, "CPU")))
    return text


def _binding(decision: Decision) -> Text | None:
    if decision.binding is None:
        return None
    cpus = format_cpulist(decision.binding.cpus)
    return Text(f"to {cpus}: {decision.binding.reason}" if cpus else decision.binding.reason)


def _environment(decision: Decision) -> Table:
    installed = find_installed()
    table = _grid()
    unread = []
    for change in decision.shown:
        setting = printable(change.name if change.value is None else f"{change.name}={change.value}")
        if change.name in BINDING_VARIABLES:
            table.add_row(_action(change.action), setting, change.reason)
            continue
        readers = read_by(change.name, installed)
        if change.action == "set" and not readers:
            unread.append(setting)
            continue
        note = "read by " + ", ".join(readers) if readers else "nothing installed here reads it"
        table.add_row(_action(change.action), setting, note if change.action == "set" else f"{change.reason}; {note}")
    if not unread:
        return table
    section = Table.grid()
    section.add_row(table)
    rest = _grid()
    rest.add_row(_action("set"), "for what is not installed here: " + ", ".join(unread))
    section.add_row(rest)
    return section


def _action(action: str) -> Text:
    return Text(action, style=ACTION_STYLES[action])


def _not_sized(decision: Decision) -> Text | None:
    """The pools that no variable sizes, where that makes a difference (measured: docs/policy.md)."""
    seen = decision.seen_cpus
    if decision.limit.cpus.ceil() >= seen:
        return None
    return Text(
        f"tf.data makes {seen} threads for each iterator and XLA {seen} for its host executor, one for each CPU "
        "the process sees. No variable changes that; the view (--view) does, and in the script "
        "options.threading.private_threadpool_size of a tf.data.Dataset does."
    )


def _warnings(decision: Decision, files: Files) -> Table | None:
    problems = (*files.problems(), *decision.problems)
    if not problems:
        return None
    table = _grid()
    for problem in problems:
        table.add_row(Text("!", style="yellow"), printable(problem.message))
    return table


def _grid() -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=False, overflow="fold")
    table.add_column(overflow="fold")
    return table


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
