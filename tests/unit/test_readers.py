"""Who reads a variable: found by the metadata of what is installed, and by nothing else."""

from __future__ import annotations

import sys

import pytest

from tflaunch.builds import Build
from tflaunch.environment import VARIABLES
from tflaunch.readers import DISTRIBUTIONS, Installed, find_installed, read_by

OPENMP = [variable.name for variable in VARIABLES if variable.name.startswith(("OMP_", "KMP_"))]


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A directory that is all there is on the interpreter's path."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


class TestInstalledDistributions:
    """The names in a directory's *.dist-info and *.egg-info, normalized; nothing is imported or opened for them."""

    @pytest.mark.parametrize(
        ("entry", "name"),
        [
            ("numpy-2.1.0.dist-info", "numpy"),
            ("tensorflow_cpu-2.21.0.dist-info", "tensorflow-cpu"),
            ("scikit_learn-1.5.2.dist-info", "scikit-learn"),
            ("intel_extension_for_tensorflow-2.15.0.3.dist-info", "intel-extension-for-tensorflow"),
            ("NumExpr-2.10.1.dist-info", "numexpr"),
            ("numba-0.60.0-py3.12.egg-info", "numba"),
            ("mkl.egg-info", "mkl"),
            ("ruamel.yaml-0.18.6.dist-info", "ruamel-yaml"),
        ],
    )
    def test_name(self, site, entry, name):
        (site / entry).mkdir()
        assert find_installed().distributions == {name}

    def test_packages_without_metadata_do_not_count(self, site):
        (site / "numpy").mkdir()
        (site / "numpy" / "__init__.py").write_text("raise SystemExit('imported')")
        (site / "torch.py").write_text("raise SystemExit('imported')")
        (site / "dist-info").mkdir()
        assert find_installed().distributions == frozenset()

    def test_every_directory_of_the_path_counts_and_odd_ones_do_not_hurt(self, site, tmp_path, monkeypatch):
        first, second = tmp_path / "first", tmp_path / "second"
        (first / "numpy-2.1.0.dist-info").mkdir(parents=True)
        (second / "mkl-2024.2.dist-info").mkdir(parents=True)
        archive = tmp_path / "library.zip"
        archive.write_bytes(b"PK")
        monkeypatch.setattr(sys, "path", [str(tmp_path / "missing"), str(archive), str(first), str(second)])
        assert find_installed().distributions == {"numpy", "mkl"}

    def test_an_empty_entry_is_the_working_directory(self, site, monkeypatch):
        (site / "numpy-2.1.0.dist-info").mkdir()
        monkeypatch.setattr(sys, "path", [""])
        monkeypatch.chdir(site)
        assert find_installed().distributions == {"numpy"}

    def test_nothing_is_imported(self, site):
        """Importing NumPy makes the very pool that its variable should have sized."""
        (site / "tflaunch_probe-1.0.dist-info").mkdir()
        (site / "tflaunch_probe.py").write_text("")
        for name in DISTRIBUTIONS:
            (site / f"{name.replace('-', '_')}-1.0.dist-info").mkdir()
        before = set(sys.modules)
        installed = find_installed()
        assert {"tflaunch-probe", *DISTRIBUTIONS} == installed.distributions
        for variable in VARIABLES:
            read_by(variable.name, installed)
        assert set(sys.modules) == before


class TestReadBy:
    """The installed readers of a variable as people call them, each once; nobody where there is none."""

    @pytest.mark.parametrize(
        "variable", [variable.name for variable in VARIABLES if variable.name != "PYTHON_CPU_COUNT"]
    )
    def test_nobody(self, variable):
        assert read_by(variable, Installed(frozenset(), None)) == []
        assert read_by(variable, Installed(frozenset({"requests", "flask"}), None)) == []

    @pytest.mark.parametrize("name", ["tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu"])
    def test_stock_tensorflow_reads_its_two_variables_and_no_openmp(self, name):
        installed = Installed(frozenset({name}), Build(name, "2.21.0", (), ()))
        assert read_by("TF_NUM_INTRAOP_THREADS", installed) == ["TensorFlow"]
        assert read_by("TF_NUM_INTEROP_THREADS", installed) == ["TensorFlow"]
        assert len(OPENMP) == 2
        for variable in OPENMP:
            assert read_by(variable, installed) == []

    @pytest.mark.parametrize(
        ("plugins", "openmp", "omp_readers", "kmp_readers"),
        [
            ((), ("libiomp5",), ["intel-tensorflow (libiomp5)"], ["intel-tensorflow (libiomp5)"]),
            ((), ("libgomp",), ["intel-tensorflow (libgomp)"], []),
            (("zentf",), ("libiomp5", "libgomp"), ["zentf (libiomp5, libgomp)"], ["zentf (libiomp5, libgomp)"]),
        ],
    )
    def test_builds_linked_with_openmp_read_it(self, plugins, openmp, omp_readers, kmp_readers):
        installed = Installed(frozenset(), Build("intel-tensorflow", "2.14.0", plugins, openmp))
        assert read_by("TF_NUM_INTRAOP_THREADS", installed) == ["TensorFlow"]
        assert read_by("OMP_NUM_THREADS", installed) == omp_readers
        assert read_by("KMP_BLOCKTIME", installed) == kmp_readers

    @pytest.mark.parametrize(
        ("variable", "installed", "readers"),
        [
            ("OMP_NUM_THREADS", {"numpy"}, ["NumPy (OpenBLAS)"]),
            ("OPENBLAS_NUM_THREADS", {"numpy"}, ["NumPy (OpenBLAS)"]),
            ("MKL_NUM_THREADS", {"numpy"}, []),
            ("KMP_BLOCKTIME", {"numpy", "tensorflow-cpu", "scikit-learn"}, []),
            ("LOKY_MAX_CPU_COUNT", {"joblib"}, ["joblib"]),
            ("NUMBA_NUM_THREADS", {"numba"}, ["Numba"]),
            ("NUMEXPR_NUM_THREADS", {"numexpr"}, ["NumExpr"]),
        ],
    )
    def test_readers(self, variable, installed, readers):
        assert read_by(variable, Installed(frozenset(installed), None)) == readers

    def test_every_variable_has_a_reader_somewhere(self):
        installed = Installed(frozenset(DISTRIBUTIONS), Build("intel-tensorflow", "2.14.0", (), ("libiomp5",)))
        unread = {variable.name for variable in VARIABLES if not read_by(variable.name, installed)}
        # Apple's Accelerate and BLIS come with builds of NumPy that their metadata does not tell apart.
        assert unread <= {"BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "PYTHON_CPU_COUNT"}

    @pytest.mark.parametrize(
        ("version", "readers"),
        [((3, 12, 9), []), ((3, 13, 0), ["Python (os.cpu_count)"]), ((3, 14, 1), ["Python (os.cpu_count)"])],
    )
    def test_python_reads_its_variable_from_3_13_on(self, version, readers, monkeypatch):
        monkeypatch.setattr(sys, "version_info", version)
        assert read_by("PYTHON_CPU_COUNT", Installed(frozenset(), None)) == readers
