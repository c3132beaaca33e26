"""Named random streams: a generator is derived from (seed, purpose, indices), never shared, never global.

Any part of an experiment can therefore run alone, in any order, on any machine, and draw the same numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.random.bit_generator import ISeedSequence, SeedSequence

#: So many streams are derived one by one, because that takes less time.
FEW = 7


def stream(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """Return the generator named by ``(seed, purpose, *indices)``.

    Parameters
    ----------
    seed : non-negative experiment seed.
    purpose : what the numbers are for, e.g. ``"subsample"`` or ``"spsa"``.
    indices : non-negative integers such as round and client.
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(stream_key(seed, purpose, *indices))))


def stream_key(seed: int, purpose: str, *indices: int) -> tuple[int, ...]:
    """Return the entropy words behind :func:`stream`; distinct names give distinct keys."""
    if not all(0 <= word < 2**32 for word in (seed, *indices)):
        raise ValueError(f"seed and indices must be from 0 to 2**32 - 1, got seed={seed}, indices={indices}")
    # CRC-32 is a fixed, platform-independent map from names to words (Python's hash() is salted a process). The count
    # of indices keeps (s, p) and (s, p, 0) apart: SeedSequence pads with zeros.
    return (int(seed), zlib.crc32(purpose.encode()), len(indices), *(int(i) for i in indices))


def streams(seed: int, purpose: str, *indices: int, last: Iterable[int]) -> list[np.random.Generator]:
    """Return ``[stream(seed, purpose, *indices, i) for i in last]``, in less time if there are many.

    NumPy hashes the words of one name in about 20 microseconds. Here all names are hashed together, by the algorithm
    of ``numpy.random.SeedSequence``, which NumPy keeps stable.
    """
    ends = [int(i) for i in last]
    if len(ends) < FEW:
        return [stream(seed, purpose, *indices, end) for end in ends]
    keys = [stream_key(seed, purpose, *indices, end) for end in (min(ends), max(ends))]  # refuses what is out of range
    words = np.empty((len(keys[0]), len(ends)), dtype=np.uint32)
    words[:-1], words[-1] = np.array(keys[0][:-1], dtype=np.uint32)[:, None], ends
    return [np.random.Generator(np.random.PCG64(cast(SeedSequence, _Hashed(state)))) for state in _states(words)]


class _Hashed(ISeedSequence):
    """A seed sequence whose state is known already: four words of 64 bits, as PCG64 asks for."""

    def __init__(self, state: np.ndarray) -> None:
        self.state = state

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        """Return the state; nobody else asks for another number of words."""
        if (n_words, dtype) != (4, np.uint64):
            raise ValueError(f"expected 4 words of 64 bits, got {n_words} of {dtype}")
        return self.state


_POOL = 4
_INIT_A, _MULT_A, _INIT_B, _MULT_B = 0x43B0D7E5, 0x931E8875, 0x8B51F9DD, 0x58F38DED
_MIX_LEFT, _MIX_RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_SHIFT = np.uint32(16)


@lru_cache(maxsize=8)
def _constants(start: int, factor: int, count: int) -> np.ndarray:
    """Return the constants of SeedSequence's hash: those of ``count`` calls, and one more, ``(count + 1, 1)``."""
    found = [start]
    for _ in range(count):
        found.append(found[-1] * factor % 2**32)
    return np.array(found, dtype=np.uint32)[:, None]


def _hashed(words: np.ndarray, constants: np.ndarray, first: int) -> np.ndarray:
    """Return SeedSequence's hash of the rows of ``words``: calls number ``first``, ``first + 1`` and so on."""
    count = len(words)
    words = (words ^ constants[first : first + count]) * constants[first + 1 : first + count + 1]
    return words ^ (words >> _SHIFT)


def _states(words: np.ndarray) -> np.ndarray:
    """Return SeedSequence's ``generate_state(4, np.uint64)`` for many keys, ``(n, 4)``; ``words : (length, n)``.

    The calls of its hash are numbered, and calls that do not need each other's results are made together.
    """
    length, n = max(len(words), _POOL), words.shape[1]
    constants = _constants(_INIT_A, _MULT_A, _POOL * length)
    entropy = np.zeros((length, n), dtype=np.uint32)
    entropy[: len(words)] = words
    pool, call = _hashed(entropy[:_POOL], constants, 0), _POOL
    for k in range(_POOL):
        others = [j for j in range(_POOL) if j != k]
        pool[others] = _mixed(pool[others], _hashed(np.repeat(pool[k : k + 1], _POOL - 1, axis=0), constants, call))
        call += _POOL - 1
    for word in entropy[_POOL:]:
        pool = _mixed(pool, _hashed(np.repeat(word[None], _POOL, axis=0), constants, call))
        call += _POOL
    out = _hashed(np.concatenate([pool, pool]), _constants(_INIT_B, _MULT_B, 2 * _POOL), 0).astype(np.uint64)
    return np.ascontiguousarray((out[::2] | out[1::2] << np.uint64(32)).T)


def _mixed(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    result: np.ndarray = x * _MIX_LEFT - y * _MIX_RIGHT
    return result ^ (result >> _SHIFT)
