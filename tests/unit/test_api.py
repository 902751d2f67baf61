"""The Python API in real processes: apply() against the real TensorFlow, whose own log says how large its pools are."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

import tflaunch
from tflaunch import errors

# One per process that imports TensorFlow; a loaded machine takes several times the usual five seconds.
TIMEOUT_SECONDS = 300

# TensorFlow logs the size of each pool that it makes at these levels: local_device.cc, process_util.cc.
POOL_LOG = {"TF_CPP_VMODULE": "local_device=1,process_util=1", "TF_CPP_MIN_LOG_LEVEL": "0"}
INTRA_OP_LINE = re.compile(r"LocalDevice using CPU work thread pool: \S+ num_threads=(\d+)")
INTER_OP_LINE = re.compile(r"Session inter op parallelism threads: (\d+)")

FIRST_OPERATION = "tf.reduce_sum(tf.random.uniform([64, 64])).numpy()"


def plain_environment(**exported):
    """The caller's environment without what tflaunch and TensorFlow read, and with `exported`."""
    read = ("TFLAUNCH_", "TF_", "OMP_", "KMP_", "GOMP_", "PYTHON_CPU", "PYTHONWARNINGS", "LOKY_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(read) and "THREADS" not in name}
    return {**environ, **exported}


def python(program, **exported):
    """The result of the program in a fresh process."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env=plain_environment(**exported),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )


def answer(program, **exported):
    """What the program, which succeeds in silence, prints as JSON in its last line."""
    done = python(program, **exported)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout.splitlines()[-1])


def pools(done):
    """Intra-op and inter-op threads of the pools that TensorFlow made, from its log; None where it made none."""
    intra_op, inter_op = INTRA_OP_LINE.search(done.stderr), INTER_OP_LINE.search(done.stderr)
    return intra_op and int(intra_op[1]), inter_op and int(inter_op[1])


class TestNames:
    """The package offers its few names, without loading what they need before they are used."""

    def test_all(self):
        assert tflaunch.__all__ == ["TflaunchError", "TooLateError", "UsageError", "__version__", "apply", "explain"]
        assert all(hasattr(tflaunch, name) for name in tflaunch.__all__)

    def test_errors_are_one_tree(self):
        assert tflaunch.UsageError is errors.UsageError
        assert tflaunch.TooLateError is errors.TooLateError
        assert issubclass(tflaunch.UsageError, tflaunch.TflaunchError)
        assert issubclass(tflaunch.TooLateError, tflaunch.TflaunchError)

    def test_another_name(self):
        with pytest.raises(AttributeError, match="no attribute 'aply'"):
            _ = tflaunch.aply

    def test_import_loads_nothing_heavy(self):
        program = "import tflaunch, sys, json; print(json.dumps(sorted(sys.modules)))"
        heavy = {"typing", "dataclasses", "pathlib", "typer", "rich", "psutil", "cpuinfo", "numpy", "tensorflow"}
        plain = set(answer("import sys, json; print(json.dumps(sorted(sys.modules)))"))
        assert not (set(answer(program)) - plain) & heavy


class TestExplain:
    """explain() describes this very process."""

    def test_the_affinity_mask_of_this_process(self):
        program = (
            "import os, json, tflaunch\n"
            "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
            "document = tflaunch.explain()\n"
            "print(json.dumps([document['machine'], document['plan'], sorted(os.sched_getaffinity(0))]))"
        )
        machine, plan, mask = answer(program)
        assert machine["allowed_cpus"] == str(mask[0])
        assert (machine["cores"], machine["threads_per_core"]) == (1, 1)
        assert (plan["intra_op"]["value"], plan["python_cpu_count"]["value"]) == (1, 1)

    def test_changes_nothing(self):
        program = (
            "import os, json, tflaunch\n"
            "before = dict(os.environ)\n"
            "tflaunch.explain(omp=3)\n"
            "print(json.dumps(dict(os.environ) == before))"
        )
        assert answer(program) is True

    @pytest.mark.parametrize(
        ("keywords", "what", "hint"),
        [
            ({"cpus": 0}, "cpus=0 ", "above zero"),
            ({"cpus": "abc"}, "cpus=abc ", "1500m"),
            ({"cpus": float("nan")}, "cpus=nan ", "above zero"),
            ({"intra_op": -1}, "intra_op=-1 ", "1 to 1024"),
            ({"omp": 2.5}, "omp=2.5 ", "whole number"),
            ({"mode": "fast"}, "mode=fast ", "latency"),
            ({"rounding": "up"}, "rounding=up ", "ceil"),
            ({"strict": "maybe"}, "strict=maybe ", "true"),
        ],
    )
    @pytest.mark.parametrize("function", ["explain", "apply"])
    def test_a_bad_keyword_is_told_as_it_was_written(self, function, keywords, what, hint):
        before = dict(os.environ)
        with pytest.raises(tflaunch.UsageError) as caught:
            getattr(tflaunch, function)(**keywords)
        assert caught.value.what.startswith(what)
        assert hint in caught.value.hint
        assert dict(os.environ) == before

    def test_a_keyword_wins_over_the_variable(self, monkeypatch):
        monkeypatch.setenv("TFLAUNCH_CPUS", "0.5")
        monkeypatch.setenv("TFLAUNCH_OVERRIDE_ENV", "1")
        monkeypatch.setenv("OMP_NUM_THREADS", "7")
        document = tflaunch.explain(cpus=0.25, override_env=False)
        assert document["limit"]["cpus"] == 0.25
        assert document["limit"]["reason"] == "cpus=0.25"
        (row,) = (row for row in document["environment"] if row["name"] == "OMP_NUM_THREADS")
        assert row["action"] == "keep"


class TestApplyWithoutTensorflow:
    """apply() exports the variables of this process and returns the values now in force."""

    def test_exports_and_returns(self):
        program = (
            "import os, json, tflaunch\n"
            "values = tflaunch.apply(intra_op=1, omp=3, cpus=0.5)\n"
            "print(json.dumps([values, {name: os.environ[name] for name in values}]))"
        )
        values, exported = answer(program)
        assert values == exported
        assert values["TF_NUM_INTRAOP_THREADS"] == "1"
        assert values["TF_NUM_INTEROP_THREADS"] == "2"
        assert values["OMP_NUM_THREADS"] == values["OPENBLAS_NUM_THREADS"] == "3"
        assert values["KMP_BLOCKTIME"] == "1"
        assert values["PYTHON_CPU_COUNT"] == "1"

    def test_a_child_process_gets_them(self):
        program = (
            "import subprocess, tflaunch\n"
            "tflaunch.apply(omp=3)\n"
            "subprocess.run(['sh', '-c', 'echo $OMP_NUM_THREADS'], check=True)"
        )
        assert answer(program) == 3

    def test_keeps_valid_exported_values_and_says_so_in_the_values(self):
        program = "import json, tflaunch; print(json.dumps(tflaunch.apply(cpus=0.5)))"
        values = answer(program, OMP_NUM_THREADS="1,1", TF_NUM_INTEROP_THREADS="3")
        assert (values["OMP_NUM_THREADS"], values["TF_NUM_INTEROP_THREADS"]) == ("1,1", "3")

    def test_a_second_call_for_less_gives_less(self):
        """As in a worker that tflaunch starts for a part of the CPUs: nobody chose the numbers of the first."""
        program = "import json, tflaunch\ntflaunch.apply()\nprint(json.dumps(tflaunch.apply(cpus=1)))"
        values = answer(program)
        assert (values["OMP_NUM_THREADS"], values["PYTHON_CPU_COUNT"]) == ("1", "1")
        assert "TFLAUNCH_COMPUTED" not in values

    def test_replaces_an_invalid_one_with_a_warning(self):
        done = python("import tflaunch; print(tflaunch.apply(cpus=0.5)['OMP_NUM_THREADS'])", OMP_NUM_THREADS="abc")
        assert (done.returncode, done.stdout) == (0, "1\n")
        assert "RuntimeWarning: tflaunch: OMP_NUM_THREADS was 'abc'" in done.stderr

    def test_override_unsets_binding(self):
        program = (
            "import os, json, tflaunch\n"
            "values = tflaunch.apply(override_env=True)\n"
            "print(json.dumps(['KMP_AFFINITY' in values, 'KMP_AFFINITY' in os.environ, 'HOME' in os.environ]))"
        )
        assert answer(program, KMP_AFFINITY="compact", HOME="/root") == [False, False, True]

    def test_numpy_imported_before_keeps_its_pool_so_the_caller_is_warned(self):
        program = (
            "import warnings, json, numpy, tflaunch\n"
            "with warnings.catch_warnings(record=True) as caught:\n"
            "    warnings.simplefilter('always')\n"
            "    tflaunch.apply()\n"
            "print(json.dumps([[w.category.__name__, str(w.message), w.filename] for w in caught]))"
        )
        ((category, message, filename),) = answer(program)
        assert category == "RuntimeWarning"
        assert "numpy was imported before apply()" in message
        assert "threadpoolctl" in message
        assert filename == "<string>"  # the caller's line, not one of ours

    def test_no_warning_without_reason(self):
        assert answer("import json, tflaunch; print(json.dumps(list(tflaunch.apply())))", PYTHONWARNINGS="error")


class TestApplyWithTensorflow:
    """apply() sizes TensorFlow's own pools, as long as it has made none."""

    def test_before_the_import(self):
        """The exported variables give the pools their size."""
        done = python(
            f"import tflaunch\ntflaunch.apply(intra_op=1, inter_op=3)\nimport tensorflow as tf\n{FIRST_OPERATION}",
            **POOL_LOG,
        )
        assert done.returncode == 0, done.stderr
        assert pools(done) == (1, 3)

    def test_after_the_import(self):
        """TensorFlow's configuration is set too, an exported value that was kept included."""
        done = python(
            "import json, tensorflow as tf, tflaunch\n"
            "values = tflaunch.apply(intra_op=1)\n"
            "get = tf.config.threading\n"
            "threads = [get.get_intra_op_parallelism_threads(), get.get_inter_op_parallelism_threads()]\n"
            f"{FIRST_OPERATION}\n"
            "print(json.dumps([threads, values]))",
            TF_NUM_INTEROP_THREADS="3",
            **POOL_LOG,
        )
        assert done.returncode == 0, done.stderr
        threads, values = json.loads(done.stdout.splitlines()[-1])
        assert threads == [1, 3]
        assert (values["TF_NUM_INTRAOP_THREADS"], values["TF_NUM_INTEROP_THREADS"]) == ("1", "3")
        assert pools(done) == (1, 3)

    def test_after_the_first_operation(self):
        """It is too late: an error in two parts, and nothing is changed."""
        done = python(
            "import json, os, tensorflow as tf, tflaunch\n"
            f"{FIRST_OPERATION}\n"
            "before = dict(os.environ)\n"
            "try:\n"
            "    tflaunch.apply(intra_op=1, inter_op=3)\n"
            "except tflaunch.TooLateError as error:\n"
            "    print(json.dumps([error.what, error.hint, str(error), dict(os.environ) == before]))",
        )
        assert done.returncode == 0, done.stderr
        what, hint, text, is_unchanged = json.loads(done.stdout.splitlines()[-1])
        assert "made its thread pools already" in what
        assert "cannot be modified after initialization" in what
        assert "restart" in hint
        assert "before the first operation" in hint
        assert text == f"{what}\nhint: {hint}"
        assert is_unchanged


class TestSysroot:
    """A directory that is none is a mistake of the caller's, as on the command line."""

    @pytest.mark.parametrize("sysroot", ["/nowhere/at/all", "", "a\0b", __file__])
    def test_no_directory(self, sysroot):
        with pytest.raises(errors.UsageError, match="sysroot"):
            tflaunch.explain(sysroot=sysroot)
