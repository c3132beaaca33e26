"""Offline stand-in for DemoHumanOrWorm: sequences from a mixture of order-2 Markov chains.

Each class has several components, each with its own 3-mer frequencies f. A sequence draws its component by weight, its
first three letters from f, and each further letter from P(c | ab) = f(abc) / sum_c f(abc).
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np
import pandas as pd

from qfl_core.base.streams import stream

CLASSES = ("human", "worm")
ALPHABET = np.frombuffer(b"ACGT", dtype=np.uint8)
BLOCK = 10_000


def generate_genome(n_per_class: int, seed: int, length: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Generate sequences of both classes, class-sorted like the official file list.

    Parameters
    ----------
    n_per_class : sequences per class, at least 1.
    seed : non-negative. Equal arguments give equal sequences on every machine. Sequences come in blocks of
        10,000 per class, each with its own stream.
    length : letters per sequence, at least 3.

    Returns
    -------
    sequences : (2 n_per_class,) bytes of dtype ``S<length>``, all human, then all worm;
        ``sequences.view(np.uint8).reshape(-1, length)`` gives the letters' codes without a copy.
    labels : (2 n_per_class,) int64, human = 0, worm = 1.
    """
    if n_per_class < 1:
        raise ValueError(f"n_per_class must be at least 1, got {n_per_class}")
    if length < 3:
        raise ValueError(f"length must be at least 3, got {length}")
    if seed < 0:
        raise ValueError(f"seed must be non-negative, got {seed}")
    letters = np.empty((2 * n_per_class, length), dtype=np.uint8)
    for label, name in enumerate(CLASSES):
        for block, start in enumerate(range(0, n_per_class, BLOCK)):
            stop = min(start + BLOCK, n_per_class)
            rng = stream(seed, "standin-genome", label, block)
            rows = slice(label * n_per_class + start, label * n_per_class + stop)
            letters[rows] = ALPHABET[_sample(name, stop - start, length, rng)]
    labels = np.repeat(np.arange(2, dtype=np.int64), n_per_class)
    return letters.view(f"S{length}").ravel(), labels


def _sample(name: str, n: int, length: int, rng: np.random.Generator) -> np.ndarray:
    """Return letter positions (n, length) in 0..3 of n sequences of one class."""
    weights, starts, steps = chains(name)
    component = np.searchsorted(weights, rng.random(n), side="right")
    first = np.sum(starts[component] <= rng.random((n, 1)), axis=1)
    letters = np.empty((length, n), dtype=np.uint8)
    letters[:3] = first // 16, first // 4 % 4, first % 4
    # The state is (component, ab) as one row number of the transition table.
    base, pair = component * 16, first % 16
    for position in range(3, length):
        cumulative = steps[base + pair]
        letter = np.sum(cumulative <= rng.random((n, 1)), axis=1)
        letters[position] = letter
        pair = pair % 4 * 4 + letter
    return letters.T


@cache
def chains(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the cumulative probabilities of the G components of one class, without the final 1.

    Returns
    -------
    weights : (G - 1,) of the components.
    starts : (G, 63) of the first 3-mer.
    steps : (16 G, 3) of the next letter; row 16 g + 4 a + b belongs to component g after letters ab.
    """
    with files("qfl_core.data").joinpath("facts", "genome_markov_components.csv").open("rb") as handle:
        facts = pd.read_csv(handle)
    facts = facts[facts["class"] == name].sort_values(["component", "kmer"], kind="stable")
    frequency = facts["frequency"].to_numpy().reshape(-1, 64)
    weight = facts["weight"].to_numpy().reshape(-1, 64)[:, 0]
    pairs = frequency.reshape(-1, 4)
    # A pair that never occurs has no successor to learn from: the next letter is uniform.
    pairs = np.where(pairs.sum(axis=1, keepdims=True) > 0.0, pairs, 1.0)
    return _cumulative(weight), _cumulative(frequency), _cumulative(pairs)


def _cumulative(weights: np.ndarray) -> np.ndarray:
    total = np.cumsum(weights, axis=-1)
    return np.round(total[..., :-1] / total[..., -1:], 12)
