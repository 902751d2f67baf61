"""What `tflaunch verify` runs in a fresh interpreter: makes TensorFlow's pools one by one and counts their threads.

TensorFlow says nowhere how large its pools are, but each is made at a known step, and all its threads at once. So the
number of entries in /proc/self/task is taken before and after each step. Before a step a mark is written to file
descriptor 2, between the lines of TensorFlow's log, so that these can be told apart by step as well.
"""

from __future__ import annotations

import json
import os
from typing import Any

from tflaunch.files import Files

MARK = "tflaunch-step "


def main(descriptor: int) -> None:
    """Write the findings as JSON to the descriptor, or why TensorFlow cannot be imported."""
    try:
        import tensorflow as tf
    except ImportError as error:
        return _write(descriptor, {"import_error": str(error)})
    from tensorflow.python.client import device_lib
    from tensorflow.python.eager import context

    grown: dict[str, int] = {}

    def step(name: str, action: Any) -> Any:  # noqa: ANN401  # whatever the step makes
        os.write(2, f"\n{MARK}{name}\n".encode())
        before = _threads()
        result = action()
        grown[name] = _threads() - before
        return result

    def graph() -> Any:  # noqa: ANN401
        with tf.Graph().as_default():
            return tf.constant(1)

    # The threads that the first graph starts must not be counted as a pool's.
    step("graph", graph)
    step("intra_op", device_lib.list_local_devices)
    step("inter_op", context.ensure_initialized)
    step("session_inter_op", lambda: tf.compat.v1.Session(graph=tf.Graph()))
    # An iterator with a private pool of one thread has all the other threads of an iterator, so the difference is the
    # size of the pool that it makes by itself. The first one of all starts threads that later ones share.
    iterators = [
        step("first_iterator", lambda: _iterator(tf, 1)),
        step("iterator_of_one", lambda: _iterator(tf, 1)),
        step("iterator", lambda: _iterator(tf, None)),
    ]
    step("jit_compile", lambda: tf.function(lambda x: x * 2 + 1, jit_compile=True)(tf.ones((8, 8))))
    os.write(2, f"\n{MARK}end\n".encode())
    _write(
        descriptor,
        {
            "tensorflow": tf.__version__,
            "grown": grown,
            "xla_intra_op": _threads_named("tf_XLAEigen"),
            "process_threads": _threads(),
            "allowed_cpus": len(os.sched_getaffinity(0)),
            "libraries": _libraries(),
        },
    )
    # Till here they were alive, with their threads.
    del iterators
    return None


def _iterator(tf: Any, private_threads: int | None) -> Any:  # noqa: ANN401
    data = tf.data.Dataset.range(4).batch(2)
    if private_threads is not None:
        options = tf.data.Options()
        options.threading.private_threadpool_size = private_threads
        data = data.with_options(options)
    iterator = iter(data)
    next(iterator)
    return iterator


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _threads_named(name: str) -> int:
    files = Files()
    tasks = files.names("/proc/self/task")
    return sum((files.read(f"/proc/self/task/{task}/comm") or "").strip() == name for task in tasks)


def _libraries() -> list[dict[str, Any]]:
    """The BLAS and OpenMP libraries that are loaded, with their threads."""
    from threadpoolctl import threadpool_info

    return [
        {
            "api": info["user_api"],
            "kind": info["internal_api"],
            "library": info["prefix"],
            "threads": info["num_threads"],
        }
        for info in threadpool_info()
    ]


def _write(descriptor: int, findings: dict[str, Any]) -> None:
    with os.fdopen(descriptor, "w") as file:
        json.dump(findings, file)
