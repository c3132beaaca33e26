"""The settings of a hardware validation: frozen, validated, with a meaning for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qfl_core.algorithm.methods import METHODS
from qfl_core.base.checks import Check, integer, invalid, number, one_of
from qfl_core.base.errors import ConfigError, did_you_mean

#: What can be done against noise: ours on the counts, and two that the runtime's sampler does on the device.
MITIGATION = ("readout", "dynamical-decoupling", "twirling")


def _name(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise invalid(name, value, "a backend's name, such as fake_fez or ibm_fez")
    return value.strip()


def _several(check: Check, expected: str, *, least: int = 1) -> Check:
    def checked(name: str, value: Any) -> tuple:
        if isinstance(value, str) or not isinstance(value, (list, tuple)) or len(value) < least:
            raise invalid(name, value, expected)
        found = tuple(check(name, v) for v in value)
        if len(set(found)) != len(found):
            raise invalid(name, value, f"{expected}, each once")
        return found

    return checked


def _setting(default: Any, check: Check, doc: str) -> Any:
    return dataclasses.field(default=default, metadata={"doc": doc, "check": check})


@dataclass(frozen=True, kw_only=True)
class HardwareConfig:
    """Everything that decides a validation but the runs it validates; :meth:`describe` lists every field."""

    backend: str = _setting(
        "fake_fez", _name, "fake_... simulates a device's calibration here, any other name is a device of IBM"
    )
    methods: tuple[str, ...] = _setting(
        ("duqfl-prox", "default-qfl"), _several(one_of(tuple(METHODS)), "a list of methods"), "whose checkpoints"
    )
    checkpoints: int = _setting(11, integer(2), "global models of a run, evenly spaced, first and last included")
    samples: int = _setting(200, integer(2), "test samples of the simulated curves, stratified by label")
    local_samples: int = _setting(
        40,
        integer(2),
        "test samples that the backend itself executes, a stratified part of those: local mode simulates some twenty "
        "circuits a second, and a device is paid by the second",
    )
    shots: int = _setting(1024, integer(1, 100_000), "measurements a circuit")
    mitigation: tuple[str, ...] = _setting(
        ("readout",), _several(one_of(MITIGATION), f"a list of {', '.join(MITIGATION)}", least=0), "against noise"
    )
    optimization_level: int = _setting(3, integer(0, 3), "the transpiler's")
    seed: int = _setting(0, integer(0, 2**32 - 1), "draws the subsets and the simulators' shots")
    max_seconds: float = _setting(300.0, number(0), "refuse to submit more estimated QPU seconds than this")
    wait_seconds: float = _setting(3600.0, number(0), "how long to wait for a job before giving the terminal back")
    noise_scales: tuple[float, ...] = _setting(
        (0.0, 0.5, 1.0, 2.0, 3.0, 4.0), _several(number(0, 10), "a list of numbers"), "noise study: times the device's"
    )
    study_shots: tuple[int, ...] = _setting(
        (16, 64, 256, 1024, 8192), _several(integer(1), "a list of integers"), "noise study: measurements a circuit"
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, field.metadata["check"](field.name, getattr(self, field.name)))
        if self.local_samples > self.samples:
            raise invalid("local_samples", self.local_samples, f"at most samples={self.samples}")

    @property
    def is_local(self) -> bool:
        """Whether the named backend is a fake one, simulated in this process."""
        return self.backend.startswith("fake_")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> HardwareConfig:
        """Build a config from a mapping; an unknown key is an error that names the closest field."""
        if not isinstance(values, Mapping):
            raise ConfigError(f"hardware settings are a mapping of fields to values, got {type(values).__name__}")
        known = cls.describe()
        for key in values:
            if key not in known:
                raise ConfigError(
                    f"unknown hardware setting {key!r}{did_you_mean(key, known)}; known: {', '.join(known)}"
                )
        return cls(**values)

    @classmethod
    def describe(cls) -> dict[str, str]:
        """Return what every field means."""
        return {f.name: f.metadata["doc"] for f in dataclasses.fields(cls)}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON types."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
