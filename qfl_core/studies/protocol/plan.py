"""What to try: the open points, their levels, and the fraction of all combinations that is screened."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from qfl_core.analysis.paper import PAPER
from qfl_core.base.errors import ConfigError, did_you_mean

#: The candidate that takes every setting from the profile.
DEFAULTS = "profile"


@dataclass(frozen=True)
class Plan:
    """What to try: ``factors`` maps each open point to its levels, and each level's name to its settings.

    ``parity`` chooses the fraction: it maps a factor to other factors, and the parity of their levels is its level. The
    factors that it does not map run through all combinations. ``finalists`` is the number of candidates that go on,
    overall and for each track; the profile's own settings always do.
    """

    tracks: tuple[str, ...]
    factors: Mapping[str, Mapping[str, Mapping[str, Any]]]
    seeds: tuple[int, ...]
    parity: Mapping[str, Sequence[str]] = field(default_factory=dict)
    finalists: int = 0
    final_seeds: tuple[int, ...] = ()

    @classmethod
    def of(cls, section: Mapping[str, Any], complete: bool = False) -> Plan:
        """Read the ``protocol`` section of a profile; its ``complete`` values win where the complete search is meant.

        Its ``encodings`` belong to :func:`qfl_core.studies.clean.encoding_search` and are left out.
        """
        values = {key: value for key, value in section.items() if key not in ("complete", "encodings")}
        values |= (section.get("complete") or {}) if complete else {}
        known = [f.name for f in fields(cls)]
        for key in values:
            if key not in known:
                raise ConfigError(f"protocol: unknown key {key!r}{did_you_mean(key, known)}; keys: {', '.join(known)}")
        for key in ("tracks", "factors", "seeds"):
            if not values.get(key):
                raise ConfigError(f"protocol: {key} must name at least one, got {values.get(key)!r}")
        printed = tuple(dict.fromkeys(track for track, _ in PAPER))
        for track in values["tracks"]:
            if track not in printed:
                raise ConfigError(f"protocol: the paper prints no numbers for {track!r}; tracks: {', '.join(printed)}")
        plan = cls(
            **values
            | {"tracks": tuple(values["tracks"]), "seeds": tuple(values["seeds"])}
            | {"final_seeds": tuple(values.get("final_seeds", ()))}
        )
        plan._check()
        return plan

    def _check(self) -> None:
        if self.finalists and (len(self.final_seeds) < 2 or set(self.final_seeds) & set(self.seeds)):
            raise ConfigError(
                f"protocol: final_seeds must be at least two seeds that screening does not use, got {self.final_seeds}"
            )
        for made, words in self.parity.items():
            for name in (made, *words):
                if name not in self.factors or len(self.factors[name]) != 2:
                    raise ConfigError(f"protocol: parity takes factors of two levels, got {name!r}")
                if name in self.parity and name != made:
                    raise ConfigError(f"protocol: parity of {made!r} lists {name!r}, which is itself made by parity")

    @property
    def basic(self) -> list[str]:
        """The factors that run through all combinations."""
        return [name for name in self.factors if name not in self.parity]

    @cached_property
    def candidates(self) -> list[str]:
        """The screened candidates, one digit per factor: the number of its level."""
        found = []
        for levels in itertools.product(*(range(len(self.factors[name])) for name in self.basic)):
            level = dict(zip(self.basic, levels, strict=True))
            level |= {made: sum(level[name] for name in words) % 2 for made, words in self.parity.items()}
            found.append("".join(str(level[name]) for name in self.factors))
        return found

    @cached_property
    def combinations(self) -> list[str]:
        """Every combination of levels, screened or not."""
        return ["".join(map(str, c)) for c in itertools.product(*(range(len(v)) for v in self.factors.values()))]

    def levels(self, candidate: str) -> dict[str, str]:
        """Return the name of each factor's level; none for the profile's own settings."""
        if candidate == DEFAULTS:
            return {}
        return {name: list(v)[int(digit)] for (name, v), digit in zip(self.factors.items(), candidate, strict=True)}

    def settings(self, candidate: str) -> dict[str, Any]:
        """Return the settings of a candidate's levels, together."""
        chosen = self.levels(candidate)
        return {key: value for name, level in chosen.items() for key, value in self.factors[name][level].items()}
