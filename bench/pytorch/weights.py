"""Weights and data that PyTorch and the Rust engine generate alike.

Checkpoints are too large to commit, so both sides compute them from names. For a tensor called `name` and the
flat index `i` of an element in PyTorch's own layout (OIHW for a convolution, NCHW for images):

    u(name, i) = splitmix64(fnv1a64(name) + i * 0x9E3779B97F4A7C15) >> 40        24 bits, arithmetic modulo 2^64
    r(name, i) = u / 2^24 - 0.5                                                  in [-0.5, 0.5), exact in f32

fnv1a64 is the 64-bit FNV-1a hash of the UTF-8 bytes; splitmix64(x) adds 0x9E3779B97F4A7C15 to x and then mixes
(shifts 30, 27, 31; multipliers 0xBF58476D1CE4E5B9 and 0x94D049BB133111EB). A parameter's element is

    shape has two or more axes    r * sqrt(12 / fan_in)    fan_in = product of all axes but the first
    name ends in "bias"           0.1 * r
    name ends in "bn3.weight"     (1 + 0.2 * r) / 8
    any other (norm weights)      1 + 0.2 * r

sqrt(12) * r has unit variance, so activations stay near one. The last norm of a bottleneck is damped because a deep
ResNet with full-size random branches amplifies rounding ten-thousandfold: PyTorch's own f32 and f64 gradients then
differ by one percent, which would hide real errors. Images are sqrt(12) * r of the input's name; token ids
and labels are (u * n) >> 24 of the names "input" and "labels", n being the vocabulary or the number of classes.
Everything is computed in f64 and rounded to f32 once, so that the two sides agree in every bit.
"""

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def fnv1a64(text: str) -> int:
    """The 64-bit FNV-1a hash of the text's UTF-8 bytes."""
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = (state ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return state


def bits24(name: str, count: int) -> np.ndarray:
    """u(name, i) for i in 0..count, as int64."""
    with np.errstate(over="ignore"):
        z = np.uint64(fnv1a64(name)) + np.arange(count, dtype=np.uint64) * GOLDEN + GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.int64)


def centred(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """r(name, i) in f64, in the given shape."""
    return (bits24(name, int(np.prod(shape))) / 2.0**24 - 0.5).reshape(shape)


def parameter(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The f32 values of one parameter."""
    r = centred(name, shape)
    if len(shape) > 1:
        value = r * np.sqrt(12.0 / np.prod(shape[1:]))
    elif name.endswith("bias"):
        value = 0.1 * r
    elif name.endswith("bn3.weight"):
        value = (1.0 + 0.2 * r) / 8.0
    else:
        value = 1.0 + 0.2 * r
    return value.astype(np.float32)


def image(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """An f32 tensor of unit variance."""
    return (centred(name, shape) * np.sqrt(12.0)).astype(np.float32)


def ids(name: str, shape: tuple[int, ...], below: int) -> np.ndarray:
    """Integers in 0..below: token ids or labels."""
    return ((bits24(name, int(np.prod(shape))) * below) >> 24).reshape(shape)
