"""Trains a small network on handwritten digits and prints the thread settings it ran with.

    tflaunch run examples/train.py
    tflaunch run --cpus 1.5 examples/train.py --epochs 3

Nothing here knows of tflaunch: the settings come in as environment variables, before TensorFlow is imported. Start it
with plain `python` to see the difference. It needs tensorflow (or tensorflow-cpu) and scikit-learn, which brings the
digits: 1797 pictures of 8 x 8 pixels.
"""

from __future__ import annotations

import argparse
import os
import sys

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def main() -> None:
    """Train, test, and show the settings."""
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=8, help="how often the network sees each picture (default: 8)")
    epochs = parser.parse_args().epochs

    tf.keras.utils.set_random_seed(1)
    digits = load_digits()
    pictures = digits.images[..., None].astype("float32") / 16  # pixels are 0 to 16; the last axis is the one colour
    train_x, test_x, train_y, test_y = train_test_split(pictures, digits.target, test_size=0.2, random_state=1)

    model = make_model()
    # A progress bar for people; one line an epoch where the output goes to a file.
    verbose = 1 if sys.stdout.isatty() else 2
    model.fit(train_x, train_y, batch_size=32, epochs=epochs, validation_split=0.1, verbose=verbose)
    _, accuracy = model.evaluate(test_x, test_y, verbose=0)

    print(f"\ntest accuracy: {accuracy:.3f}\n")
    print_thread_settings()


def make_model() -> tf.keras.Model:
    """A convolutional network of two layers; its matrix work runs in TensorFlow's intra-op pool."""
    model = tf.keras.Sequential(
        [
            tf.keras.Input((8, 8, 1)),
            tf.keras.layers.Conv2D(32, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def print_thread_settings() -> None:
    """What decides the number of threads, as this program sees it."""
    settings = {
        name: os.environ.get(name, "not set")
        for name in (
            "TF_NUM_INTRAOP_THREADS",
            "TF_NUM_INTEROP_THREADS",
            "OMP_NUM_THREADS",
            "OPENBLAS_NUM_THREADS",
            "PYTHON_CPU_COUNT",
        )
    }
    settings["os.cpu_count()"] = str(os.cpu_count())
    if hasattr(os, "sched_getaffinity"):
        settings["CPUs this process may use"] = str(len(os.sched_getaffinity(0)))
    if os.path.isdir("/proc/self/task"):
        settings["threads of this process"] = str(len(os.listdir("/proc/self/task")))
    width = max(map(len, settings))
    print("thread settings")
    for name, value in settings.items():
        print(f"  {name:{width}}  {value}")


if __name__ == "__main__":
    main()
