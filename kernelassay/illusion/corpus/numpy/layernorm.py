"""Layer norm over the last axis: population variance, no weight, no bias."""

import numpy as np

EPS = np.float32(1e-5)


def run(x):
    rows = x.astype(np.float32)
    centred = rows - rows.mean(axis=-1, keepdims=True)
    # Of equal elements the rounded mean would leave a rest that the root of eps blows up.
    centred -= centred.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    return (centred / np.sqrt(variance + EPS)).astype(x.dtype)
