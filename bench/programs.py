"""The measured TensorFlow programs, in one process that is told by its standard input what to run.

A line "cnn 2.0" runs that program for two seconds. The answer is the line "warm" when the measured time begins, then a
line of JSON: the seconds each step took, those of the whole turn, and how many threads the process had at the end. So
one process can be measured in turns with others, without its start in the result, and while it waits it uses no CPU.

cnn          training steps of the small Keras CNN of TensorFlow's tutorial, batches of 32
mlp          training steps of a Keras MLP, batches of 64
transformer  training steps of two Keras attention layers, batches of 16 sequences of 32
lstm         training steps of a Keras LSTM, batches of 32 sequences of 16
data         training steps of the CNN, fed by a tf.data pipeline that decodes, resizes and flips images
product      a matrix product of NumPy, which calls BLAS
blas         training steps of the CNN, each after such a product
wide         eight independent chains of small matrix products in one tf.function
matmul       one product of two 1024 x 1024 matrices
infer        inference of the CNN, one image a request
serve        the same, by 16 clients at once, each in a thread that sends the next request when it has its answer
vision       inference of a network of large convolutions, one image of 112 x 112 a request
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

# Not measured: what the last program or the wait left behind (idle CPUs, a quota saved up) is over by then.
WARM_UP_SECONDS = 0.2


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


@functools.cache
def make_transformer() -> tf.keras.Model:
    layers = tf.keras.layers
    tokens = layers.Input((32,), dtype="int32")
    states = layers.Embedding(1000, 64)(tokens)
    for _ in range(2):
        attended = layers.MultiHeadAttention(num_heads=4, key_dim=16)(states, states)
        states = layers.LayerNormalization()(states + attended)
        dense = layers.Dense(64)(layers.Dense(256, activation="relu")(states))
        states = layers.LayerNormalization()(states + dense)
    model = tf.keras.Model(tokens, layers.Dense(10)(layers.GlobalAveragePooling1D()(states)))
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@functools.cache
def make_lstm() -> tf.keras.Model:
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((16, 32)), layers.LSTM(128), layers.Dense(10)])
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def cnn() -> Iterator[None]:
    random = np.random.default_rng(1)
    return train(make_cnn(), random.random((32, 32, 32, 3), np.float32))


def mlp() -> Iterator[None]:
    random = np.random.default_rng(1)
    return train(make_mlp(), random.random((64, 256), np.float32))


def transformer() -> Iterator[None]:
    random = np.random.default_rng(1)
    return train(make_transformer(), random.integers(0, 1000, (16, 32), np.int32))


def lstm() -> Iterator[None]:
    random = np.random.default_rng(1)
    return train(make_lstm(), random.random((32, 16, 32), np.float32))


def train(model: tf.keras.Model, batch: np.ndarray) -> Iterator[None]:
    labels = np.random.default_rng(2).integers(0, 10, len(batch))
    while True:
        model.train_on_batch(batch, labels)
        yield


def product() -> Iterator[None]:
    left, right = np.random.default_rng(1).random((2, 768, 768), np.float32)
    while True:
        np.matmul(left, right)
        yield


def blas() -> Iterator[None]:
    for _ in zip(product(), cnn()):
        yield


def wide() -> Iterator[None]:
    return run(make_wide())


@functools.cache
def make_wide() -> Callable[[], tf.Tensor]:
    matrices = [tf.random.stateless_normal((160, 160), (1, seed)) / 13 for seed in range(8)]

    @tf.function
    def chains() -> tf.Tensor:
        ends = []
        for matrix in matrices:
            chain = matrix
            for _ in range(6):
                chain = tf.tanh(tf.matmul(chain, matrix))
            ends.append(tf.reduce_sum(chain))
        return tf.add_n(ends)

    return chains


def matmul() -> Iterator[None]:
    return run(make_matmul())


@functools.cache
def make_matmul() -> Callable[[], tf.Tensor]:
    left, right = (tf.random.stateless_normal((1024, 1024), (1, seed)) for seed in (1, 2))
    return tf.function(lambda: tf.reduce_sum(tf.matmul(left, right)))


def infer() -> Iterator[None]:
    return run(make_infer())


@functools.cache
def make_infer() -> Callable[[], tf.Tensor]:
    model = make_cnn()
    image = tf.constant(np.random.default_rng(1).random((1, 32, 32, 3), np.float32))
    return tf.function(lambda: model(image, training=False))


def vision() -> Iterator[None]:
    return run(make_vision())


@functools.cache
def make_vision() -> Callable[[], tf.Tensor]:
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((112, 112, 3))])
    for filters in (32, 64, 128):
        model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
        model.add(layers.MaxPooling2D())
    model.add(layers.GlobalAveragePooling2D())
    model.add(layers.Dense(10))
    image = tf.constant(np.random.default_rng(1).random((1, 112, 112, 3), np.float32))
    return tf.function(lambda: model(image, training=False))


def run(function: Callable[[], tf.Tensor]) -> Iterator[None]:
    while True:
        function().numpy()
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
    program.__name__: program
    for program in (cnn, mlp, transformer, lstm, data, product, blas, wide, matmul, infer, vision)
} | {"serve": infer}

# How many threads run the program at once.
CLIENTS = {"serve": 16}


def measure(name: str, seconds: float) -> dict[str, object]:
    """Run steps for the time given; how long each took."""
    # Made anew for each turn, and gone after it: the threads of a pipeline must not run in the next program's time.
    clients = [PROGRAMS[name]() for _ in range(CLIENTS.get(name, 1))]
    next(clients[0])  # traces its functions
    take_steps(clients, WARM_UP_SECONDS)
    print("warm", flush=True)
    start = time.perf_counter()
    durations = take_steps(clients, seconds)
    elapsed = time.perf_counter() - start
    return {"durations": durations, "elapsed": elapsed, "threads": len(os.listdir("/proc/self/task"))}


def take_steps(clients: list[Iterator[None]], seconds: float) -> list[float]:
    """The durations of the steps that all clients took side by side, in seconds."""
    if len(clients) == 1:
        return take_steps_of_one(clients[0], seconds)
    with ThreadPoolExecutor(len(clients)) as executor:
        return [step for steps in executor.map(take_steps_of_one, clients, [seconds] * len(clients)) for step in steps]


def take_steps_of_one(steps: Iterator[None], seconds: float) -> list[float]:
    durations = []
    end = (last := time.perf_counter()) + seconds
    while last < end:
        next(steps)
        now = time.perf_counter()
        durations.append(now - last)
        last = now
    return durations


def main() -> None:
    for line in sys.stdin:
        name, seconds = line.split()
        print(json.dumps(measure(name, float(seconds))), flush=True)


if __name__ == "__main__":
    main()
