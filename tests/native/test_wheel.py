"""The wheel with and without a C compiler, built and installed as pip does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from missing import missing

from .conftest import ROOT, Native, import_hatch_build

BUILD_SECONDS = 300


def build(directory: Path, compiler: str) -> Path:
    """The wheel of a copy of the sources, built with $CC=compiler in an environment of its own."""
    source = directory / "source"
    source.mkdir()
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "tflaunch", source / "tflaunch", ignore=ignored)
    # What an earlier build left behind must not be taken for the library of this one.
    (source / "tflaunch/libtflaunch_view.so").write_bytes(b"stale")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(directory), str(source)]
    environment = {**Native.environment(), "CC": compiler}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS, cwd=directory
    )
    if "No matching distribution found for hatchling" in done.stderr:
        missing("hatchling cannot be downloaded here")
    assert done.returncode == 0, done.stderr
    (wheel,) = directory.glob("*.whl")
    return wheel


def install(wheel: Path, directory: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(directory), str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)
    assert done.returncode == 0, done.stderr


def run_script(directory: Path, script: str) -> subprocess.CompletedProcess[str]:
    """`tflaunch run --cpus 1` of the installed copy."""
    path = directory / "script.py"
    path.write_text(script)
    environment = {**Native.environment(), "PYTHONPATH": str(directory)}
    command = [sys.executable, "-m", "tflaunch", "run", "--cpus", "1", str(path)]
    # Not in the directory of the sources, which -m would find first.
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60, cwd=directory
    )


SCRIPT = "import os, tflaunch; print(len(os.sched_getaffinity(0)), os.path.dirname(tflaunch.__file__))\n"


def test_with_a_compiler_it_is_one_for_every_python_of_the_platform(native, two_cpus, tmp_path):
    wheel = build(tmp_path, "cc")
    kinds = wheel.name.removesuffix(".whl").split("-")[2:]
    assert kinds[:2] == ["py3", "none"]
    assert kinds[2].startswith("linux_")
    names = zipfile.ZipFile(wheel).namelist()
    assert "tflaunch/libtflaunch_view.so" in names
    assert not [name for name in names if name.endswith(".c")]
    install(wheel, tmp_path / "installed")
    done = run_script(tmp_path / "installed", SCRIPT)
    assert (done.returncode, done.stdout) == (0, f"1 {tmp_path}/installed/tflaunch\n")
    assert "warning" not in done.stderr


def test_without_a_compiler_everything_else_works(two_cpus, tmp_path):
    wheel = build(tmp_path, "/nonexistent/cc --some-flag")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith((".so", ".c"))]
    install(wheel, tmp_path / "installed")
    done = run_script(tmp_path / "installed", SCRIPT)
    allowed = len(os.sched_getaffinity(0))
    assert (done.returncode, done.stdout) == (0, f"{allowed} {tmp_path}/installed/tflaunch\n")
    (warning,) = (line for line in done.stderr.splitlines() if "warning" in line)
    assert "C compiler" in warning


@pytest.mark.parametrize(
    "compiler",
    ["/nonexistent/cc", "'unbalanced", "/etc/passwd", "/etc", "false", "true", "cc --no-such-flag"],
)
def test_a_compiler_that_is_none_is_no_error(tmp_path, monkeypatch, compiler):
    monkeypatch.setenv("CC", compiler)
    library = tmp_path / "library.so"
    assert import_hatch_build().compile_library(ROOT / "tflaunch/view.c", library)
    assert not library.exists()


@pytest.mark.parametrize("compiler", ["", " ", "cc -g", "env LANG=C cc"])
def test_commands_that_are_a_compiler(native, tmp_path, monkeypatch, compiler):
    monkeypatch.setenv("CC", compiler)
    library = tmp_path / "a directory" / "library.so"
    library.parent.mkdir()
    assert import_hatch_build().compile_library(ROOT / "tflaunch/view.c", library) is None
    assert library.exists()


def test_a_library_of_another_platform_is_left_out(native, tmp_path, monkeypatch):
    """A cross compiler in $CC: every program would say at its start that the library cannot be preloaded."""
    script = tmp_path / "cross"
    change = "import sys; file = open(sys.argv[1], 'r+b'); file.seek(18); file.write(b'\\xff\\xff')"
    script.write_text(
        f'#!/bin/sh\ncc "$@" || exit\nwhile [ "$1" != -o ]; do shift; done\nexec {sys.executable} -c "{change}" "$2"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    library = tmp_path / "library.so"
    assert "another platform" in import_hatch_build().compile_library(ROOT / "tflaunch/view.c", library)
    assert not library.exists()
