"""The paper's seven methods as one table of switches, which its table of roles is generated from."""

from __future__ import annotations

from dataclasses import dataclass, replace

from qfl_core.algorithm.hooks import SAMPLE_SIZE, Aggregation, LocalOptimizer, ServerOptimizer
from qfl_core.algorithm.optimizers import Adam, LibrarySpsa, Spsa
from qfl_core.base.display import ShownTable
from qfl_core.base.errors import ConfigError
from qfl_core.base.registry import EXTRA_METHODS, METHOD_NAMES, resolve
from qfl_core.config import ExperimentConfig

SWITCHES = ("controller", "best_unfold", "proximal", "projection")


@dataclass(frozen=True)
class Method:
    """What a method does in a round. Two methods differ only here.

    ``optimizer`` trains the clients (Algorithm 1, line 9); ``controller`` refines phi by Algorithm 3; ``best_unfold``
    uploads the validation-best unfold instead of the last; ``proximal`` adds the penalty (mu / 2) |theta - theta_t|^2;
    ``projection`` holds each unfold's step inside a ball; ``aggregation`` makes one model of the uploads; ``server``
    decides what the server makes of that model, None takes it as it is.
    """

    label: str
    role: str
    optimizer: LocalOptimizer
    controller: bool = False
    best_unfold: bool = False
    proximal: bool = False
    projection: bool = False
    aggregation: Aggregation = SAMPLE_SIZE
    server: ServerOptimizer | None = None

    def __post_init__(self) -> None:
        for name in SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise self._wrong(name, "True or False")
        if not isinstance(self.optimizer, LocalOptimizer):
            raise self._wrong("optimizer", "an object of a class derived from qfl_core.algorithm.hooks.LocalOptimizer")
        if type(self.optimizer).update is LocalOptimizer.update:
            raise self._wrong("optimizer", "a class with a method update of its own")
        if not isinstance(self.aggregation, Aggregation):
            raise self._wrong("aggregation", "a qfl_core.algorithm.hooks.Aggregation")
        has = [callable(getattr(self.server, name, None)) for name in ("init", "update")]
        if self.server is not None and (isinstance(self.server, type) or not all(has)):
            raise self._wrong("server", "None or an object with the methods init and update")
        if self.aggregation.init(1) and not self.controller:
            raise ConfigError(f"{self.label}: weights are learned together with the controller; it needs one")
        self.optimizer.check(self)

    def _wrong(self, name: str, expected: str) -> ConfigError:
        return ConfigError(f"{self.label}: {name}={getattr(self, name)!r}, expected {expected}")

    def configured(self, config: ExperimentConfig) -> Method:
        """Return the method with the local optimiser that the config asks for."""
        return replace(self, optimizer=self.optimizer.configured(config))

    @property
    def unfolded(self) -> bool:
        """Whether local training is cut into K blocks."""
        return self.optimizer.unfolded


METHODS: dict[str, Method] = ShownTable(
    zip(
        METHOD_NAMES,
        (
            Method(
                "Default-QFL", "the library's SPSA with its own calibration, and FedAvg", LibrarySpsa("default_spsa")
            ),
            Method("Adam-QFL", "is a generic adaptive optimiser enough?", Adam()),
            Method(
                "FedProx-QFL",
                "drift control without unfolding or controller",
                LibrarySpsa("fedprox_spsa"),
                proximal=True,
            ),
            Method("DUQFL-last", "is uploading the last unfold enough?", Spsa(), controller=True),
            Method("DUQFL-best", "validation-based choice of the unfold", Spsa(), controller=True, best_unfold=True),
            Method(
                "DUQFL-drift",
                "explicit limit on each unfold's displacement",
                Spsa(),
                controller=True,
                best_unfold=True,
                projection=True,
            ),
            Method(
                "DUQFL-Prox",
                "the full method: controller, best unfold, proximal term",
                Spsa(),
                controller=True,
                best_unfold=True,
                proximal=True,
            ),
        ),
        strict=True,
    )
)


def method_named(name: str) -> Method:
    """Return one of the paper's methods, one of our extras or one that was registered."""
    return METHODS[name] if name in METHODS else resolve(EXTRA_METHODS[name])
