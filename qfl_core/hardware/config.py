"""The settings of a hardware validation: frozen, validated, with a meaning for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from qfl_core.base.checks import Check, integer, invalid, number, one_of
from qfl_core.base.registry import METHOD_NAMES
from qfl_core.base.settings import Settings, setting
from qfl_core.config import MAX_SEED

#: What can be done against noise: ours on the counts, and two that the runtime's sampler does on the device.
MITIGATION = ("readout", "dynamical-decoupling", "twirling")

#: A year of waiting or of QPU time: nobody means more.
MAX_SECONDS = 365 * 24 * 3600.0


def _name(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise invalid(name, value, "a backend's name, such as fake_fez or ibm_fez")
    return value.strip()


def _several(check: Check, expected: str, *, least: int = 1) -> Check:
    def checked(name: str, value: Any) -> tuple[Any, ...]:
        if isinstance(value, str) or not isinstance(value, (list, tuple)) or len(value) < least:
            raise invalid(name, value, expected)
        found = tuple(check(name, v) for v in value)
        if len(set(found)) != len(found):
            raise invalid(name, value, f"{expected}, each once")
        return found

    return checked


@dataclass(frozen=True, kw_only=True)
class HardwareConfig(Settings):
    """Everything that decides a validation except the runs it validates; :meth:`describe` lists every field."""

    noun: ClassVar[str] = "hardware setting"

    backend: str = setting(
        "fake_fez", _name, "fake_... simulates a device's calibration here, any other name is a device of IBM"
    )
    methods: tuple[str, ...] = setting(
        ("duqfl-prox", "default-qfl"), _several(one_of(METHOD_NAMES), "a list of methods"), "whose checkpoints"
    )
    checkpoints: int = setting(11, integer(2, 1000), "global models of a run, evenly spaced, first and last included")
    samples: int = setting(200, integer(2, 100_000), "test samples of the exact curve, stratified by label")
    local_samples: int = setting(
        40,
        integer(2, 100_000),
        "test samples of all other curves, a stratified part of those: the backend executes them, local mode simulates "
        "some twenty circuits per second, and a device is paid by the second",
    )
    shots: int = setting(1024, integer(1, 100_000), "measurements per circuit")
    mitigation: tuple[str, ...] = setting(
        ("readout",), _several(one_of(MITIGATION), f"a list of {', '.join(MITIGATION)}", least=0), "against noise"
    )
    optimization_level: int = setting(3, integer(0, 3), "the transpiler's")
    seed: int = setting(0, integer(0, MAX_SEED), "draws the subsets and the simulators' shots")
    max_seconds: float = setting(300.0, number(0, MAX_SECONDS), "refuse to submit more estimated QPU seconds than this")
    wait_seconds: float = setting(
        3600.0, number(0, MAX_SECONDS), "how long to wait for a job before giving the terminal back"
    )
    noise_scales: tuple[float, ...] = setting(
        (0.0, 0.5, 1.0, 2.0, 3.0, 4.0), _several(number(0, 10), "a list of numbers"), "noise study: times the device's"
    )
    study_shots: tuple[int, ...] = setting(
        (16, 64, 256, 1024, 8192),
        _several(integer(1, 10**9), "a list of integers"),
        "noise study: measurements per circuit",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_samples > self.samples:
            raise invalid("local_samples", self.local_samples, f"at most samples={self.samples}")

    @property
    def is_local(self) -> bool:
        """Whether the named backend is a fake one, which this process simulates."""
        return self.backend.startswith("fake_")
