"""The document of `explain --json`: stable, schema 1; fields may be added."""

from __future__ import annotations

from typing import TypedDict

from tflaunch.cpulist import format_cpulist
from tflaunch.decision import Decision
from tflaunch.environment import BINDING_VARIABLES
from tflaunch.files import Files
from tflaunch.machine import Details
from tflaunch.policy import Plan
from tflaunch.readers import affected_by_view, find_installed, read_by


class CpuKindDocument(TypedDict):
    """CPUs of one kind; cores counts those with a CPU among them."""

    kind: str
    cpus: str
    cores: int


class MachineDocument(TypedDict):
    """CPUs are lists such as "0-3,8"; everything but online_cpus counts allowed CPUs only."""

    online_cpus: str
    allowed_cpus: str
    cores: int
    sockets: int
    threads_per_core: int
    numa_nodes: dict[str, str]
    cpu_kinds: list[CpuKindDocument]
    model: str | None
    instruction_sets: list[str]


class ReadingDocument(TypedDict):
    """One level of the hierarchy: its file, and the quota in CPUs, null for none."""

    source: str
    cpus: float | None


class LimitDocument(TypedDict):
    """quota_cpus and cpus in CPUs; bound_by is "quota", "affinity" or "option"."""

    cgroup_version: int | None
    quota_cpus: float | None
    quota_source: str | None
    cpus: float
    bound_by: str
    reason: str
    readings: list[ReadingDocument]


class NumberDocument(TypedDict):
    """A planned number."""

    value: int
    reason: str


class ViewDocument(TypedDict):
    """cpus: how many CPUs the program sees, null for all that are allowed; affects: who is answered by the view."""

    cpus: int | None
    library: str | None
    reason: str
    affects: list[str]


class BindingDocument(TypedDict):
    """cpus: what the program is bound to, null where there is nothing to bind."""

    cpus: str | None
    reason: str


class VariableDocument(TypedDict):
    """action is "set", "keep", "replace" or "unset"; value is null when it is unset."""

    name: str
    value: str | None
    action: str
    reason: str
    read_by: list[str]


class ProblemDocument(TypedDict):
    """A warning; code is stable, message is for people."""

    code: str
    message: str


class Document(TypedDict):
    """The whole document; binding is null where it was not asked for."""

    schema: int
    machine: MachineDocument
    limit: LimitDocument
    plan: dict[str, NumberDocument]
    view: ViewDocument
    binding: BindingDocument | None
    environment: list[VariableDocument]
    warnings: list[ProblemDocument]


def make_document(decision: Decision, details: Details, files: Files) -> Document:
    """The document."""
    machine, limit = decision.machine, decision.limit
    installed = find_installed()
    return {
        "schema": 1,
        "machine": {
            "online_cpus": format_cpulist(machine.online),
            "allowed_cpus": format_cpulist(machine.allowed),
            "cores": len(machine.cores),
            "sockets": len(details.sockets),
            "threads_per_core": max(len(core) for core in machine.cores),
            "numa_nodes": {str(node): format_cpulist(cpus) for node, cpus in details.numa_nodes.items()},
            "cpu_kinds": [
                {
                    "kind": kind.kind,
                    "cpus": format_cpulist(kind.cpus),
                    "cores": sum(1 for core in machine.cores if core & kind.cpus),
                }
                for kind in details.cpu_kinds
            ],
            "model": details.model,
            "instruction_sets": list(details.instruction_sets),
        },
        "limit": {
            "cgroup_version": limit.quota.version,
            "quota_cpus": limit.quota.cpus.as_float() if limit.quota.cpus else None,
            "quota_source": limit.quota.source,
            "cpus": limit.cpus.as_float(),
            "bound_by": limit.bound_by,
            "reason": limit.reason,
            "readings": [
                {"source": reading.source, "cpus": reading.cpus.as_float() if reading.cpus else None}
                for reading in limit.quota.readings
            ],
        },
        "plan": {
            name: {"value": getattr(decision.plan, name).value, "reason": getattr(decision.plan, name).reason}
            for name in Plan._fields
        },
        "view": {
            "cpus": decision.view.cpus,
            "library": decision.view.library,
            "reason": decision.view.reason,
            "affects": [] if decision.view.cpus is None else affected_by_view(installed),
        },
        "binding": decision.binding
        and {"cpus": format_cpulist(decision.binding.cpus) or None, "reason": decision.binding.reason},
        "environment": [
            {
                "name": change.name,
                "value": change.value,
                "action": change.action,
                "reason": change.reason,
                "read_by": BINDING_READERS if change.name in BINDING_VARIABLES else read_by(change.name, installed),
            }
            for change in decision.changes
        ],
        "warnings": [
            {"code": problem.code, "message": problem.message} for problem in (*files.problems(), *decision.problems)
        ],
    }


BINDING_READERS = ["OpenMP runtimes"]
