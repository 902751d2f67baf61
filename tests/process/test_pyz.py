"""The single-file form: built once by its own command, started by Pythons that have no package installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from hashlib import sha256
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest
from missing import missing

ROOT = Path(__file__).parents[2]
NAMES = ["libtflaunch_view.so", "tflaunch.pyz"]
BUILD_SECONDS = 300
SECONDS = 60
NOBODY = 65534
LOOK = (
    "import json, os, sys",
    "facts = {name: os.environ.get(name) for name in ('OMP_NUM_THREADS', 'LD_PRELOAD')}",
    "facts.update(python=sys.executable, seen=len(os.sched_getaffinity(0)), argv=sys.argv[1:])",
    "print(json.dumps(facts))",
    "sys.exit(7)",
)


@pytest.fixture(scope="session")
def interpreters():
    """Version and path of each interpreter here: that of the tests, those of pyenv and of the system."""
    found = []
    others = [*Path.home().glob(".pyenv/versions/*/bin/python"), *Path("/usr/bin").glob("python3.*")]
    for path in [sys.executable, *map(str, others)]:
        if re.fullmatch(r"python(3(\.\d+)?)?", Path(path).name):
            code = "import sys; print('%d %d' % sys.version_info[:2])"
            done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                found.append((tuple(map(int, done.stdout.split())), path))
    return found


@pytest.fixture(scope="session")
def build():
    """Build into a directory of its own, which every user can read."""
    directories = []

    def run():
        directory = Path(tempfile.mkdtemp())
        directories.append(directory)
        command = [sys.executable, str(ROOT / "make_pyz.py"), str(directory)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS, cwd=directory
        )
        if "No matching distribution found" in done.stderr:
            missing("packages cannot be downloaded here")
        assert done.returncode == 0, done.stderr
        directory.chmod(0o755)
        return directory

    yield run
    for directory in directories:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def directory(build):
    """The directory with both files."""
    if shutil.which("cc") is None:
        missing("there is no C compiler")
    return build()


@pytest.fixture
def pyz(directory, environment, tmp_path):
    """Run the single file to its end, with a Python that sees no installed package (-S)."""

    def run(*arguments, python=sys.executable, archive=directory / "tflaunch.pyz", **keywords):
        settings = {"env": environment, "cwd": tmp_path, "stdin": subprocess.DEVNULL, "timeout": SECONDS, **keywords}
        command = [python, "-S", str(archive), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, **settings)

    return run


@pytest.mark.parametrize("version", [(3, 10), (3, 11), (3, 12), (3, 13)], ids="{0[0]}.{0[1]}".format)
class TestEveryPython:
    @pytest.fixture
    def python(self, version, interpreters):
        return next((path for found, path in interpreters if found == version), None) or missing(
            f"Python {version} is not installed"
        )

    def test_run(self, pyz, python, script, directory):
        done = pyz("run", "--view", "on", "--cpus", "1", script(*LOOK), "--cpus", "x", python=python)
        assert done.returncode == 7, done.stderr
        facts = json.loads(done.stdout)
        assert facts["OMP_NUM_THREADS"] == "1"
        assert facts["argv"] == ["--cpus", "x"]
        assert os.path.samefile(facts["python"], python)
        assert facts["LD_PRELOAD"] == str(directory / "libtflaunch_view.so")
        assert facts["seen"] == 1
        assert done.stderr.startswith("tflaunch: 1 CPU ")
        assert done.stderr.count("\n") == 1

    def test_run_without_any_option(self, pyz, python, script):
        done = pyz("run", script(*LOOK), python=python)
        assert done.returncode == 7, done.stderr
        assert done.stderr.count("\n") == 1

    def test_explain(self, pyz, python):
        status = Path("/proc/self/status").read_text()
        done = pyz("explain", "--json", python=python)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["machine"]["allowed_cpus"] in re.findall(r"Cpus_allowed_list:\s*(\S+)", status)

    @pytest.mark.parametrize("arguments", [("explain",), ("--help",)], ids=" ".join)
    def test_text_for_people(self, pyz, python, arguments):
        done = pyz(*arguments, python=python)
        assert (done.returncode, done.stderr) == (0, "")
        assert "tflaunch" in done.stdout

    def test_env(self, pyz, python):
        done = pyz("env", "--cpus", "1", "--format", "dotenv", python=python)
        assert (done.returncode, done.stderr) == (0, "")
        assert "OMP_NUM_THREADS=1" in done.stdout.splitlines()

    def test_verify_without_tensorflow(self, pyz, python, script):
        """The probe is found inside the file; TensorFlow is hidden, where the Python of the tests has it."""
        script("raise ImportError('there is no TensorFlow here')", name="tensorflow.py")
        code = {"PYTHONPATH": ".", "PATH": os.environ["PATH"]}
        done = pyz("verify", "--cpus", "1", "-q", python=python, env=code)
        assert (done.returncode, done.stdout) == (3, "")
        what, hint = done.stderr.splitlines()
        assert what == "tflaunch: error: TensorFlow cannot be imported: there is no TensorFlow here"
        assert hint.startswith("hint: ")


class TestAnywhere:
    def test_another_user_who_can_write_nothing(self, pyz, interpreters, directory):
        if os.geteuid() != 0:
            missing("only root can become another user")
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/"}
        others = [
            path for version, path in interpreters if version >= (3, 10) and Path(path).resolve().is_relative_to("/usr")
        ]
        if not others:
            missing("no interpreter that every user can start")
        before = sorted((path.name, path.stat().st_mtime_ns) for path in directory.iterdir())
        code = "import os; print(os.getuid(), len(os.sched_getaffinity(0)))"
        arguments = ("run", "--view", "on", "--cpus", "1", "--no-python", "--", others[0], "-c", code)
        done = pyz(*arguments, python=others[0], **user)
        assert (done.returncode, done.stdout) == (0, f"{NOBODY} 1\n"), done.stderr
        assert pyz("explain", python=others[0], **user).returncode == 0
        assert sorted((path.name, path.stat().st_mtime_ns) for path in directory.iterdir()) == before
        assert [name for name, _ in before] == NAMES

    def test_a_relative_path(self, pyz, directory, script, tmp_path):
        archive = os.path.relpath(directory / "tflaunch.pyz", tmp_path)
        done = pyz("run", "--view", "on", "--cpus", "1", script(*LOOK), archive=archive)
        assert json.loads(done.stdout)["LD_PRELOAD"] == str(directory / "libtflaunch_view.so"), done.stderr

    def test_a_link_to_it(self, pyz, directory, script, tmp_path):
        link = tmp_path / "launcher"
        link.symlink_to(directory / "tflaunch.pyz")
        assert pyz("run", "--cpus", "1", script(*LOOK), archive=link).returncode == 7

    def test_as_a_program(self, directory, environment, script, tmp_path):
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/python3").symlink_to(sys.executable)
        done = subprocess.run(
            [directory / "tflaunch.pyz", "run", script(*LOOK)],
            env={**environment, "PATH": f"{tmp_path / 'bin'}:{os.defpath}"},
            cwd=tmp_path,
            capture_output=True,
            timeout=SECONDS,
        )
        assert done.returncode == 7, done.stderr

    @pytest.mark.parametrize("name", ["typer", "rich", "json", "tflaunch"])
    def test_files_of_the_working_directory_are_not_imported(self, pyz, script, name):
        script("raise SystemExit('the wrong file')", name=f"{name}.py")
        assert pyz("explain").returncode == 0

    def test_without_the_library_everything_else_works(self, pyz, directory, script, tmp_path):
        archive = shutil.copy(directory / "tflaunch.pyz", tmp_path)
        done = pyz("run", "--view", "on", "--cpus", "1", script(*LOOK), archive=archive)
        assert done.returncode == 7
        assert json.loads(done.stdout)["OMP_NUM_THREADS"] == "1"
        assert json.loads(done.stdout)["LD_PRELOAD"] is None
        assert "there is no libtflaunch_view.so beside" in done.stderr


def test_a_python_that_is_too_old(pyz, interpreters):
    old = [path for version, path in interpreters if version < (3, 10)]
    if not old:
        missing("no Python older than 3.10 is installed")
    for python in old:
        done = pyz("explain", python=python)
        assert (done.returncode, done.stdout) == (125, "")
        assert [line.split(": ")[0] for line in done.stderr.splitlines()] == ["tflaunch", "hint"]


def test_only_plain_python_is_inside(directory):
    with zipfile.ZipFile(directory / "tflaunch.pyz") as archive:
        names = archive.namelist()
    assert {Path(name).suffix for name in names if "dist-info/" not in name} == {".py", ".pyc"}
    assert sorted(path.name for path in directory.iterdir()) == NAMES


def test_each_module_has_the_bytecode_of_the_python_that_built(directory):
    """Flags of 1: not compared with the source (PEP 552), whose time an archive cannot keep in full."""
    with zipfile.ZipFile(directory / "tflaunch.pyz") as archive:
        names = set(archive.namelist()) - {"__main__.py"}
        for name in names:
            if name.endswith(".py"):
                assert archive.read(f"{name}c")[:8] == MAGIC_NUMBER + (1).to_bytes(4, "little"), name


def test_built_twice_it_is_the_same(build, directory):
    """But for bytecode: its bytes depend on what the compiling Python has in memory before 3.11."""
    again = build()
    built, rebuilt = (digests(place) for place in (directory, again))
    assert [name for name in built if rebuilt.get(name) != built[name]] == []
    assert built.keys() == rebuilt.keys()


def digests(place):
    """A digest of the library, and of each file in the archive."""
    found = {"library": sha256((place / "libtflaunch_view.so").read_bytes()).hexdigest()}
    with zipfile.ZipFile(place / "tflaunch.pyz") as archive:
        for info in archive.infolist():
            if sys.version_info >= (3, 11) or not info.filename.endswith(".pyc"):
                found[info.filename] = f"{info.date_time} {sha256(archive.read(info)).hexdigest()}"
    return found
