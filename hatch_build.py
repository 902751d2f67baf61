"""Builds the library of the view (tflaunch/view.c) into the wheel, where there is a C compiler.

The library is plain C and knows no Python, so one wheel serves every Python of the platform. Without a compiler the
wheel has no library, and tflaunch says so when a view would help.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

SOURCE = "tflaunch/view.c"
LIBRARY = "tflaunch/libtflaunch_view.so"
FLAGS = ["-std=gnu11", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden"]
# With a function missing, no program at all would start: defs makes that an error of the build.
FLAGS += ["-Wl,-z,relro,-z,now,-z,defs"]
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
        # Programs may be running with the library of an earlier build, so the new one takes its place at once.
        new = library.with_suffix(".new")
        error = compile_library(Path(self.root, SOURCE), new)
        if error:
            library.unlink(missing_ok=True)  # it may be of another source
            self.app.display_warning(f"the view is left out, everything else works: {error}")
            return
        new.replace(library)
        build_data["pure_python"] = False
        build_data["artifacts"].append(LIBRARY)
        # The platform as pip names it: that of this Python, which may be of 32 bits on a kernel of 64.
        platform = next(tag for tag in platform_tags() if tag.startswith("linux_"))
        build_data["tag"] = f"py3-none-{platform}"


def compile_library(source: Path, library: Path) -> str | None:
    """Compile with $CC, else cc; the reason where that is not possible or makes no library of this platform."""
    errors = ""
    try:
        compiler = shlex.split(os.environ.get("CC") or "cc") or ["cc"]
        for libdl in LIBDL:
            command = [*compiler, *FLAGS, "-o", str(library), str(source), *libdl]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode == 0:
                if platform_of(library) == platform_of(Path(sys.executable)):
                    return None
                library.unlink()
                return f"{shlex.join(compiler)} compiles for another platform"
            errors = done.stderr.strip()
    except (OSError, ValueError) as error:
        return f"there is no C compiler to be used (CC={os.environ.get('CC', '')}): {error}"
    return f"{shlex.join(compiler)} failed: {errors}"


def platform_of(binary: Path) -> tuple[bytes, bytes]:
    """Word size and byte order, and machine: bytes 4 and 5 and 18 and 19 of an ELF file, elf(5)."""
    with binary.open("rb") as file:
        header = file.read(20)
    return header[4:6], header[18:20]
