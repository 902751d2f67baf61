"""A program of TensorFlow that uses its pools, and then counts its threads."""

import json
from pathlib import Path

import tensorflow as tf

matrix = tf.ones((256, 256))
for _ in range(3):
    matrix = tf.linalg.matmul(matrix, matrix) / 256
numbers = tf.data.Dataset.range(256).map(lambda number: number + 1, num_parallel_calls=tf.data.AUTOTUNE)
total = sum(int(number) for number in numbers)
names = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]
(threads,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Threads:"))
print(json.dumps({"total": total, "threads": int(threads.split()[1]), "names": names}))
