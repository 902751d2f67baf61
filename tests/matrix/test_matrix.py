"""Real programs with and without the view: the same results, statuses and messages, and fewer threads on a big host.

pytest -m matrix tests/matrix

It downloads about 1 GB once, and keeps the environments in the directory for temporary files.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from xml.etree import ElementTree

import pytest
from matrix.runs import EMULATED_CPUS, MATRIX, PROJECT, Program, new_lines, prepare, run, start

pytestmark = pytest.mark.matrix

# How many workers the documents of each program promise for so many CPUs.
WORKERS = {
    "fork": lambda cpus: cpus,
    "spawn": lambda cpus: cpus,
    "forkserver": lambda cpus: cpus,
    "processes": lambda cpus: cpus,
    "threads of a pool": lambda cpus: min(32, cpus + 4),
    "loader workers": lambda cpus: cpus,
    "polars threads": lambda cpus: cpus,
    "arenas of jemalloc": lambda cpus: 4 * cpus if cpus > 1 else 1,
}

# Tests that Keras ships in its wheel: tf.data, the adapters of data of each framework, threads, and plain functions.
# Not those that measure time, or fork a process with threads.
KERAS_TESTS = (
    "trainers/data_adapters/data_adapter_utils_test.py",
    "trainers/data_adapters/generator_data_adapter_test.py",
    "trainers/data_adapters/py_dataset_adapter_test.py",
    "trainers/data_adapters/tf_dataset_adapter_test.py",
    "trainers/data_adapters/torch_data_loader_adapter_test.py",
    "trainers/epoch_iterator_test.py",
    "utils/dataset_utils_test.py",
    "utils/numerical_utils_test.py",
    "utils/tracking_test.py",
)
NOT_SELECTED = "speedup or multiprocessing"


@pytest.fixture(scope="session")
def places(tmp_path_factory):
    with prepare(tmp_path_factory.mktemp("matrix")) as made:
        yield made


def check_same(without, with_view):
    assert (without.status, with_view.status) == (0, 0), without.errors + with_view.errors
    assert with_view.result == without.result
    assert new_lines(with_view.errors, without.errors) == set()


@pytest.mark.parametrize("name", MATRIX)
def test_same_on_this_machine(name, places, tmp_path):
    """With the view of one CPU, where programs that never run on one may hang."""
    without, with_view = (run(MATRIX[name], places, view, 1, tmp_path) for view in ("off", "on"))
    check_same(without, with_view)
    assert set(with_view.seen.values()) == {1}
    check_workers(with_view, 1)


@pytest.mark.parametrize("name", MATRIX)
def test_same_on_a_host_with_many_cpus(name, places, tmp_path):
    program = MATRIX[name]
    without, with_view = (run(program, places, view, 2, tmp_path, many_cpus=True) for view in ("off", "on"))
    assert EMULATED_CPUS in without.seen.values()  # the emulated host is there
    check_same(without, with_view)
    assert set(with_view.seen.values()) == {2}
    check_workers(without, EMULATED_CPUS)
    check_workers(with_view, 2)
    if program.has_threads_for_each_cpu:
        assert without.made["threads"] > EMULATED_CPUS
        assert with_view.made["threads"] < EMULATED_CPUS / 2


def check_workers(outcome, cpus):
    right = {name: WORKERS[name](cpus) for name in outcome.made if name in WORKERS}
    assert {name: outcome.made[name] for name in right} == right


def test_keras_own_tests(places, tmp_path):
    """The same outcome of each test, and the same status."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    directory = next(places.binaries["frameworks"].parent.glob("lib/python3*/site-packages/keras/src"))
    files = [str(directory / name) for name in KERAS_TESTS]
    outcomes = {}
    for view in ("off", "on"):
        report = tmp_path / f"{view}.xml"
        settings = ("-c", "pytest.ini", "-p", "no:cacheprovider", "-k", f"not ({NOT_SELECTED})", f"--junitxml={report}")
        program = Program(("-m", "pytest", *settings, *files), "frameworks", (("KERAS_BACKEND", "tensorflow"),))
        status, output, _ = start(program, places, view, 2, tmp_path, many_cpus=True)
        assert report.is_file(), output
        outcomes[view] = status, read_report(report)
    assert outcomes["on"] == outcomes["off"]
    status, tests = outcomes["on"]
    assert status == 0
    assert sum(count for (_, _, outcome), count in tests.items() if outcome == "passed") > 100


def test_the_launcher_of_torch_sizes_no_pool_of_tensorflow(places, tmp_path):
    """It exports OMP_NUM_THREADS alone, so bench/contenders.py counts it as TensorFlow's default."""
    script = tmp_path / "show.py"
    script.write_text("import json, os; print('environ', json.dumps(dict(os.environ)))")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "KMP_", "TF_"))}
    command = [places.binaries["frameworks"] / "python", "-m", "torch.backends.xeon.run_cpu", script]
    done = subprocess.run(command, env=plain, check=True, capture_output=True, text=True, timeout=300)
    (line,) = re.findall(r"^environ (.*)$", done.stdout, re.MULTILINE)
    exported = {name: value for name, value in json.loads(line).items() if plain.get(name) != value}
    assert exported["OMP_NUM_THREADS"].isdecimal()
    assert not [name for name in exported if name.startswith("TF_")]


def read_report(path):
    """How often each test had each outcome."""
    return Counter(
        (
            case.get("classname"),
            case.get("name"),
            next((child.tag for child in case if child.tag != "properties"), "passed"),
        )
        for case in ElementTree.parse(path).iter("testcase")
    )


@pytest.mark.parametrize("many_cpus", [False, True], ids=["this machine", "many CPUs"])
def test_the_example(many_cpus, places, tmp_path):
    """It prints how long it took and how many CPUs and threads it saw; all else is the same."""
    program = Program((str(PROJECT / "examples/train.py"), "--epochs", "2"))
    outputs = []
    for view in ("off", "on"):
        status, output, errors = start(program, places, view, 2 if many_cpus else 1, tmp_path, many_cpus=many_cpus)
        assert status == 0, errors
        output = re.sub(r"\d+m?s(/step)?", "TIME", output)
        outputs.append(
            re.sub(r"(os\.cpu_count\(\)|CPUs this process may use|threads of this process) +\d+", r"\1", output)
        )
    assert outputs[0] == outputs[1]
    assert "test accuracy: 0." in outputs[0]
