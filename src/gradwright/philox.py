"""Random bits as a pure function of where they are used: Philox4x32-10.

The word of element i of a parameter is word ``i & 3`` of the block with

    counter = (block & 0xffffffff, block >> 32 | step >> 32 << 16, step & 0xffffffff, identity)
    key     = (seed & 0xffffffff, seed >> 32 << 8 | draw),          block = i >> 2

where `step` is the count of the parameter's updates, `identity` its position, `draw` the number
of the draw in the rule. Integers are therefore equal in every framework, on every machine, for
any sharding and number of threads.

J. Salmon, M. Moraes, R. Dror, D. Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011.
"""

from typing import Any, TypeAlias

import numpy as np

Words: TypeAlias = tuple[Any, Any, Any, Any]

MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
KEY_STEPS = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10
LOW = 0xFFFFFFFF
MAX_SEED, MAX_STEP, MAX_IDENTITY, MAX_DRAW = 2**56, 2**48, 2**32, 2**8 - 1
ROUNDING = MAX_DRAW  # the draw that no rule makes


def key_of(seed: int, draw: int) -> tuple[int, int]:
    return seed & LOW, seed >> 32 << 8 | draw


def counter_of(step: int, identity: int) -> tuple[int, int, int]:
    """The upper three words of the counter, for blocks below 2**32."""
    return step >> 32 << 16, step & LOW, identity


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """Four words for each counter: arrays of uint64 that hold 32-bit values."""
    c0, c1, c2, c3 = (np.asarray(c, np.uint64) for c in counter)
    m0, m1 = (np.uint64(m) for m in MULTIPLIERS)
    low, half = np.uint64(LOW), np.uint64(32)
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = c0 * m0, c2 * m1
        c0, c1, c2, c3 = (
            (p1 >> half) ^ c1 ^ np.uint64(k0),
            p1 & low,
            (p0 >> half) ^ c3 ^ np.uint64(k1),
            p0 & low,
        )
        k0, k1 = (k0 + KEY_STEPS[0]) & LOW, (k1 + KEY_STEPS[1]) & LOW
    return c0, c1, c2, c3


def words(
    first: int, size: int, step: int, identity: int, seed: int, draw: int
) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """The words of elements first … first + size - 1 of one parameter."""
    start, stop = first >> 2, (first + size + 3) >> 2
    block = np.arange(start, stop, dtype=np.uint64)
    step_high, step_low, identity = counter_of(step, identity)
    counter = (block & np.uint64(LOW), (block >> np.uint64(32)) | np.uint64(step_high))
    four = philox((*counter, step_low, identity), key_of(seed, draw))
    out = np.empty((len(block), 4), np.uint32)
    for k, word in enumerate(four):
        out[:, k] = word
    return out.ravel()[first & 3 : (first & 3) + size]


def random_bits(
    step: int, identity: int, seed: int, *, draw: int, lane: str, shape: tuple[int, ...]
) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """One word for each element of an array.

    `lane` says which. ``own`` is the element's own word. Box and Muller make two normals from the
    two words of a pair of elements (2k, 2k + 1): ``even`` is the word of element 2k for both, which
    gives the radius, ``odd`` that of element 2k + 1, the angle. ``place`` is the element's place in
    its pair, 0 or 1.
    """
    size = int(np.prod(shape, dtype=np.int64))
    if lane == "own":
        return words(0, size, step, identity, seed, draw).reshape(shape)
    if lane == "place":
        return (np.arange(size, dtype=np.uint32) & np.uint32(1)).reshape(shape)
    pairs = words(0, size + size % 2, step, identity, seed, draw).reshape(-1, 2)
    return np.repeat(pairs[:, ("even", "odd").index(lane)], 2)[:size].reshape(shape)
