"""Named random streams: a generator is derived from (seed, purpose, indices), never shared, never global.

Any part of an experiment can therefore run alone, in any order, on any machine, and draw the same numbers.
"""

from __future__ import annotations

import zlib

import numpy as np


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
