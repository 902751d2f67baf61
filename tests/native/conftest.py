"""The library of the view, compiled as the wheel's is, under the C programs beside these tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import patch

import pytest
from missing import missing

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

# Variables that change what the programs see or how they run.
FOREIGN_PREFIXES = ("COV", "TFLAUNCH_", "MACHINE_", "LD_", "MALLOC_", "ASAN_", "UBSAN_", "TSAN_", "LSAN_", "OMP_")

# No program takes this long unless it hangs.
SECONDS = 60


def import_hatch_build() -> ModuleType:
    """hatch_build.py, which asks hatchling for a base class; the tests need none."""
    interface = SimpleNamespace(BuildHookInterface=object)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    with patch.dict(sys.modules, {"hatchling.builders.hooks.plugin.interface": interface}):
        spec.loader.exec_module(module)
    return module


def cpulist(cpus: object) -> str:
    """The numbers as the kernel writes them: "0-3,8"."""
    words: list[str] = []
    first = last = None
    for cpu in [*sorted(cpus), None]:
        if first is None:
            first = cpu
        elif cpu is None or cpu != last + 1:
            words.append(str(first) if first == last else f"{first}-{last}")
            first = cpu
        last = cpu
    return ",".join(words)


def numbers(text: str) -> set[int]:
    """The other way round, for the kernel's own word."""
    cpus: set[int] = set()
    for word in text.split(","):
        low, _, high = word.partition("-")
        cpus.update(range(int(low), int(high or low) + 1))
    return cpus


def told(mask: set[int], count: int, first: object = ()) -> set[int]:
    """What the view is to tell of a mask: so many CPUs of it, those of `first` before others."""
    return set(sorted(mask, key=lambda cpu: (cpu not in first, cpu))[:count])


class Native:
    """Compiles, and runs programs under the view, on this machine or on an emulated one behind it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        if shutil.which("cc") is None:
            missing("there is no C compiler")
        self.library = str(directory / "libtflaunch_view.so")
        error = import_hatch_build().compile_library(ROOT / "tflaunch/view.c", Path(self.library))
        assert error is None
        self.machine = self.compile("machine.c", "-shared", "-fPIC")

    def compile(self, source: str | Path, *flags: str, compiler: str = "cc") -> str:
        """Compile a program or library of tests/native (once for each set of flags); returns its path."""
        name = "".join(character for character in f"{source} {flags} {compiler}" if character.isalnum())
        output = self.directory / name[-200:]
        if not output.exists():
            sources = [HERE / source]
            command = [compiler, "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-result", "-o", output, *sources]
            done = subprocess.run([*command, *flags], capture_output=True, text=True, check=False, timeout=SECONDS)
            assert done.returncode == 0, done.stderr
        return str(output)

    @staticmethod
    def environment() -> dict[str, str]:
        """The environment of the tests without what changes the answers."""
        return {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_PREFIXES)}

    def run(
        self,
        program: str,
        *arguments: object,
        count: object = None,
        first: str | None = None,
        mask: object = None,
        size: int | None = None,
        preload: tuple[str, ...] | None = None,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end. count, first: those of the view; mask, size: the allowed CPUs and the size of the machine
        that is emulated; preload: other libraries than the view and, where one is emulated, the machine."""
        environment = {**self.environment(), **variables}
        libraries = [self.library]
        if mask is not None:
            libraries.append(self.machine)
            environment["MACHINE_MASK"] = cpulist(mask)
            environment["MACHINE_CPUS"] = str(size or max(mask) + 1)
            environment["MACHINE_LIBRARY"] = self.machine
        if count is not None:
            environment["TFLAUNCH_VIEW_CPUS"] = str(count)
        if first is not None:
            environment["TFLAUNCH_VIEW_FIRST"] = first
        environment["LD_PRELOAD"] = ":".join(libraries if preload is None else preload)
        return subprocess.run(
            [program, *map(str, arguments)],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
            timeout=SECONDS,
        )


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    """The compiler and the library."""
    return Native(tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="session")
def two_cpus() -> list[int]:
    """Two CPUs that this process may use: with a view of one, a mask of both is larger than the view."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        missing("this process may use one CPU only")
    return allowed[:2]
