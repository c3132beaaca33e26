"""The genome stand-in follows its Markov chains, is class-sorted, and has the same bytes everywhere."""

import hashlib

import numpy as np
import pytest

from qfl_core.base.streams import stream
from qfl_core.data.genome import kmer_counts
from qfl_core.data.standin.genome import _sample, chains, generate_genome

GOLDEN = "55310d9e50a562348e1f5e8c777c7048c0d31a1b75dfdb85db6f5c1944a3fb38"


def test_sequences_are_class_sorted_bytes_of_the_alphabet():
    sequences, labels = generate_genome(50, seed=0)
    assert sequences.dtype == np.dtype("S200")
    assert labels.tolist() == [0] * 50 + [1] * 50
    assert labels.dtype == np.int64
    letters = sequences.view(np.uint8).reshape(-1, 200)
    assert set(letters.ravel()) == set(b"ACGT")


@pytest.mark.parametrize("length", [3, 4, 37])
def test_length_is_a_parameter(length):
    sequences, _ = generate_genome(4, seed=0, length=length)
    assert {len(sequence) for sequence in sequences} == {length}


def test_same_seed_repeats_and_another_differs():
    first, _ = generate_genome(20, seed=1)
    assert (first == generate_genome(20, seed=1)[0]).all()
    assert not (first == generate_genome(20, seed=2)[0]).any()


def test_no_two_sequences_are_equal_across_blocks_and_classes():
    sequences, _ = generate_genome(10_500, seed=0)
    assert len(np.unique(sequences)) == len(sequences)


@pytest.mark.parametrize("name", ["human", "worm"])
def test_tables_are_cumulative_probabilities(name):
    weights, starts, steps = chains(name)
    assert (weights.shape, starts.shape, steps.shape) == ((23,), (24, 63), (24 * 16, 3))
    for cumulative in (weights, starts, steps):
        assert (np.diff(cumulative, axis=-1) >= 0.0).all()
        assert cumulative.min() >= 0.0
        assert cumulative.max() <= 1.0


@pytest.mark.parametrize("name", ["human", "worm"])
def test_three_mers_have_the_mixture_frequencies(name):
    weights, starts, _ = chains(name)
    weight = np.diff(weights, prepend=0.0, append=1.0)
    expected = weight @ np.diff(starts, prepend=0.0, append=1.0, axis=1)
    letters = _sample(name, 8_000, 200, stream(0, "test-genome"))
    sequences = np.frombuffer(b"ACGT", dtype=np.uint8)[letters].copy().view("S200").ravel()
    counts = kmer_counts(sequences, 3).sum(axis=0)
    assert np.abs(counts / counts.sum() - expected).max() < 0.003


def test_next_letter_has_the_probabilities_of_its_component(monkeypatch):
    weights, starts, steps = chains("worm")
    only_first = np.ones_like(weights), starts, steps
    monkeypatch.setattr("qfl_core.data.standin.genome.chains", lambda name: only_first)
    letters = _sample("worm", 5_000, 60, stream(0, "test-genome")).astype(int)
    state = letters[:, :-2] * 4 + letters[:, 1:-1]
    counts = np.bincount((state * 4 + letters[:, 2:]).ravel(), minlength=64).reshape(16, 4)
    measured = np.cumsum(counts, axis=1)[:, :3] / counts.sum(axis=1, keepdims=True)
    frequent = counts.sum(axis=1) > 3_000
    assert np.abs(measured - steps[:16])[frequent].max() < 0.04


def test_200_sequences_have_the_golden_digest():
    sequences, _ = generate_genome(100, seed=0)
    assert hashlib.sha256(sequences.tobytes()).hexdigest() == GOLDEN


@pytest.mark.parametrize(
    ("n", "seed", "length", "named"),
    [(0, 0, 200, "n_per_class.*0"), (5, -2, 200, "seed.*-2"), (5, 0, 2, "length.*2")],
)
def test_bad_input_is_an_error_that_names_the_value(n, seed, length, named):
    with pytest.raises(ValueError, match=named):
        generate_genome(n, seed, length)
