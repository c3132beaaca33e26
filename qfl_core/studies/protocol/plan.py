"""What to try: the open points, their levels, and the fraction of all combinations that is screened."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from qfl_core.algorithm.methods import METHODS
from qfl_core.analysis.paper import PAPER
from qfl_core.base.errors import ConfigError, did_you_mean

#: The candidate that takes every setting from the profile.
DEFAULTS = "profile"
#: After a factor's name in a parity word: the level's number divided by two counts, not the number itself.
HALF = " / 2"
#: Level name -> the settings that it changes.
Levels = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Plan:
    """What to try, and with which seeds.

    Parameters
    ----------
    tracks : the datasets whose printed numbers count; all count equally.
    factors : maps each open point to its levels, and each level's name to its settings.
    seeds : the seeds of the screening.
    parity : chooses the fraction. It maps a factor of two levels to other factors, and the parity of their levels is
        its level. A factor of four levels has two bits: its name stands for the last bit, its name and " / 2" for the
        first. The factors that it does not map run through all combinations.
    method_factors : maps a method to open points that concern this method alone; each runs with every screened
        candidate.
    base : settings of all candidates, so that the search does not depend on what the profile says of these points.
    untrained : the factors that decide what the untrained model scores.
    finalists : how many predicted combinations go to the final by the total; half as many go by each track's numbers.
    final_seeds : the seeds of the final; no seed of the screening.
    readings : combinations that go to the final in any case: names of levels by factor, the first level elsewhere.
    refinement : maps a method to open points that concern this method alone and are tried on the winner alone.
    refinement_seeds : the seeds of the refinement; none that was used before.
    """

    tracks: tuple[str, ...]
    factors: Mapping[str, Levels]
    seeds: tuple[int, ...]
    parity: Mapping[str, Sequence[str]] = field(default_factory=dict)
    method_factors: Mapping[str, Mapping[str, Levels]] = field(default_factory=dict)
    base: Mapping[str, Any] = field(default_factory=dict)
    untrained: tuple[str, ...] = ()
    finalists: int = 0
    final_seeds: tuple[int, ...] = ()
    readings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    refinement: Mapping[str, Mapping[str, Levels]] = field(default_factory=dict)
    refinement_seeds: tuple[int, ...] = ()

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> Plan:
        """Read the ``protocol`` section of a profile.

        Its ``encodings`` belong to :func:`qfl_core.studies.clean.encoding_search`, its ``tuning`` to
        :func:`qfl_core.studies.tuning.tuning_study`: both are left out.
        """
        values = {key: value for key, value in section.items() if key not in ("encodings", "tuning")}
        known = [f.name for f in fields(cls)]
        for key in values:
            if key not in known:
                raise ConfigError(f"protocol: unknown key {key!r}{did_you_mean(key, known)}; keys: {', '.join(known)}")
        for key in ("tracks", "factors", "seeds"):
            if not values.get(key):
                raise ConfigError(f"protocol: {key} must name at least one, got {values.get(key)!r}")
        for key in ("tracks", "untrained", "seeds", "final_seeds", "refinement_seeds"):
            values[key] = tuple(values.get(key, ()))
        plan = cls(**values)
        plan._check()
        return plan

    def _check(self) -> None:
        printed = tuple(dict.fromkeys(track for track, _ in PAPER))
        for track in self.tracks:
            if track not in printed:
                raise ConfigError(f"protocol: the paper prints no numbers for {track!r}; tracks: {', '.join(printed)}")
        if self.finalists and (len(self.final_seeds) < 2 or set(self.final_seeds) & set(self.seeds)):
            raise ConfigError(
                f"protocol: final_seeds must be at least two seeds that screening does not use, got {self.final_seeds}"
            )
        if self.refinement and (
            len(self.refinement_seeds) < 2 or set(self.refinement_seeds) & {*self.seeds, *self.final_seeds}
        ):
            raise ConfigError(
                "protocol: refinement_seeds must be at least two seeds that no other stage uses, "
                f"got {self.refinement_seeds}"
            )
        for made, words in self.parity.items():
            for name in (made, *words):
                factor = name.removesuffix(HALF)
                allowed = (2,) if name == made else (2, 4)
                if factor not in self.factors or len(self.factors[factor]) not in allowed:
                    raise ConfigError(f"protocol: parity takes factors of two or four levels, got {name!r}")
                if factor in self.parity and name != made:
                    raise ConfigError(f"protocol: parity of {made!r} lists {name!r}, which is itself made by parity")
        for method in (*self.method_factors, *self.refinement):
            if method not in METHODS:
                raise ConfigError(f"protocol: unknown method {method!r}{did_you_mean(method, METHODS)}")
        for named in (self.untrained, *self.readings.values()):
            _known(named, self.every)
        for reading in self.readings.values():
            for name, level in reading.items():
                _known([level], self.every[name], f"level of {name!r}")
        if max(map(len, self.every.values())) > 10:
            raise ConfigError("protocol: a factor has at most ten levels")

    @property
    def basic(self) -> list[str]:
        """The shared factors that run through all combinations."""
        return [name for name in self.factors if name not in self.parity]

    @cached_property
    def owner(self) -> dict[str, str]:
        """The method of each factor that concerns one method alone."""
        return {name: method for method, mine in self.method_factors.items() for name in mine}

    @cached_property
    def every(self) -> dict[str, Levels]:
        """The shared factors, then those of single methods: a candidate has one digit for each, in this order."""
        return {
            **self.factors,
            **{name: levels for mine in self.method_factors.values() for name, levels in mine.items()},
        }

    @cached_property
    def screened(self) -> list[str]:
        """The fraction of the shared factors' combinations, one digit per factor: the number of its level."""
        found = []
        for levels in itertools.product(*(range(len(self.factors[name])) for name in self.basic)):
            level = dict(zip(self.basic, levels, strict=True))
            level |= {made: sum(_bit(level, name) for name in words) % 2 for made, words in self.parity.items()}
            found.append("".join(str(level[name]) for name in self.factors))
        return found

    @cached_property
    def candidates(self) -> list[str]:
        """The screened candidates: the fraction, crossed with all levels of the factors of single methods."""
        own = [range(len(self.every[name])) for name in self.owner]
        return ["".join((shared, *map(str, levels))) for shared in self.screened for levels in itertools.product(*own)]

    @cached_property
    def combinations(self) -> list[str]:
        """Every combination of levels, screened or not."""
        return ["".join(map(str, c)) for c in itertools.product(*(range(len(v)) for v in self.every.values()))]

    def shared(self, candidate: str) -> str:
        """Return the digits of the shared factors."""
        return candidate if candidate == DEFAULTS else candidate[: len(self.factors)]

    def reading(self, name: str) -> str:
        """Return the candidate of a named reading."""
        chosen = self.readings[name]
        return "".join(str(list(v).index(chosen[f]) if f in chosen else 0) for f, v in self.every.items())

    def levels(self, candidate: str) -> dict[str, str]:
        """Return the name of each factor's level; none for the profile's own settings."""
        if candidate == DEFAULTS:
            return {}
        return {name: list(v)[int(digit)] for (name, v), digit in zip(self.every.items(), candidate, strict=True)}

    def settings(self, candidate: str, method: str | None = None) -> dict[str, Any]:
        """Return the settings of a candidate for one method; factors of other methods stay at their first level.

        Without a method, every factor has the candidate's level.
        """
        if candidate == DEFAULTS:
            return {}
        found = dict(self.base)
        for name, level in self.levels(candidate).items():
            mine = method is None or self.owner.get(name, method) == method
            found |= self.every[name][level if mine else next(iter(self.every[name]))]
        return found

    def refinements(self, method: str) -> dict[str, dict[str, Any]]:
        """Return the settings of every combination of a method's refinement; its name joins the levels' names."""
        factors = self.refinement.get(method, {})
        found = {}
        for chosen in itertools.product(*(levels.items() for levels in factors.values())):
            found[", ".join(name for name, _ in chosen)] = {k: v for _, level in chosen for k, v in level.items()}
        return found


def _bit(level: Mapping[str, int], name: str) -> int:
    """Return what a factor adds to a parity."""
    return level[name.removesuffix(HALF)] // 2 if name.endswith(HALF) else level[name]


def _known(names: Iterable[str], known: Iterable[str], what: str = "factor") -> None:
    for name in names:
        if name not in known:
            raise ConfigError(f"protocol: unknown {what} {name!r}{did_you_mean(name, known)}; {', '.join(known)}")
