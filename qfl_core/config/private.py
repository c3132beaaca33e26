"""Private runs: which other settings they exclude, each with the reason, before any work starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qfl_core.base.checks import invalid

if TYPE_CHECKING:
    from qfl_core.config.experiment import ExperimentConfig

#: Built-in methods that need more of a client than its step. Methods of your own are looked at when a run is prepared.
NOT_PRIVATE = {
    "adam-qfl": "it is tuned by scores, and the server keeps a learning rate of each client",
    "scaffold-qfl": "the server keeps a mean gradient of each client",
    "duqfl-learned": "its weights are learned from scores of the clients",
}
#: Fewest clients of a round whose uploads are masked: of two, each knows the other's upload from the sum.
FEWEST = 3
#: The most training samples that one round of masked uploads may have, with room for chunks that vary in size.
MOST_SAMPLES = 2**19


def named(config: ExperimentConfig) -> str:
    """Return the settings that make a config private, as an error message names them."""
    found = [] if config.dp_noise is None else [f"dp_noise={config.dp_noise:g}"]
    found += ["uploads='masked'"] if config.uploads == "masked" else []
    return " and ".join(found)


def check_private(config: ExperimentConfig) -> None:
    """Refuse what contradicts a private run; the error names both settings and the reason."""
    if not (why := named(config)):
        return
    if config.outer_period:
        raise invalid(
            "outer_period", config.outer_period, f"0 with {why}, because virtual rounds need losses and scores"
        )
    if config.method in NOT_PRIVATE:
        raise invalid("method", config.method, f"another with {why}: {NOT_PRIVATE[config.method]}")
    if config.aggregation != "own":
        reason = "one upload is masked" if config.uploads == "masked" else "the noise is made for a mean"
        raise invalid("aggregation", config.aggregation, f"'own' with {why}, because {reason}")
    if config.screening is not None:
        raise invalid("screening", config.screening, f"null with {why}, because it compares single uploads and losses")
    if config.attack != "none":
        raise invalid(
            "attack", config.attack, f"'none' with {why}, because an attack is noticed by comparing single uploads"
        )
    if config.uploads == "masked":
        _check_masked(config)


def _check_masked(config: ExperimentConfig) -> None:
    asked = config.participation
    count = len(asked) if isinstance(asked, tuple) else max(1, round(asked * config.clients))
    if count < FEWEST:
        raise invalid(
            "uploads",
            "masked",
            f"'plain' with {count} clients per round: from the sum of two, each knows the other's upload",
        )
    if config.clients * config.chunk > MOST_SAMPLES:
        raise invalid("chunk", config.chunk, f"at most {MOST_SAMPLES // config.clients} with uploads='masked'")
