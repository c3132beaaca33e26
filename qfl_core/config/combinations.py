"""Values of a config that are valid alone and not together; each error names both, before any work starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qfl_core.base.checks import invalid

if TYPE_CHECKING:
    from qfl_core.config.experiment import ExperimentConfig

#: Letters of a sequence of the genome dataset: the words of the encoding word-id cut it into equal parts.
GENOME_LETTERS = 200
#: Rules that use weights of the clients, as the method that learns such weights needs.
WEIGHTED = ("own", "multi-krum", "clipped-mean")


def check_combinations(config: ExperimentConfig) -> None:
    """Refuse values that are not valid together."""
    _check_method(config)
    _check_clients(config)
    if config.dataset == "genome":
        _check_words(config)


def _check_method(config: ExperimentConfig) -> None:
    if config.feature_map == "zz" and config.features < 2:
        raise invalid("features", config.features, "at least 2 for feature_map='zz', because it entangles pairs")
    if config.engine == "primitives" and config.shots is None:
        raise invalid("shots", None, "an integer for engine='primitives', because samplers have no exact values")
    if config.method == "adam-qfl" and config.engine != "statevector":
        raise invalid("engine", config.engine, "'statevector' for method='adam-qfl', because it needs exact gradients")
    if config.controller == "pretrained" and config.controller_features != "standardised":
        raise invalid(
            "controller_features",
            config.controller_features,
            "'standardised' for controller='pretrained', because it was trained with them",
        )
    if config.method == "duqfl-learned" and config.outer_optimizer == "normalised":
        raise invalid(
            "outer_optimizer",
            config.outer_optimizer,
            "'spsa' for method='duqfl-learned', because it learns weights, too",
        )
    if config.method == "duqfl-learned" and config.aggregation not in WEIGHTED:
        raise invalid(
            "aggregation",
            config.aggregation,
            f"one of {', '.join(WEIGHTED)} for method='duqfl-learned', because it learns weights of the clients",
        )
    for rate, bounds in (("learning_rate", "eta_bounds"), ("perturbation", "delta_bounds")):
        low, high = getattr(config, bounds)
        if not low <= getattr(config, rate) <= high:
            raise invalid(rate, getattr(config, rate), f"a number inside {bounds}=({low:g}, {high:g})")


def _check_clients(config: ExperimentConfig) -> None:
    if isinstance(config.participation, tuple) and config.participation[-1] >= config.clients:
        raise invalid("participation", config.participation, f"clients from 0 to {config.clients - 1}")
    if config.clients > config.train_size:
        raise invalid("clients", config.clients, f"at most train_size={config.train_size}, one row per client")
    needed = 2 * config.clients * config.min_per_class
    if config.split == "dirichlet" and needed > config.train_size:
        raise invalid(
            "min_per_class",
            config.min_per_class,
            f"at most {config.train_size // (2 * config.clients)} for clients={config.clients} and "
            f"train_size={config.train_size}, because every client needs as many rows of both classes",
        )
    if config.client_test == "split" and config.clients > config.test_size:
        raise invalid(
            "clients",
            config.clients,
            f"at most test_size={config.test_size} for client_test='split', one row per client",
        )


def _check_words(config: ExperimentConfig) -> None:
    if config.encoding.startswith("word-id") and GENOME_LETTERS % config.features:
        divisors = ", ".join(str(count) for count in range(1, 17) if GENOME_LETTERS % count == 0)
        raise invalid(
            "features",
            config.features,
            f"a divisor of {GENOME_LETTERS} letters for encoding={config.encoding!r}: {divisors}",
        )
    if config.encoding == "kmer" and config.features > 4**config.kmer:
        raise invalid(
            "features", config.features, f"at most {4**config.kmer}, the number of words of kmer={config.kmer}"
        )
