"""Which TensorFlow is installed, and which OpenMP runtime it is linked with, without importing it.

The stock wheel is linked with none and reads no OMP_* or KMP_* variable. Builds made with OpenMP need libiomp5, which
reads both, and plug-ins (zentf) bring it along. Which one it is stands in the dynamic section of the shared libraries,
as DT_NEEDED entries (System V ABI, chapter 5).
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Sequence
from typing import BinaryIO

from tflaunch._namedtuple import NamedTuple

# The distributions that bring the package tensorflow.
TENSORFLOW_DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "intel-tensorflow", "tf-nightly", "tf-nightly-cpu")
# Those that plug themselves into it: the libraries in the directory tensorflow-plugins.
PLUGIN_DISTRIBUTIONS = ("zentf", "intel-extension-for-tensorflow")
LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2", "python/_pywrap_tensorflow_internal.so")
OPENMP_RUNTIMES = ("libiomp5", "libomp", "libgomp")

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NULL, DT_NEEDED, DT_STRTAB = 0, 1, 5
# The dynamic section and a name in it are small; a damaged file may claim anything.
MAX_SECTION = 1 << 16
MAX_NAME = 256


class Build(NamedTuple):
    """The installed TensorFlow: its distribution and version, its plug-ins, and the OpenMP runtimes they need."""

    distribution: str
    version: str
    plugins: tuple[str, ...]
    openmp: tuple[str, ...]


def find_build(path: Sequence[str] | None = None) -> Build | None:
    """The TensorFlow that `import tensorflow` takes from the path (sys.path by default); None where there is none."""
    for directory in sys.path if path is None else path:
        versions = installed_versions([directory])
        found = next((name for name in TENSORFLOW_DISTRIBUTIONS if name in versions), None)
        if found is None and not os.path.isfile(os.path.join(directory, "tensorflow", "__init__.py")):
            continue
        libraries = [os.path.join(directory, "tensorflow", name) for name in LIBRARIES]
        plugin_directory = os.path.join(directory, "tensorflow-plugins")
        plugins = tuple(name for name in PLUGIN_DISTRIBUTIONS if name in versions)
        if plugins:
            libraries += [os.path.join(plugin_directory, name) for name in _names(plugin_directory)]
        needed = {name for library in libraries for name in needed_libraries(library)}
        openmp = tuple(runtime for runtime in OPENMP_RUNTIMES if any(name.startswith(runtime) for name in needed))
        return Build(found or "tensorflow", versions.get(found or "", "unknown"), plugins, openmp)
    return None


def installed_versions(path: Sequence[str]) -> dict[str, str]:
    """Normalized name and version of each distribution, from the names of their metadata directories."""
    versions: dict[str, str] = {}
    for directory in path:
        for entry in _names(directory or "."):
            stem, dot, suffix = entry.rpartition(".")
            if dot and suffix in ("dist-info", "egg-info"):
                name, _, rest = stem.partition("-")
                versions.setdefault(name.lower().replace("_", "-").replace(".", "-"), rest.partition("-")[0])
    return versions


def needed_libraries(library: str) -> list[str]:
    """The names of the shared libraries that a 64-bit little-endian ELF file needs; empty for any other file."""
    try:
        with open(library, "rb") as file:
            return _read_needed(file)
    except (OSError, OverflowError, struct.error, ValueError):
        return []


def _read_needed(file: BinaryIO) -> list[str]:
    header = file.read(64)
    if header[:6] != b"\x7fELF\x02\x01":
        return []
    (program_offset,) = struct.unpack_from("<Q", header, 32)
    entry_size, entries = struct.unpack_from("<HH", header, 54)
    file.seek(program_offset)
    table = file.read(entry_size * entries)
    segments = []
    for index in range(entries):
        kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", table, index * entry_size)
        segments.append((kind, offset, address, size))
    dynamic = next(((offset, size) for kind, offset, _, size in segments if kind == PT_DYNAMIC), None)
    if dynamic is None:
        return []
    file.seek(dynamic[0])
    section = file.read(min(dynamic[1], MAX_SECTION))
    names, strings = [], 0
    for tag, value in struct.iter_unpack("<QQ", section[: len(section) // 16 * 16]):
        if tag == DT_NULL:
            break
        if tag == DT_NEEDED:
            names.append(value)
        elif tag == DT_STRTAB:
            strings = value
    # The table of strings is given by its address in memory; the segment that holds it says where it is in the file.
    start = next(
        (
            strings - address + offset
            for kind, offset, address, size in segments
            if kind == PT_LOAD and address <= strings < address + size
        ),
        None,
    )
    if start is None:
        return []
    found = []
    for name in names:
        file.seek(start + name)
        found.append(file.read(MAX_NAME).partition(b"\0")[0].decode("ascii", "replace"))
    return [name for name in found if ".so" in name]


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
