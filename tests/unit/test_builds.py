"""The installed TensorFlow and its OpenMP runtimes, from names of directories and headers of libraries."""

from __future__ import annotations

import os
import subprocess

import pytest

from tflaunch.builds import Build, find_build, installed_versions, needed_libraries


@pytest.fixture
def site(tmp_path):
    """Makes a directory for packages: the metadata of some distributions, and libraries linked by a real compiler."""

    def make(*metadata, libraries=None):
        for name in metadata:
            (tmp_path / f"{name}.dist-info").mkdir()
        for path, needed in (libraries or {}).items():
            target = tmp_path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            link(target, needed)
        return str(tmp_path)

    def link(target, needed):
        stubs = tmp_path / "stubs"
        stubs.mkdir(exist_ok=True)
        for name in needed:
            compile_library(stubs / name, "-Wl,-soname," + name)
        compile_library(target, "-Wl,--no-as-needed", f"-L{stubs}", *(f"-l:{name}" for name in needed))

    def compile_library(target, *options):
        command = ["cc", "-shared", "-o", str(target), "-x", "c", os.devnull, "-x", "none", *options]
        subprocess.run(command, check=True)

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

    def test_without_metadata(self, site):
        assert find_build([site(libraries={FRAMEWORK: []})]) == Build("tensorflow", "unknown", (), ())


class TestNeededLibraries:
    """DT_NEEDED as readelf gives it; any other file needs nothing."""

    def test_a_real_library(self):
        import math

        library = math.__file__
        shown = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
        wanted = [line.partition("[")[2].rstrip("]") for line in shown.splitlines() if "(NEEDED)" in line]
        assert needed_libraries(library) == wanted

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

    def test_every_cut_of_a_real_library(self, site, tmp_path):
        site(libraries={"lib.so": ["libfoo.so.1"]})
        whole = (tmp_path / "lib.so").read_bytes()
        for length in range(0, len(whole), 97):
            (tmp_path / "cut.so").write_bytes(whole[:length])
            assert set(needed_libraries(str(tmp_path / "cut.so"))) <= {"libfoo.so.1", ""} | set(
                needed_libraries(str(tmp_path / "lib.so"))
            )

    def test_missing(self):
        assert needed_libraries("/nowhere/lib.so") == []


def test_installed_versions(tmp_path):
    for name in ("tf_nightly-2.22.0.dev1.dist-info", "Other.Name-1.0.egg-info", "no_version.dist-info", "code.py"):
        (tmp_path / name).mkdir()
    assert installed_versions([str(tmp_path)]) == {"tf-nightly": "2.22.0.dev1", "other-name": "1.0", "no-version": ""}
