"""What a config asks of the machine, estimated before anything is loaded: memory, and the growth of the weights.

The limits are the same on every machine, because a config that is valid here must be valid wherever it is read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from qfl_core.base.errors import ConfigError

if TYPE_CHECKING:
    from qfl_core.config.experiment import ExperimentConfig

GIB = 2**30
#: Bytes that one encoded split may take: the ``memory`` that an engine has where nobody gives it more.
ENCODED_LIMIT = GIB
#: Bytes of the schedule, of the encoded samples of one round and of the random directions together.
ROUND_LIMIT = 8 * GIB
#: Bytes of all records of a run while it is sealed.
RECORDS_LIMIT = 8 * GIB
#: Bytes of one row of a table while a run is sealed, as Python objects and as text; measured.
ROW_BYTES = 2300
#: Bytes of one number that a method remembers per round: as a Python number, in an array and in the file.
NUMBER_BYTES = 56
#: Bytes that counting the words of the kmer encoding may take.
KMER_LIMIT = 8 * GIB
#: Vectors that the density engine moves through the circuit at once.
DENSITY_TILE = 64
#: Powers of ten by which weights may grow in one round: their squares must stay below 10^308.
GROWTH_LIMIT = 150


def check_limits(config: ExperimentConfig) -> None:
    """Refuse a config that no machine could run; the error names the estimate, the limit and what to lower.

    The estimates assume the built-in circuits: one qubit per feature. An engine checks its own circuit again.
    """
    _check_encoding(config)
    _check_kmer(config)
    _check_round(config)
    _check_aggregation(config)
    _check_records(config)
    _check_growth(config)


def bytes_per_sample(engine: str, qubits: int) -> int:
    """Return the bytes of one encoded sample: see the strategies of each engine for what it stores."""
    amplitudes = 2**qubits
    if engine == "density":
        return 8 * amplitudes**2
    if engine != "statevector":
        return 8 * qubits
    if qubits <= 6:
        return 8 * amplitudes * (amplitudes + 1) // 2
    return 16 * amplitudes


def _check_encoding(config: ExperimentConfig) -> None:
    sizes = {name: getattr(config, name) for name in ("train_size", "val_size", "test_size")}
    largest = max(sizes, key=lambda name: sizes[name])
    need = sizes[largest] * bytes_per_sample(config.engine, config.features)
    what = f"{largest}={sizes[largest]}, features={config.features} and engine={config.engine!r}"
    _refuse(need, ENCODED_LIMIT, f"{what} need {_gib(need)} for the encoded samples", "features or the size")
    if config.engine == "density":
        need = 16 * DENSITY_TILE * 4**config.features
        _refuse(need, ENCODED_LIMIT, f"features={config.features} and engine='density' need {_gib(need)}", "features")


def _check_round(config: ExperimentConfig) -> None:
    """Estimate what grows with the clients: the rows of every round, their encodings, the directions of one unfold."""
    validation = config.client_val_share / (1 - config.client_val_share)
    rows = config.clients * config.chunk
    if config.split != "label-skew":
        rows = min(rows, config.train_size)  # because the clients own their rows and none is drawn twice per round
    rows = round(rows * (1 + validation))
    schedule = config.rounds * (8 * rows + 256 * config.clients)  # an array of row numbers costs about 128 bytes more
    encoded = rows * bytes_per_sample(config.engine, config.features)
    directions = 8 * config.clients * config.spsa_iterations * _weights(config)
    need = schedule + encoded + directions
    what = (
        f"clients={config.clients}, rounds={config.rounds}, chunk={config.chunk} and "
        f"spsa_iterations={config.spsa_iterations} need {_gib(need)}"
    )
    _refuse(need, ROUND_LIMIT, what, "one of them")


def _check_kmer(config: ExperimentConfig) -> None:
    """Estimate the counts of all words: of all rows, and copies while the encoder is fitted and then used."""
    if config.dataset == "genome" and config.encoding == "kmer":
        rows = config.train_size + config.val_size + config.test_size
        need = 8 * 4**config.kmer * max(rows + 3 * config.train_size, 2 * rows)
        what = f"kmer={config.kmer} and train_size={config.train_size} need {_gib(need)} for the counts of words"
        _refuse(need, KMER_LIMIT, what, "one of them")


def _check_aggregation(config: ExperimentConfig) -> None:
    """Estimate what Krum compares: the differences of every pair of uploads, and their squares."""
    if config.aggregation in ("krum", "multi-krum"):
        taking = _participants(config)
        need = 2 * 8 * taking**2 * _weights(config)
        what = f"aggregation={config.aggregation!r} of {taking} clients needs {_gib(need)} for the differences of pairs"
        _refuse(need, ROUND_LIMIT, what, "clients or participation")


def _check_records(config: ExperimentConfig) -> None:
    """Estimate the records of all rounds, which are in memory together when the run is sealed."""
    unfolds = 1 if config.method in ("default-qfl", "adam-qfl", "fedprox-qfl", "untrained") else config.unfolds
    remembered = {"scaffold-qfl": _weights(config), "adam-qfl": 1}.get(config.method, 0)
    if config.method == "adam-qfl" and config.adam_moments == "kept":
        remembered += 2 * _weights(config) + 1
    # A private run keeps nothing of single clients but how much of their privacy is spent, for two observers.
    traced = 0 if config.is_private else _participants(config) * unfolds
    remembered += 2 * (config.dp_noise is not None)
    rows = config.rounds * (traced + 5)
    need = rows * ROW_BYTES + config.rounds * (_weights(config) + config.clients * remembered) * NUMBER_BYTES
    what = (
        f"rounds={config.rounds}, clients={config.clients} and unfolds={config.unfolds} need {_gib(need)} for the "
        f"records of method={config.method!r}"
    )
    _refuse(need, RECORDS_LIMIT, what, "one of them, or participation")


def _participants(config: ExperimentConfig) -> int:
    """Return how many clients take part in a round."""
    named = config.participation
    return len(named) if isinstance(named, tuple) else max(1, round(named * config.clients))


def _check_growth(config: ExperimentConfig) -> None:
    """Refuse proximal steps that overshoot so far that the weights leave the range of floating-point numbers.

    An SPSA step on the proximal term alone moves the displacement v along a random direction d of P entries -1 or +1:
    v <- v - eta mu (d.v) d. The mean of |v|^2 is therefore multiplied by 1 - 2 eta mu + P (eta mu)^2 per iteration.
    """
    pull = config.learning_rate * config.mu
    factor = 1 - 2 * pull + _weights(config) * pull**2
    iterations = config.unfolds * config.spsa_iterations
    growth = iterations * math.log10(factor) / 2 if factor > 1 else 0.0
    if growth > GROWTH_LIMIT:
        raise ConfigError(
            f"mu={config.mu:g} and learning_rate={config.learning_rate:g} would let the weights grow to about "
            f"10^{growth:.0f} in {iterations} iterations, the limit is 10^{GROWTH_LIMIT}: lower mu or learning_rate"
        )


def _weights(config: ExperimentConfig) -> int:
    """Return the number of weights P of the built-in ansatz."""
    return config.features * (config.ansatz_reps + 1)


def _refuse(need: int, limit: int, what: str, lower: str) -> None:
    if need > limit:
        raise ConfigError(f"{what}, the limit is {_gib(limit)}: lower {lower}")


def _gib(size: int) -> str:
    return f"{size / GIB:,.1f} GiB"
