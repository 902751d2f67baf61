"""`tflaunch verify` on the real TensorFlow: every form in which people set threads, and what wins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = str(Path(sys.executable).with_name("tflaunch"))


MANY_CPUS = Path(__file__).parents[2] / "bench" / "many_cpus.c"


@pytest.fixture(scope="module")
def many_cpus(tmp_path_factory):
    """A library that stands for a machine with 64 CPUs: it answers with them when it is preloaded."""
    path = tmp_path_factory.mktemp("emulation") / "many_cpus.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O2", "-DCPUS=64", "-o", path, MANY_CPUS, "-ldl"], check=True, timeout=60
    )
    return str(path)


def verify(*arguments, prefix=(), **variables):
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TF", "OMP_", "OPENBLAS_"))}
    command = [*prefix, PROGRAM, "verify", "--json", *arguments]
    done = subprocess.run(command, env={**environ, **variables}, capture_output=True, text=True, timeout=600)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def document_of(done):
    return json.loads(done.stdout if done.stdout.startswith("{") else done.stdout.splitlines()[-1])


def pools(document):
    return {name: document["observed"][name] for name in ("intra_op", "inter_op", "session_inter_op")}


class TestFresh:
    """A fresh interpreter under the plan."""

    @pytest.mark.parametrize("intra_op", [1, 2, 3, 7, 64])
    @pytest.mark.parametrize("inter_op", [1, 2, 5])
    def test_exactly_the_values_that_are_set(self, intra_op, inter_op):
        done = verify(TF_NUM_INTRAOP_THREADS=str(intra_op), TF_NUM_INTEROP_THREADS=str(inter_op))
        document = document_of(done)
        assert done.returncode == 0, document["differences"]
        assert pools(document) == {
            "intra_op": {"log": intra_op, "threads": intra_op},
            "inter_op": {"log": inter_op, "threads": inter_op},
            "session_inter_op": {"log": inter_op, "threads": inter_op},
        }
        assert document["planned"]["intra_op"] == intra_op
        assert document["agrees"]

    def test_under_a_mask_of_one_cpu(self):
        """tf.data and the plan follow the mask."""
        cpu = str(min(os.sched_getaffinity(0)))
        document = document_of(verify(prefix=("taskset", "-c", cpu)))
        assert pools(document)["intra_op"] == {"log": 1, "threads": 1}
        assert document["observed"]["allowed_cpus"] == 1
        assert document["pools"][0] == {
            "name": "tf.data", "threads": 1, "sized_by": "CPUs the process sees, for every iterator"
        }  # fmt: skip

    def test_with_a_view_and_beside_it_without(self, many_cpus):
        """On a big host under a limit of 2: the pools that no variable sizes have 2 threads instead of 64."""
        done = verify("--cpus", "2", LD_PRELOAD=many_cpus)
        document = document_of(done)
        assert done.returncode == 0, document["differences"]
        threads = {pool["name"]: pool["threads"] for pool in document["pools"]}
        view = document["view"]
        without = {pool["name"]: pool["threads"] for pool in view["pools_without"]}
        assert (threads["tf.data"], without["tf.data"]) == (2, 64)
        assert threads["XLA"] < 20 < 100 < without["XLA"]
        assert (document["observed"]["allowed_cpus"], view["cpus"], view["allowed_cpus_without"]) == (2, 2, 64)
        assert document["observed"]["process_threads"] < 60 < 150 < view["process_threads_without"]
        assert all(pool == {"log": 2, "threads": 2} for pool in pools(document).values())

    def test_a_view_that_was_not_loaded(self, many_cpus, tmp_path):
        """Something between tflaunch and the program takes LD_PRELOAD away; here a module that starts with Python."""
        (tmp_path / "sitecustomize.py").write_text(
            "import os, sys\n"
            "if os.environ.pop('TFLAUNCH_VIEW_CPUS', None):\n"
            "    os.execv(sys.executable, sys.orig_argv)\n"
        )
        done = verify("--cpus", "2", LD_PRELOAD=many_cpus, PYTHONPATH=str(tmp_path))
        (difference,) = document_of(done)["differences"]
        assert done.returncode == 1
        assert (difference["pool"], difference["planned"], difference["observed"]) == ("view", 2, [64])

    def test_no_tensorflow(self, tmp_path):
        """An interpreter that has tflaunch and no TensorFlow: a package that cannot be imported stands in its place."""
        (tmp_path / "tensorflow.py").write_text("raise ImportError('not here')")
        done = verify(PYTHONPATH=str(tmp_path))
        assert done.returncode == 3
        what, hint = done.stderr.splitlines()[-2:]
        assert what == "tflaunch: error: TensorFlow cannot be imported: not here"
        assert hint.startswith("hint: install tensorflow")


IMPORT = "import tensorflow as tf\n"
USE = "tf.constant(1) + 1\n"
SET = (
    "tf.config.threading.set_intra_op_parallelism_threads(5)\ntf.config.threading.set_inter_op_parallelism_threads(4)\n"
)
SET_TOO_LATE = """
try:
    tf.config.threading.set_intra_op_parallelism_threads(5)
