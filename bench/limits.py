"""What the variables change in TensorFlow and what they do not, counted in fresh processes: for docs/policy.md.

    .venv/bin/python bench/limits.py

No speed is measured, so it may run on a busy machine. The host with 64 CPUs is emulated (many_cpus.c).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from common import build_many_cpus, describe_machine, markdown

CPUS = 64
HANGS_AFTER_SECONDS = 30

SIZED = {"TF_NUM_INTRAOP_THREADS": "3", "TF_NUM_INTEROP_THREADS": "2", "OMP_NUM_THREADS": "3"}

# Threads of the process after each step that makes pools.
POOLS = """
import os
def count(step):
    print(step, len(os.listdir("/proc/self/task")))
count("start")
import numpy
count("import numpy")
import tensorflow as tf
count("import tensorflow")
tf.constant(1.0) + 1
count("first operation")
iterator = iter(tf.data.Dataset.range(9).batch(2))
next(iterator)
count("a tf.data iterator")
another = iter(tf.data.Dataset.range(9).batch(2))
next(another)
count("another one")
options = tf.data.Options()
options.threading.private_threadpool_size = 2
sized = iter(tf.data.Dataset.range(9).batch(2).with_options(options))
next(sized)
count("one with private_threadpool_size = 2")
tf.function(lambda x: tf.sin(x) * 2, jit_compile=True)(tf.ones(9))
count("a function with jit_compile")
"""

# TensorFlow writes the sizes of its pools to this log, also those that the script's own set_* gave.
SIZES = """
import tensorflow as tf
threading = tf.config.threading
SET
tf.constant(1.0) + 1
print("get", threading.get_intra_op_parallelism_threads(), threading.get_inter_op_parallelism_threads())
files = {line.split()[-1] for line in open("/proc/self/maps") if "/libgomp" in line or "/libiomp5" in line}
print("mapped", *sorted("/".join(file.split("/")[-2:]) for file in files))
"""
SET = "threading.set_intra_op_parallelism_threads(5); threading.set_inter_op_parallelism_threads(4)"
LOG = {"TF_CPP_VMODULE": "local_device=1,process_util=1", "TF_CPP_MIN_LOG_LEVEL": "0"}

NESTED = """
import os, threading
import tensorflow as tf
def give_up():
    print("hangs: no answer after WAIT s", flush=True)
    os._exit(0)
timer = threading.Timer(WAIT, give_up)
timer.start()
inner = tf.function(lambda x: x + 1)
outer = tf.function(lambda x: tf.py_function(lambda y: inner(y), [x], tf.float32))
assert outer(tf.constant(1.0)).numpy() == 2.0
timer.cancel()
print("ends")
"""


def main() -> None:
    print(describe_machine())
    print(f"EMULATED  the host with {CPUS} CPUs is a preloaded library (bench/many_cpus.c)\n")
    with tempfile.TemporaryDirectory() as directory:
        many = {"LD_PRELOAD": build_many_cpus(Path(directory), CPUS)}
        print("Threads of a process that sees 64 CPUs, as its pools are made; sized: " + _words(SIZED) + "\n")
        plain, sized = (dict(_lines(run(POOLS, {**many, **extra}))) for extra in ({}, SIZED))
        print(markdown(["after", "nothing set", "sized"], [[step, plain[step], sized[step]] for step in plain]))

        print(
            "\nPool sizes by TensorFlow's own log (intra-op, inter-op), on the real machine unless 64 CPUs are said\n"
        )
        values = ("", "0", "abc", "4.0", "4,2", " 4 ", "+4", "-1")
        rows = [
            row("nothing set", {}),
            row("nothing set, 64 CPUs", many),
            row(_words(SIZED), SIZED),
            row("the same, and the script sets 5 and 4", SIZED, SET),
            row("OMP_PROC_BIND=close", {"OMP_PROC_BIND": "close"}),
            *(row(f"TF_NUM_INTRAOP_THREADS={value!r}", {"TF_NUM_INTRAOP_THREADS": value}) for value in values),
        ]
        print(markdown(["variables", "intra-op", "inter-op", "get_*() say", "OpenMP runtimes mapped"], rows))

    print("\nA tf.py_function that calls a tf.function inside a tf.function, intra-op 1")
    for threads in ("1", "2"):
        program = NESTED.replace("WAIT", str(HANGS_AFTER_SECONDS))
        outcome = run(program, {"TF_NUM_INTEROP_THREADS": threads, "TF_NUM_INTRAOP_THREADS": "1"})
        print(f"inter-op {threads}: {outcome.splitlines()[-1]}")
    nproc = subprocess.run(["nproc"], env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, check=True)
    print(f"\nOMP_NUM_THREADS=1 nproc: {nproc.stdout.decode().strip()}")


def run(program: str, variables: dict[str, str]) -> str:
    """Both outputs of the program in a fresh interpreter, and SIGABRT at the end where that ended it."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "OMP_", "OPENBLAS_"))}
    environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    argv = [sys.executable, "-c", program]
    done = subprocess.run(
        argv, env=environ, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    return done.stdout + ("SIGABRT" if done.returncode == -signal.SIGABRT else "")


def row(name: str, variables: dict[str, str], settings: str = "") -> list[str]:
    output = run(SIZES.replace("SET", settings), {**variables, **LOG})
    if "SIGABRT" in output:
        return [name, "the process aborts", "", "", ""]
    intra = re.search(r"LocalDevice using CPU work thread pool.*num_threads=(\d+)", output)
    inter = re.search(r"Session inter op parallelism threads: (\d+)", output)
    sizes = [match[1] if match else "?" for match in (intra, inter)]
    return [name, *sizes, said(output, "get"), said(output, "mapped") or "none"]


def said(output: str, word: str) -> str:
    """What follows the word on the line that starts with it."""
    return next((line[len(word) :].strip() for line in output.splitlines() if line.startswith(word)), "")


def _lines(output: str) -> list[tuple[str, str]]:
    """(step, count) of each line "step 12"."""
    pairs = [line.rpartition(" ") for line in output.splitlines()]
    return [(step, number) for step, _, number in pairs if step and number.isdigit()]


def _words(variables: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in variables.items())


if __name__ == "__main__":
    main()
