"""Train what the undecided claims need on fresh seeds, and judge these claims on them alone.

The rule was fixed before the runs (docs/claims.md, "A second look with fresh seeds"): all parts of the claims that the
first stage left undecided, with the same margins and the same tests; no seed and no number of the first stage enters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qfl_core.algorithm.methods import METHODS
from qfl_core.analysis.claims import Claim
from qfl_core.analysis.kept import kept
from qfl_core.analysis.verdicts import Verdict, judge
from qfl_core.base.checks import integer
from qfl_core.base.errors import AnalysisError, ConfigError
from qfl_core.base.numbers import counted
from qfl_core.config import Profile
from qfl_core.data import data_source
from qfl_core.runs.study import Study, get_study
from qfl_core.studies.follow_up.first_stage import FirstStage

SECTION = "follow_up"


@dataclass(frozen=True, eq=False)
class FollowUp:
    """The first stage, the runs of the fresh seeds by track, and the verdicts on them."""

    first: FirstStage
    studies: Mapping[str, Study]
    verdicts: list[Verdict]


def follow_up(settings: Profile, first: FirstStage, folder: Path) -> FollowUp:
    """Judge the first stage's undecided claims on fresh seeds; runs that ``folder`` does not hold yet are trained.

    Everything that could stop it is checked before any training.

    Raises
    ------
    ConfigError
        When the profile names no fresh seeds.
    AnalysisError
        When the data are not those of the first stage.
    """
    claims = first.open_claims
    seeds = fresh_seeds(settings, first.seeds)
    wanted = needed_methods(claims)
    for track in wanted:
        _check_data(settings, track, first.source(track))
    studies = {track: kept(get_study(settings, track, methods, seeds, folder)) for track, methods in wanted.items()}
    runs = {track: study.runs for track, study in studies.items()}
    return FollowUp(first, studies, judge(runs, claims=claims))


def needed_methods(claims: Sequence[Claim]) -> dict[str, list[str]]:
    """Return the methods whose runs the claims need, by track."""
    parts = [part for claim in claims for part in claim.parts]
    return {
        track: [method for method in METHODS if any(method in p.methods for p in parts if p.track == track)]
        for track in dict.fromkeys(part.track for part in parts)
    }


def fresh_seeds(settings: Profile, first: frozenset[int]) -> list[int]:
    """Return the seeds of the profile's section; seeds that ``first`` or another part of the profile has are refused.

    Raises
    ------
    ConfigError
        When there are fewer than two, when one is named twice, or when one is not fresh.
    """
    named = settings.section(SECTION, {}).get("seeds")
    if not isinstance(named, list) or len(named) < 2:
        raise ConfigError(f"profile {settings.name!r} must name at least two seeds in its section {SECTION}")
    seeds = [integer(0)(f"{SECTION}: seeds", seed) for seed in named]
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"profile {settings.name!r} names a seed twice in its section {SECTION}")
    others = {name: value for name, value in settings.commands.items() if name != SECTION}
    used = first | set(settings.seeds) | set(_seeds_in({**settings.sections, **others}))
    if stale := sorted(used & set(seeds)):
        some = ", ".join(map(str, stale[:4])) + (", ..." if len(stale) > 4 else "")
        raise ConfigError(
            f"{counted(len(stale), 'seed')} of {SECTION} ({some}) would not be fresh, because the first stage or "
            f"another part of profile {settings.name!r} uses the same"
        )
    return seeds


def _seeds_in(value: Any, name: str = "") -> Iterator[int]:
    """Yield the seeds that a profile's section names, at any depth."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _seeds_in(below, str(key))
    elif name.endswith("seeds") and isinstance(value, list):
        yield from value


def _check_data(settings: Profile, track: str, source: str) -> None:
    """Refuse other data than those of the first stage."""
    kind = data_source(settings.config(track)).kind
    if f": {kind} data" not in source:
        raise AnalysisError(
            f"the first stage was judged on other data ({source}); now {track} has {kind} data. Use the same: "
            "QFL_DATA_DIR names the folder of real files, and without it stand-in data are generated"
        )
