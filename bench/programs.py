"""The measured TensorFlow programs, in one process that is told by its standard input what to run.

A line "cnn 2.0" runs that program for two seconds. The answer is the line "warm" when the measured time begins, then a
line of JSON: the seconds each step took, and how many threads the process had at the end. So one process can be
measured in turns with others, without its start in the result, and while it waits it uses no CPU.

cnn      training steps of the small Keras CNN of TensorFlow's tutorial, batches of 32
mlp      training steps of a Keras MLP, batches of 64
wide     eight independent chains of small matrix products in one tf.function
matmul   one product of two 1024 x 1024 matrices
infer    inference of the CNN, one image a request
data     training steps of the CNN, fed by a tf.data pipeline that decodes, resizes and flips images
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

# Not measured: what the last program or the wait left behind (idle CPUs, a quota saved up) is over by then.
WARM_UP_SECONDS = 0.3


@functools.cache
def make_cnn() -> tf.keras.Model:
    """The network of TensorFlow's tutorial for CIFAR-10: https://www.tensorflow.org/tutorials/images/cnn"""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((32, 32, 3)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@functools.cache
def make_mlp() -> tf.keras.Model:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [layers.Input((256,)), *(layers.Dense(512, activation="relu") for _ in range(3)), layers.Dense(10)]
    )
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def cnn() -> Iterator[None]:
    model = make_cnn()
    random = np.random.default_rng(1)
    images, labels = random.random((32, 32, 32, 3), np.float32), random.integers(0, 10, 32)
    while True:
        model.train_on_batch(images, labels)
        yield


def mlp() -> Iterator[None]:
    model = make_mlp()
    random = np.random.default_rng(1)
    rows, labels = random.random((64, 256), np.float32), random.integers(0, 10, 64)
    while True:
        model.train_on_batch(rows, labels)
        yield


def wide() -> Iterator[None]:
    matrices = [tf.random.stateless_normal((160, 160), (1, seed)) / 13 for seed in range(8)]

    @tf.function
    def chains() -> tf.Tensor:
        ends = []
        for matrix in matrices:
            product = matrix
            for _ in range(6):
                product = tf.tanh(tf.matmul(product, matrix))
            ends.append(tf.reduce_sum(product))
        return tf.add_n(ends)

    while True:
        chains().numpy()
        yield


def matmul() -> Iterator[None]:
    left, right = (tf.random.stateless_normal((1024, 1024), (1, seed)) for seed in (1, 2))
    product = tf.function(lambda: tf.reduce_sum(tf.matmul(left, right)))
    while True:
        product().numpy()
        yield


def infer() -> Iterator[None]:
    model = make_cnn()
    image = tf.constant(np.random.default_rng(1).random((1, 32, 32, 3), np.float32))
    answer = tf.function(lambda: model(image, training=False))
    while True:
        answer().numpy()
        yield


def data() -> Iterator[None]:
    model = make_cnn()
    random = np.random.default_rng(1)
    images = [tf.io.encode_png(image).numpy() for image in random.integers(0, 255, (64, 64, 64, 3), np.uint8)]
    labels = random.integers(0, 10, 64)

    def prepare(png: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image = tf.image.resize(tf.io.decode_png(png, channels=3), (32, 32))
        return tf.image.random_flip_left_right(image) / 255, label

    pipeline = (
        tf.data.Dataset.from_tensor_slices((images, labels))
        .repeat()
        .map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(32, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )
    for batch, targets in pipeline:
        model.train_on_batch(batch, targets)
        yield


PROGRAMS: dict[str, Callable[[], Iterator[None]]] = {
    program.__name__: program for program in (cnn, mlp, wide, matmul, infer, data)
}


def measure(steps: Iterator[None], seconds: float) -> dict[str, object]:
    """Run steps for the time given; how long each took."""
    durations = []
    next(steps)  # traces its functions
    warm = time.perf_counter() + WARM_UP_SECONDS
    while time.perf_counter() < warm:
        next(steps)
    print("warm", flush=True)
    end = (last := time.perf_counter()) + seconds
    while last < end:
        next(steps)
        now = time.perf_counter()
        durations.append(now - last)
        last = now
    return {"durations": durations, "threads": len(os.listdir("/proc/self/task"))}


def main() -> None:
    for line in sys.stdin:
        name, seconds = line.split()
        # A program's pipeline and functions end with it: their threads must not run in the next one's time.
        print(json.dumps(measure(PROGRAMS[name](), float(seconds))), flush=True)


if __name__ == "__main__":
    main()
