"""What a bench finds: measured rows, ratios, and the targets that the ratios are to reach."""

from __future__ import annotations

from dataclasses import dataclass, field

from qfl_core.base.numbers import significant

EXACT_VS_PRODUCT = "exact: rate / bare matrix product's, one thread"
EXACT_VS_PRODUCT_THREADS = "exact: rate / bare matrix product's, all threads"
EXACT_VS_AER = "exact: rate / EstimatorQNN on Aer"
EXACT_VS_PENNYLANE = "exact: rate / PennyLane broadcast"
SHOTS_VS_DRAWS = "shots: time / bare binomial draws'"
SPSA_VS_DRAWS = "SPSA iterations of 10 clients: time / their draws'"
SPSA_VS_ONE_CALL = "the same / their draws' in one call"
DENSITY_VS_AER = "density: rate / AerSimulator.from_backend"
DENSITY_VS_SAMPLER = "density: rate / SamplerV2 local mode"
TEN_QUBITS_VS_AER = "10 qubits: rate / Aer EstimatorV2"
TRAINING_VS_AER = "training: rate / the same code on Aer"
TRAINING_VS_DRAWS = "training run: time / its draws'"
TRAINING_VS_ONE_CALL = "the same / its draws' in one call"
EXPERIMENT_VS_DRAWS = "run_experiment with its data: time / its draws'"
SMALL_CLIENTS_VS_DRAWS = "1,000 clients of 4 samples: time / their draws'"
LARGE_CLIENTS_VS_DRAWS = "1,000 clients of 50 samples: time / their draws'"
LINEAR_IN_CLIENTS = "cost per client, 10,000 clients / 1,000 clients"
TWO_PROCESSES = "training: rate of 2 processes / 1"
SECOND_LOAD = "second load of the data, seconds"
KMER_6 = "first load with k-mer 6, CPU seconds"
IMPORT = "import qfl_core, CPU seconds"
README_RUN = "python -m qfl_core run, CPU seconds in all"
DASK_OVERHEAD = "a warm Dask worker adds to a run, seconds"
DASK_WORKERS = "rate of 2 Dask workers / 1"


@dataclass(frozen=True)
class Target:
    """A ratio, or a number of seconds, that is to be reached: at least, or at most, a limit.

    Without a limit, the number is only told, because it says more about another one.
    """

    name: str
    limit: float | None
    at_least: bool = True

    def holds(self, value: float) -> bool | None:
        """Tell whether ``value`` reaches the target; None where there is no limit."""
        if self.limit is None:
            return None
        return value >= self.limit if self.at_least else value <= self.limit


TARGETS = (
    Target(EXACT_VS_PRODUCT, 0.8),
    Target(EXACT_VS_PRODUCT_THREADS, None),
    Target(EXACT_VS_AER, 10_000),
    Target(EXACT_VS_PENNYLANE, 300),
    Target(SHOTS_VS_DRAWS, 1.5, at_least=False),
    Target(SPSA_VS_DRAWS, 2, at_least=False),
    Target(SPSA_VS_ONE_CALL, None),
    Target(DENSITY_VS_AER, 200),
    Target(DENSITY_VS_SAMPLER, 1_000),
    Target(TEN_QUBITS_VS_AER, 5),
    Target(TRAINING_VS_AER, 1_000),
    Target(TRAINING_VS_DRAWS, 1.8, at_least=False),
    Target(TRAINING_VS_ONE_CALL, None),
    Target(EXPERIMENT_VS_DRAWS, 2.2, at_least=False),
    Target(SMALL_CLIENTS_VS_DRAWS, 3, at_least=False),
    Target(LARGE_CLIENTS_VS_DRAWS, 3, at_least=False),
    Target(LINEAR_IN_CLIENTS, 1.2, at_least=False),
    Target(TWO_PROCESSES, 1.8),
    Target(SECOND_LOAD, 0.2, at_least=False),
    Target(KMER_6, 10, at_least=False),
    Target(IMPORT, 0.1, at_least=False),
    Target(README_RUN, 2.5, at_least=False),
    Target(DASK_OVERHEAD, 0.2, at_least=False),
    Target(DASK_WORKERS, 1.7),
)


@dataclass
class Bench:
    """Collects rows, ratios by the name of their target, and curves of cost.

    Parameters
    ----------
    quick : fewer repetitions and circuits, for a test; the ratios are then rough.
    """

    quick: bool
    rows: list[dict] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    scaling: dict[str, list[dict]] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """How often a short call is timed."""
        return 5 if self.quick else 60

    def row(
        self, case: str, name: str, count: int, time: float, difference: float | None = None, limit: float = 0.0
    ) -> None:
        """Add a measured row.

        Parameters
        ----------
        case, name : what was evaluated, and by which engine or library.
        count, time : how many evaluations took how many seconds.
        difference, limit : the largest distance from the exact values, and how large it may be. A peer that
            disagrees stops the bench, because its speed would mean nothing.
        """
        if difference is not None and not difference <= limit:
            found, allowed = significant(difference, 3), significant(limit, 3)
            raise ValueError(f"{name} differs by {found} from the exact values, expected <= {allowed}")
        row = {"case": case, "name": name, "evaluations": count, "seconds": time, "rate": count / time}
        self.rows.append(row | {"difference": difference})

    def rate(self, name: str) -> float:
        """Return the evaluations per second of the row ``name``."""
        return next(row["rate"] for row in self.rows if row["name"] == name)

    def targets(self) -> list[dict]:
        """Return every target with its measured value, ``None`` where it was not measured."""
        found = []
        for target in TARGETS:
            value = self.ratios.get(target.name)
            reached = None if value is None else target.holds(value)
            told = {"name": target.name, "limit": target.limit, "at_least": target.at_least}
            found.append(told | {"value": value, "reached": reached})
        return found
