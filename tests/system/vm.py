"""Machines of vm.sh and vm-arm.sh: what is to run in one, and what came back."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def build(directory: Path) -> None:
    """The single file with the library of the view beside it."""
    command = [sys.executable, str(ROOT / "make_pyz.py"), str(directory)]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def boot(tool: str, environment: Path, built: Iterable[Path], out: Path, options: Iterable[str], command: str) -> None:
    """Boot a machine with tflaunch and the scripts of vm/ in it, run the command there and take what it left."""
    with tempfile.TemporaryDirectory() as job:
        for source in (*built, *(HERE / "vm").iterdir()):
            (Path(job) / source.name).write_bytes(source.read_bytes())
        done = subprocess.run(
            [HERE / tool, "run", "-d", environment, "-j", job, "-o", out, *options, command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,  # it ends itself, after its -w
        )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"


def read(out: Path) -> dict[str, Any]:
    """The files that came back, by name: JSON parsed, other text as it is."""
    return {
        path.name.removesuffix(".json"): json.loads(path.read_text()) if path.suffix == ".json" else path.read_text()
        for path in out.iterdir()
    }


def cpus(text: str) -> set[int]:
    """The CPUs of a list of ranges, as in 0-3,8."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
