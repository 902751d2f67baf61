"""A function that XLA compiles."""

import tensorflow as tf
from counts import tell


@tf.function(jit_compile=True)
def work(matrix: tf.Tensor) -> tf.Tensor:
    """A product and something elementwise; the numbers are whole, so the sum is exact in any order."""
    return tf.reduce_sum(tf.nn.relu(tf.matmul(matrix, matrix, transpose_b=True) - 5.0))


matrix = tf.reshape(tf.cast(tf.range(256 * 256) % 3, tf.float32), (256, 256))
print(int(work(matrix)))
print(int(work(matrix[:128])))
tell()
