"""The programs of the matrix, the environments they need, and how each is run with and without the view."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

PROJECT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("programs")
EMULATED_CPUS = 64

# Generous: the slowest program takes half a minute on a busy machine. What needs longer hangs.
SECONDS = 240

# "own" is the environment that runs the tests, with the newest TensorFlow; these are made. torch's builds without CUDA
# are in an index of PyTorch's own: where pip does not find this one, name that index in PIP_EXTRA_INDEX_URL.
ENVIRONMENTS = {
    "frameworks": [
        "torch==2.13.0+cpu",
        "jax==0.10.2",
        "tensorflow-cpu==2.21.0",
        "keras==3.15.1",
        "numba==0.68.1",
        "polars==2.1.0",
        "gunicorn==27.0.1",
        "pytest==9.2.0",
    ],
    "tensorflow 2.15": ["tensorflow-cpu==2.15.1", "numpy<2"],
}

# Variables that change what tflaunch, the interpreter or a program does; a developer's shell may have exported some.
FOREIGN = ("COV", "TF", "OMP_", "KMP_", "GOMP_", "OPENBLAS_", "MKL_", "BLIS_", "NUMEXPR_", "NUMBA_", "LOKY_", "KERAS_")
FOREIGN_NAMES = ("LD_PRELOAD", "PYTHON_CPU_COUNT", "PYTHONWARNINGS", "PYTHONPATH", "PYTHONDEVMODE", "PYTEST_ADDOPTS")


class Program(NamedTuple):
    """arguments: what stands behind `tflaunch run`; in them and in variables {python} and {programs} are replaced.

    has_threads_for_each_cpu: it makes a thread for each CPU it sees, and no variable of tflaunch sizes that pool.
    """

    arguments: tuple[str, ...]
    environment: str = "own"
    variables: tuple[tuple[str, str], ...] = ()
    preload: str | None = None
    has_threads_for_each_cpu: bool = False


def script(name: str, environment: str = "own", *, for_each_cpu: bool = False, **variables: str) -> Program:
    """A script of the directory `programs`."""
    arguments = (f"{{programs}}/{name}.py",)
    return Program(arguments, environment, tuple(variables.items()), has_threads_for_each_cpu=for_each_cpu)


MATRIX = {
    "TensorFlow, tf.data and a CNN": script("tensorflow_data", for_each_cpu=True),
    "TensorFlow, jit_compile": script("tensorflow_jit", for_each_cpu=True),
    "TensorFlow 2.15, tf.data and a CNN": script("tensorflow_data", "tensorflow 2.15", for_each_cpu=True),
    "TensorFlow 2.15, jit_compile": script("tensorflow_jit", "tensorflow 2.15"),
    "Keras on TensorFlow": script("keras_fit", KERAS_BACKEND="tensorflow"),
    "Keras on JAX": script("keras_fit", "frameworks", for_each_cpu=True, KERAS_BACKEND="jax"),
    "Keras on torch": script("keras_fit", "frameworks", KERAS_BACKEND="torch"),
    "torch, DataLoader with workers": script("torch_loader", "frameworks"),
    "JAX, jit": script("jax_jit", "frameworks", for_each_cpu=True),
    "NumPy, matmul": script("numpy_matmul"),
    "scikit-learn, joblib": script("sklearn_joblib"),
    "numba, prange": script("numba_prange", "frameworks"),
    "polars, lazy query": script("polars_lazy", "frameworks", for_each_cpu=True),
    "multiprocessing.Pool()": script("multiprocessing_pool"),
    "concurrent.futures": script("executors"),
    "gunicorn, 2 workers": script("gunicorn_server", "frameworks"),
    "python -m": Program(("-m", "executors"), variables=(("PYTHONPATH", "{programs}"),)),
    "python -X dev": Program(("--no-python", "{python}", "-X", "dev", "{programs}/executors.py")),
    "another Python in a subprocess": script("other_python"),
    "malloc of the C library": script("allocate"),
    "jemalloc": script("allocate")._replace(preload="libjemalloc.so.2"),
    # Without what OMP_NUM_THREADS says: nproc prints that.
    "nproc": Program(("--no-python", "env", "-u", "OMP_NUM_THREADS", "nproc")),
}


class Outcome(NamedTuple):
    """What a program did: its status, its result, and what it told of CPUs (seen) and of threads and workers (made)."""

    status: int
    result: str
    seen: dict[str, int]
    made: dict[str, int]
    errors: str


class Places(NamedTuple):
    """The directories of the interpreters by the name of their environment, and the library of the emulated machine."""

    binaries: dict[str, Path]
    many_cpus: str


@contextlib.contextmanager
def prepare(directory: Path) -> Iterator[Places]:
    """Makes all that the programs need. The environments stay where they are; one run at a time uses them."""
    many_cpus = directory / "many_cpus.so"
    command = ["cc", "-shared", "-fPIC", "-O2", f"-DCPUS={EMULATED_CPUS}", "-o", many_cpus]
    subprocess.run([*command, PROJECT / "bench/many_cpus.c", "-ldl"], check=True)
    cache = Path(tempfile.gettempdir(), f"tflaunch-matrix-{os.getuid()}")
    cache.mkdir(mode=0o700, exist_ok=True)
    status = cache.lstat()
    assert stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid(), f"{cache} is of someone else"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wheel = build_wheel(directory)
        made = {name: make_environment(cache, name, wheel) for name in ENVIRONMENTS}
        yield Places({"own": Path(sys.executable).parent, **made}, str(many_cpus))


def build_wheel(directory: Path) -> Path:
    """The project's wheel, made of a copy: building it would remove the library that an editable install uses."""
    copy = directory / "project"
    shutil.copytree(PROJECT, copy, ignore=shutil.ignore_patterns(".*", "*.so", "*.new", "__pycache__", "dist", "build"))
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", directory, copy]
    subprocess.run(command, check=True, timeout=600)
    return next(directory.glob("tflaunch-*.whl"))


