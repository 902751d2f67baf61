"""Machines of vm.sh and vm-arm.sh: what is to run in one, and what came back."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shared import run

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
        run([HERE / tool, "run", "-d", environment, "-j", job, "-o", out, *options, command], None)  # ends after -w


def read(out: Path) -> dict[str, Any]:
    """The files that came back, by name: JSON parsed, other text as it is."""
    return {
        path.name.removesuffix(".json"): json.loads(path.read_text()) if path.suffix == ".json" else path.read_text()
        for path in out.iterdir()
    }
