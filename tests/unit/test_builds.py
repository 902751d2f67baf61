"""The installed TensorFlow and its OpenMP runtimes, from names of directories and headers of libraries."""

from __future__ import annotations

import struct

import pytest
from elftools.elf.elffile import ELFFile

from tflaunch.builds import Build, find_build, installed_versions, needed_libraries


def shared_library(needed):
    """The least ELF file that needs these libraries: header, two segments, dynamic section, names (System V ABI)."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in needed)
    offsets = [names.index(b"\0" + name.encode() + b"\0") + 1 for name in needed]
    dynamic_at = 64 + 2 * 56
    names_at = dynamic_at + 16 * (len(needed) + 2)
    address = 0x1000  # where the file lies in memory
    entries = [(1, offset) for offset in offsets] + [(5, address + names_at), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    size = names_at + len(names)
    header = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, address, address, size, size, 0x1000)
    place = struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, address + dynamic_at, 0, len(dynamic), len(dynamic), 8)
    return header + load + place + dynamic + names


@pytest.fixture
def site(tmp_path):
    """Makes a directory for packages: the metadata of some distributions, and libraries that need others."""

    def make(*metadata, libraries=None):
        for name in metadata:
            (tmp_path / f"{name}.dist-info").mkdir()
        for path, needed in (libraries or {}).items():
            target = tmp_path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(shared_library(needed))
        return str(tmp_path)

    return make


FRAMEWORK = "tensorflow/libtensorflow_framework.so.2"


class TestFindBuild:
    """The distribution, its version, its plug-ins, and the OpenMP runtimes that are linked."""

    def test_stock(self, site):
        path = site("tensorflow_cpu-2.21.0", "numpy-2.1.0", libraries={FRAMEWORK: ["libfoo.so.1"]})
        assert find_build([path]) == Build("tensorflow-cpu", "2.21.0", (), ())

    def test_openmp(self, site):
        path = site("intel_tensorflow-2.14.0", libraries={FRAMEWORK: ["libiomp5.so"]})
        assert find_build([path]) == Build("intel-tensorflow", "2.14.0", (), ("libiomp5",))

    def test_plugin(self, site):
        libraries = {FRAMEWORK: [], "tensorflow-plugins/libplugin.so": ["libgomp.so.1", "libiomp5.so"]}
        path = site("tensorflow_cpu-2.21.0", "zentf-2.21.0.0", libraries=libraries)
        assert find_build([path]) == Build("tensorflow-cpu", "2.21.0", ("zentf",), ("libiomp5", "libgomp"))

    def test_first_on_the_path(self, site, tmp_path):
        path = site("tensorflow-2.16.1", libraries={FRAMEWORK: []})
        (tmp_path / "empty").mkdir()
        assert find_build([str(tmp_path / "empty"), "/nowhere", path]).version == "2.16.1"

    def test_none(self, site):
        assert find_build([site("numpy-2.1.0")]) is None

    def test_without_metadata(self, site, tmp_path):
        path = site(libraries={FRAMEWORK: []})
        assert find_build([path]) is None  # a directory of that name may be anything
        (tmp_path / "tensorflow" / "__init__.py").write_text("raise SystemExit('imported')")
        assert find_build([path]) == Build("tensorflow", "unknown", (), ())


class TestNeededLibraries:
    """DT_NEEDED as an independent reader gives it; any other file needs nothing."""

    def test_a_real_library(self):
        """As pyelftools reads it: a library of a wheel."""
        from scipy.linalg import cython_blas

        with open(cython_blas.__file__, "rb") as file:
            tags = ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
            wanted = [tag.needed for tag in tags]
        assert wanted
        assert needed_libraries(cython_blas.__file__) == wanted

    def test_a_made_up_one(self, tmp_path):
        (tmp_path / "lib.so").write_bytes(shared_library(["libiomp5.so", "libm.so.6"]))
        assert needed_libraries(str(tmp_path / "lib.so")) == ["libiomp5.so", "libm.so.6"]

    def test_a_name_far_behind(self, tmp_path):
        """Large libraries have megabytes of names."""
        (tmp_path / "lib.so").write_bytes(shared_library(["x" * 3_000_000, "libgomp.so.1"]))
        assert "libgomp.so.1" in needed_libraries(str(tmp_path / "lib.so"))

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"text",
            b"\x7fELF",
            b"\x7fELF\x02\x01" + b"\xff" * 58,
            b"\x7fELF\x01\x01" + b"\0" * 200,
            b"\x7fELF\x02\x01" + b"\0" * 300,
        ],
    )
    def test_damaged(self, tmp_path, content):
        (tmp_path / "lib.so").write_bytes(content)
        assert needed_libraries(str(tmp_path / "lib.so")) == []

    def test_every_cut(self, tmp_path):
        whole = shared_library(["libfoo.so.1"])
        for length in range(len(whole)):
            (tmp_path / "cut.so").write_bytes(whole[:length])
            assert all("libfoo.so.1".startswith(name) for name in needed_libraries(str(tmp_path / "cut.so")))

    def test_every_byte_changed(self, tmp_path):
        whole = shared_library(["libfoo.so.1"])
        for position in range(len(whole)):
            (tmp_path / "odd.so").write_bytes(whole[:position] + b"\xff" + whole[position + 1 :])
            needed_libraries(str(tmp_path / "odd.so"))

    def test_missing(self):
        assert needed_libraries("/nowhere/lib.so") == []


def test_installed_versions(tmp_path):
    for name in ("tf_nightly-2.22.0.dev1.dist-info", "Other.Name-1.0.egg-info", "no_version.dist-info", "code.py"):
        (tmp_path / name).mkdir()
    assert installed_versions([str(tmp_path)]) == {"tf-nightly": "2.22.0.dev1", "other-name": "1.0", "no-version": ""}
