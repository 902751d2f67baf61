"""Makes tflaunch.pyz, the single-file form, with the library of the view beside it; both are copied together.

    .venv/bin/python make_pyz.py [DIRECTORY]    # where the files are put: dist, if nothing is said

`python3 tflaunch.pyz run`, `explain`, `env` and `verify` need nothing but Linux and Python 3.10 or newer: what they
import is inside, and all of it is plain Python. `verify` looks at the TensorFlow of the Python that runs it. To build
the file takes a Python with pip, as in a virtual environment, and a C compiler, without which the view is left out.

Bytecode is of one version of Python, and that of the Python which builds is inside. Others work too, but compile what
they import at each start, which takes about three times as long: build with the version that will run it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent
# All that pip needs to build the project.
SOURCES = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "tflaunch")
LIBRARY = "libtflaunch_view.so"
# Not needed on Linux, and psutil is no plain Python.
LEFT_OUT = ("psutil", "py-cpuinfo")
# Older Pythons stop here, before they see syntax that they do not know.
MAIN = """\
import sys

if sys.version_info < (3, 10):
    sys.stderr.write("tflaunch: error: this is Python %d.%d\\n" % sys.version_info[:2])
    sys.stderr.write("hint: start tflaunch.pyz with Python 3.10 or newer\\n")
    sys.exit(125)

from tflaunch.main import main

sys.exit(main())
"""


def main() -> None:
    """Build in a directory that is removed again, so that nothing is left beside the sources."""
    parser = argparse.ArgumentParser(description="Makes tflaunch.pyz and puts the library of the view beside it.")
    parser.add_argument("directory", nargs="?", type=Path, default=Path("dist"), help="where to (default: dist)")
    directory = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        content = Path(temporary, "content")
        install(content, Path(temporary, "source"))
        library = directory / LIBRARY
        library.unlink(missing_ok=True)  # one of an earlier build may be in use; it must not be written into
        built = content / "tflaunch" / LIBRARY
        if built.exists():
            shutil.move(built, library)
        prepare(content)
        write(content, directory / "tflaunch.pyz")
    print(directory / "tflaunch.pyz", library if library.exists() else "(without the view)")


def install(content: Path, source: Path) -> None:
    """tflaunch and what it imports on Linux, as pip installs them."""
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.new"))
        else:
            shutil.copy(ROOT / name, source)
    pip_install(content, "--no-deps", str(source))
    (project,) = importlib.metadata.distributions(path=[str(content)])
    needed = [
        requirement
        for requirement in project.requires or []
        if "extra ==" not in requirement and re.match(r"[\w.-]+", requirement)[0] not in LEFT_OUT
    ]
    pip_install(content, *needed)


def pip_install(content: Path, *what: str) -> None:
    """Without the bytecode of pip, which holds the time of its source."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--target", str(content), *what]
    subprocess.run(command, check=True)  # noqa: S603


def prepare(content: Path) -> None:
    """Remove what is not wanted, and compile what is."""
    for path in list(content.rglob("*")):
        if path.is_file() and not is_wanted(path.relative_to(content).as_posix()):
            path.unlink()
    # Not compared with the source when it is loaded: its time is not kept. Python 3.10 writes sets by their hashes.
    options = ["-q", "-b", "--invalidation-mode", "unchecked-hash", "-s", str(content)]
    command = [sys.executable, "-m", "compileall", *options, str(content)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S603


def is_wanted(name: str) -> bool:
    """The modules; of the metadata what says whose they are, and under which licence."""
    package, _, rest = name.partition("/")
    if package.endswith(".dist-info"):
        return rest == "METADATA" or "license" in rest.lower()
    if name.startswith("pygments/lexers/") and not name.startswith("pygments/lexers/_"):
        return False  # 250 languages: no command shows source code, and a start reads all names
    return name.endswith(".py")


def write(content: Path, archive: Path) -> None:
    """The archive; the same bytes from the same files, so in a fixed order and with no time of day."""
    new = archive.with_suffix(".new")
    with new.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w") as zip_file:
            for path in sorted(content.rglob("*")):
                if path.is_file():
                    add(zip_file, path.relative_to(content).as_posix(), path.read_bytes())
            add(zip_file, "__main__.py", MAIN.encode())
    new.chmod(0o755)
    new.replace(archive)


def add(zip_file: zipfile.ZipFile, name: str, data: bytes) -> None:
    """A file that every user may read."""
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.external_attr = 0o100644 << 16
    zip_file.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    main()