except RuntimeError as error:
    assert "cannot be modified after initialization" in str(error)
else:
    raise SystemExit(9)
"""
SESSION = """
config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=5, inter_op_parallelism_threads=4)
with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
    session.run(tf.constant(1) + 1)
"""
ENVIRON = "import os\nos.environ['TF_NUM_INTRAOP_THREADS'] = '5'\nos.environ['TF_NUM_INTEROP_THREADS'] = '4'\n"
REMOVE = "import os\ndel os.environ['TF_NUM_INTRAOP_THREADS'], os.environ['TF_NUM_INTEROP_THREADS']\n"
MASK = len(os.sched_getaffinity(0))
FIT = """
model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
model.compile(loss="mse")
model.fit(tf.ones((8, 4)), tf.ones((8, 1)), verbose=0)
"""
PER_SESSION = """
config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=6, use_per_session_threads=True)
with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
    session.run(tf.constant(1) + 1)
"""
TWO_SESSIONS = """
for threads in (5, 7):
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        session.run(tf.constant(1) + 1)
"""

# What the script does, and the intra-op pool and the inter-op pools that come of it with 3 and 2 in the environment.
FORMS = {
    "environment only": (IMPORT + USE, 3, [2]),
    "set before initialization": (IMPORT + SET + USE, 5, [4]),
    "set after initialization": (IMPORT + USE + SET_TOO_LATE, 3, [2]),
    "ConfigProto": (IMPORT + SESSION, 5, [4]),
    "the first of two sessions": (IMPORT + TWO_SESSIONS, 5, [5]),
    "use_per_session_threads": (IMPORT + USE + PER_SESSION, 3, [2, 6]),
    "os.environ before the import": (ENVIRON + IMPORT + USE, 5, [4]),
    "os.environ after the import": (IMPORT + ENVIRON + USE, 5, [4]),
    "os.environ after the first operation": (IMPORT + USE + ENVIRON + USE, 3, [2]),
    "variables removed before the import": (REMOVE + IMPORT + USE, MASK, [MASK]),
    "Keras fit": (IMPORT + FIT, 3, [2]),
    "tf.function": (IMPORT + "tf.function(lambda x: x + 1)(tf.ones(3))\n", 3, [2]),
    "tf.data": (IMPORT + "list(tf.data.Dataset.range(4).batch(2))\n", 3, [2]),
    "jit_compile": (IMPORT + "tf.function(lambda x: x + 1, jit_compile=True)(tf.ones(3))\n", 3, [2]),
}  # fmt: skip


class TestScript:
    """The user's own script, to its end."""

    @pytest.mark.parametrize("form", FORMS)
    def test_what_wins(self, tmp_path, form):
        program, intra_op, inter_op = FORMS[form]
        script = tmp_path / "train.py"
        script.write_text(program + "print('done')\n")
        done = verify(str(script), TF_NUM_INTRAOP_THREADS="3", TF_NUM_INTEROP_THREADS="2")
        document = document_of(done)
        assert done.stdout.startswith("done\n")
        print(form, document["observed"])
        assert document["observed"]["intra_op"]["log"] == intra_op
        assert document["observed"]["inter_op_pools"] == inter_op
        assert done.returncode == (0 if (intra_op, set(inter_op)) == (3, {2}) else 1)

    def test_streams_arguments_and_status_are_the_scripts(self, tmp_path):
        script = tmp_path / "train.py"
        script.write_text(
            "import sys\nimport tensorflow as tf\ntf.constant(1) + 1\n"
            "print(sys.argv[1:], sys.stdin.read())\nprint('to stderr', file=sys.stderr)\nsys.exit(7)\n"
        )
        environ = {**os.environ, "TFLAUNCH_INTER_OP": "2"}
        command = [PROGRAM, "verify", str(script), "--json", "-q"]
        done = subprocess.run(command, env=environ, input="input", capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stdout) == (7, "['--json', '-q'] input\n")
        assert "to stderr\n" in done.stderr
        assert "LocalDevice" not in done.stderr
        assert "inter op parallelism" not in done.stderr
        assert "intra-op" in done.stderr

    def test_the_log_level_of_the_user(self, tmp_path):
        script = tmp_path / "train.py"
        script.write_text(IMPORT + USE)
        done = subprocess.run(
            [PROGRAM, "verify", str(script)],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.stderr.startswith("tflaunch verify: ")

    def test_a_script_that_silences_the_log(self, tmp_path):
        """What was not seen is not called as planned."""
        script = tmp_path / "train.py"
        script.write_text("import os\nos.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\n" + IMPORT + USE)
        done = verify(str(script))
        assert done.returncode == 1
        assert [row["kind"] for row in document_of(done)["differences"]] == ["not_observed"]

    def test_a_hang(self, tmp_path):
        """One inter-op thread, and a tf.py_function that calls a tf.function inside a tf.function."""
        script = tmp_path / "train.py"
        script.write_text(
            IMPORT + "inner = tf.function(lambda x: x + 1)\n"
            "outer = tf.function(lambda x: tf.py_function(inner, [x], tf.float32))\n"
            "print(outer(tf.constant(1.0)).numpy(), flush=True)\n"
        )
        done = verify("--timeout", "40", str(script), TF_NUM_INTEROP_THREADS="1")
        document = document_of(done)
        assert done.returncode == 1
        difference = document["differences"][-1]
        assert difference["kind"] == "timeout"
        assert "py_function" in difference["reason"]
        assert verify("--timeout", "240", str(script), TF_NUM_INTEROP_THREADS="2").returncode == 0


class TestServing:
    """Latency mode plans one inter-op thread, which graphs that are served can bear."""

    SAVE = (
        "class Model(tf.Module):\n"
        "    @tf.function(input_signature=[tf.TensorSpec([None, 8])])\n"
        "    def __call__(self, x):\n"
        "        return BODY\n"
        "tf.saved_model.save(Model(), sys.argv[1])\n"
    )

    def save(self, tmp_path, body):
        script = tmp_path / "save.py"
        script.write_text("import sys\n" + IMPORT + self.SAVE.replace("BODY", body))
        subprocess.run([sys.executable, script, tmp_path / "model"], check=True, capture_output=True, timeout=300)
        return str(tmp_path / "model")

    def test_many_clients_and_a_pipeline(self, tmp_path):
        saved = self.save(
            tmp_path, "tf.nn.softmax(tf.matmul(x, tf.ones([8, 4]))) + tf.map_fn(tf.reduce_max, x)[:, None]"
        )
        script = tmp_path / "serve.py"
        script.write_text(
            f"import sys\nfrom concurrent.futures import ThreadPoolExecutor\n{IMPORT}"
            "model = tf.saved_model.load(sys.argv[1])\n"
            "with ThreadPoolExecutor(16) as clients:\n"
            "    answers = list(clients.map(lambda n: float(model(tf.fill([2, 8], float(n)))[0, 0]), range(200)))\n"
            "rows = tf.data.Dataset.range(40).map(lambda n: tf.fill([8], tf.cast(n, tf.float32)), 4)\n"
            "batches = rows.batch(8).prefetch(2)\n"
            "print(sum(answers) == sum(n + 0.25 for n in range(200)), sum(len(model(batch)) for batch in batches))\n"
        )
        done = verify("--mode", "latency", "--timeout", "240", str(script), saved)
        assert done.returncode == 0, done.stdout
        assert done.stdout.splitlines()[0] == "True 40"
        assert document_of(done)["planned"]["inter_op"] == 1
        assert document_of(done)["observed"]["inter_op"]["log"] == 1

    def test_a_saved_graph_cannot_call_python(self, tmp_path):
        """It has no Python in it, so what needs a second thread does not run in a server at all."""
        saved = self.save(tmp_path, "tf.py_function(tf.function(lambda v: v + 1), [x], tf.float32)")
        code = f"import sys\n{IMPORT}model = tf.saved_model.load(sys.argv[1])\nmodel(tf.ones([1, 8]))\n"
        done = subprocess.run([sys.executable, "-c", code, saved], capture_output=True, text=True, timeout=300)
        assert done.returncode == 1
        assert "pyfunc" in done.stderr