def make_environment(cache: Path, name: str, wheel: Path) -> Path:
    """A virtual environment with these packages, kept for later, and with this wheel; its directory of programs."""
    python, packages = python_3_11(), ENVIRONMENTS[name]
    digest = hashlib.sha256("\n".join([python, *packages]).encode()).hexdigest()[:8]
    directory = cache / f"{name.replace(' ', '-')}-{digest}"
    complete = directory / "complete"
    pip = [directory / "bin/python", "-m", "pip", "install", "-q"]
    if not complete.exists():
        shutil.rmtree(directory, ignore_errors=True)
        subprocess.run([python, "-m", "venv", directory], check=True)
        subprocess.run([*pip, *packages, wheel], check=True, timeout=3600)
        complete.touch()
    subprocess.run([*pip, "--no-deps", "--no-index", "--force-reinstall", wheel], check=True, timeout=600)
    assert list(directory.glob("lib/python3*/site-packages/tflaunch/libtflaunch_view.so")), "the wheel has no library"
    return directory / "bin"


def python_3_11() -> str:
    """TensorFlow 2.15 exists up to Python 3.11, and all the others for it."""
    if sys.version_info[:2] == (3, 11):
        return sys._base_executable
    found = next(map(str, Path.home().glob(".pyenv/versions/3.11.*/bin/python")), None) or shutil.which("python3.11")
    assert found, "Python 3.11 is needed"
    return found


def run(program: Program, places: Places, view: str, cpus: int, directory: Path, *, many_cpus: bool = False) -> Outcome:
    """Run a program to its end under `tflaunch run --cpus CPUS --view VIEW`, on this machine or on the emulated one."""
    status, output, errors = start(program, places, view, cpus, directory, many_cpus=many_cpus)
    *lines, last = output.splitlines() or [""]
    told: dict[str, Any] = {}
    if last.startswith("{"):
        told = json.loads(last)
    elif last.isdigit():  # of nproc
        told = {"seen": {"nproc": int(last)}}
    assert told, f"{' '.join(program.arguments)}: exit status {status}\n{output}\n{errors}"
    return Outcome(status, "\n".join(lines), told["seen"], told.get("made", {}), errors)


def start(
    program: Program, places: Places, view: str, cpus: int, directory: Path, *, many_cpus: bool = False
) -> tuple[int, str, str]:
    """Status, output and errors of the program."""
    binaries = places.binaries[program.environment]
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(FOREIGN) and name not in FOREIGN_NAMES
    }
    words = {"python": binaries / "python", "programs": PROGRAMS}
    environ.update((name, value.format(**words)) for name, value in program.variables)
    preload = [places.many_cpus if many_cpus else None, program.preload]
    if any(preload):
        environ["LD_PRELOAD"] = ":".join(filter(None, preload))
    command = [str(binaries / "tflaunch"), "run", "--cpus", str(cpus), "--view", view]
    command += [argument.format(**words) for argument in program.arguments]
    return run_to_its_end(command, environ, directory)


def run_to_its_end(command: list[str], environ: dict[str, str], directory: Path) -> tuple[int, str, str]:
    """Status, output and errors. What hangs is ended with all that it started, and is an error."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            env=environ,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            pass
        hangs = process.poll() is None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        texts = [file.read() for file in (output, errors) if file.seek(0) == 0]
    assert not hangs, f"no end after {SECONDS} s: {' '.join(command)}\n{texts[0]}\n{texts[1]}"
    return process.returncode, texts[0], texts[1]


def new_lines(errors: str, known: str) -> set[str]:
    """The lines of standard error that are not among the known ones; numbers, and what tflaunch says, do not count.

    Nor do blanks: TensorFlow pads the number of the process, which has one digit more now and then.
    """

    def kinds(text: str) -> set[str]:
        lines = (line for line in text.splitlines() if not re.match(r"tflaunch: [\d.]+ CPUs? ", line))
        return {re.sub(r"0x[0-9a-f]+|\d+", "N", " ".join(line.split())) for line in lines}

    return kinds(errors) - kinds(known)
