"""Builds the library of the view (tflaunch/view.c) into the wheel, where there is a C compiler.

The library is plain C and knows no Python, so one wheel serves every Python of the platform. Without a compiler the
wheel has no library, and tflaunch says so when a view would help.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "tflaunch/view.c"
LIBRARY = "tflaunch/libtflaunch_view.so"
FLAGS = ["-std=gnu11", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden", "-Wl,-z,relro,-z,now"]
# dlsym is in libdl of older C libraries. Newer ones keep an empty libdl.so.2 for those who need it by name, and a
# library that does runs on both.
LIBDL = (["-Wl,--no-as-needed", "-l:libdl.so.2"], ["-ldl"])


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling before the wheel is made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and mark the wheel as one of this platform."""
        if self.target_name != "wheel" or not sys.platform.startswith("linux"):
            return
        library = Path(self.root, LIBRARY)
        # What an earlier build left may be of another source.
        library.unlink(missing_ok=True)
        error = compile_library(Path(self.root, SOURCE), library)
        if error:
            self.app.display_warning(f"the view is left out, everything else works: {error}")
            return
        build_data["pure_python"] = False
        build_data["artifacts"].append(LIBRARY)
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def compile_library(source: Path, library: Path) -> str | None:
    """Compile with $CC, else cc; the reason where that is not possible."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        return f"there is no C compiler {compiler[0]!r}"
    errors = ""
    for libdl in LIBDL:
        command = [*compiler, *FLAGS, "-o", str(library), str(source), *libdl]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return None
        errors = done.stderr.strip()
    return f"{shlex.join(compiler)} failed: {errors}"
