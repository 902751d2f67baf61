"""A convolutional network that is trained from tf.data."""

import numpy as np
import tensorflow as tf
from counts import tell

tf.keras.utils.set_random_seed(1)
pictures = (np.arange(256 * 12 * 12) % 17).reshape(256, 12, 12, 1).astype("float32") / 17
labels = np.arange(256) % 4
data = (
    tf.data.Dataset.from_tensor_slices((pictures, labels))
    .map(lambda picture, label: (picture * 2 - 1, label), num_parallel_calls=tf.data.AUTOTUNE)
    .batch(32)
    .prefetch(tf.data.AUTOTUNE)
)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Conv2D(8, 3, activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(4, activation="softmax"),
    ]
)
model.compile(optimizer="sgd", loss="sparse_categorical_crossentropy")
for loss in model.fit(data, epochs=2, verbose=0).history["loss"]:
    print(f"{loss:.4f}")

iterator = iter(data)
print(next(iterator)[1].numpy().tolist())
tell()
