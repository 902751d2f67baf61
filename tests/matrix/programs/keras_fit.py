"""Keras with the backend of KERAS_BACKEND: from arrays, and from a PyDataset with workers."""

import keras
import numpy as np
from counts import tell

keras.utils.set_random_seed(1)
inputs = ((np.arange(128 * 8) % 13) / 13).reshape(128, 8).astype("float32")
targets = inputs.sum(axis=1, keepdims=True)


class Batches(keras.utils.PyDataset):
    """The same numbers, made by workers."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return inputs[index * 32 : index * 32 + 32], targets[index * 32 : index * 32 + 32]


model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
print(keras.backend.backend())
print(f"{model.fit(inputs, targets, shuffle=False, verbose=0).history['loss'][0]:.4f}")
print(f"{model.fit(Batches(workers=2), shuffle=False, verbose=0).history['loss'][0]:.4f}")
print(f"{float(model.predict(inputs[:4], verbose=0).sum()):.4f}")
tell()
