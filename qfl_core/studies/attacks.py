"""What do bad clients do to DUQFL-Prox, what protects it, and what does the protection cost where nobody attacks?"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from qfl_core.analysis.differences import HIGHER, LOWER, judge_differences, told
from qfl_core.analysis.inference import intervals
from qfl_core.analysis.kept import kept
from qfl_core.analysis.margins import of_metric
from qfl_core.analysis.tracks import tracks_facts
from qfl_core.analysis.untrained import common_start
from qfl_core.base.checks import one_of
from qfl_core.base.errors import ConfigError
from qfl_core.base.numbers import number
from qfl_core.base.registry import ATTACKS
from qfl_core.config import Profile
from qfl_core.runs.study import Study, get_variants

METHOD = "duqfl-prox"
METRIC = "global_accuracy"
HONEST = "none"
#: What readers see in its place.
NOBODY = "nobody attacks"
#: The weighted mean of all uploads but the absurd ones: what a run does where nobody asks for more.
UNDEFENDED = "mean"
#: Each defence alone, as settings of the config.
DEFENCES: dict[str, dict[str, Any]] = {
    UNDEFENDED: {},
    "screening": {"screening": 10.0},
    **{name: {"aggregation": name} for name in ("median", "trimmed-mean", "krum", "multi-krum", "clipped-mean")},
}
#: The attack whose share of bad clients is varied.
VARIED = "collusion"


class Case(NamedTuple):
    """An attack by a share of the clients, and the defence against it."""

    attack: str
    share: float
    defence: str

    def overrides(self) -> dict[str, Any]:
        """Return the config's fields; a share without an attack is 0."""
        return {"attack": self.attack, "attackers": self.share, **DEFENCES[self.defence]}


@dataclass(frozen=True, eq=False)
class AttackStudy:
    """Runs of DUQFL-Prox by track and case; ``share`` is the share of bad clients at which attacks are compared."""

    studies: Mapping[str, Mapping[Case, Study]]
    share: float

    @property
    def facts(self) -> tuple[str, ...]:
        """What a figure's footer says: the source of each track's data, then what all tracks share."""
        return tracks_facts({track: next(iter(cases.values())) for track, cases in self.studies.items()})

    @cached_property
    def last(self) -> pd.DataFrame:
        """The last round of every run, with its track, attack, share and defence."""
        parts = []
        for track, cases in self.studies.items():
            for case, study in cases.items():
                rounds = study.rounds
                parts.append(rounds[rounds["round"] == rounds["round"].max()].assign(track=track, **case._asdict()))
        return pd.concat(parts, ignore_index=True)

    def start(self, track: str) -> float:
        """Return the untrained model's accuracy on a track: the mean over round 0 of all runs."""
        return common_start(self.studies[track].values(), METRIC)

    def table(self) -> pd.DataFrame:
        """Return mean, low and high (95 % over seeds) of the last round's accuracy, one row per track and case."""
        return intervals(self.last, METRIC, ["track", *Case._fields])

    @cached_property
    def differences(self) -> pd.DataFrame:
        """One row per track, attack and defence at the study's share, over paired seeds; all rows form one family.

        ``compared`` says what the mean is: ``harm`` is attacked - honest without a defence, ``gain`` is defended -
        undefended under the attack, ``cost`` is defended - undefended where nobody attacks.
        """
        values = {}
        for track, cases in self.studies.items():
            for case in cases:
                if case.share in (0.0, self.share):
                    compared, base = _comparison(case)
                    if base is not None:
                        values[track, compared, case.attack, case.defence] = self._paired(track, case, base)
        found = pd.DataFrame(values).rename_axis(columns=["track", "compared", "attack", "defence"])
        return judge_differences(found, [of_metric(METRIC)] * len(values), "attacks").reset_index()

    def _paired(self, track: str, case: Case, base: tuple[str, str]) -> pd.Series:
        def of(attack: str, defence: str) -> pd.Series:
            share = 0.0 if attack == HONEST else self.share
            rounds = self.studies[track][Case(attack, share, defence)].rounds
            return rounds[rounds["round"] == rounds["round"].max()].set_index("seed")[METRIC]

        return of(case.attack, case.defence) - of(*base)

    def verdicts(self) -> pd.DataFrame:
        """Return what the seeds show, as text: one row per track and attack, and one where nobody attacks.

        ``without a defence`` is how the attack changes the accuracy of the mean; the defences are those that are shown
        to be better or worse than the mean in the same row, with their difference.
        """
        found = self.differences
        rows = []
        for (track, attack), mine in found.groupby(["track", "attack"], sort=False):
            harm = mine[mine["compared"] == "harm"]
            rows.append(
                {
                    "track": track,
                    "attack": NOBODY if attack == HONEST else attack,
                    "without a defence": told(harm)[0] if len(harm) else "",
                    "better than the mean": _named(mine[mine["compared"] != "harm"], HIGHER),
                    "worse than the mean": _named(mine[mine["compared"] != "harm"], LOWER),
                }
            )
        return pd.DataFrame(rows).set_index(["track", "attack"])


def _comparison(case: Case) -> tuple[str, tuple[str, str] | None]:
    """Return what a case is compared as, and the (attack, defence) that it is compared with."""
    if case.attack == HONEST:
        return "cost", (HONEST, UNDEFENDED) if case.defence != UNDEFENDED else None
    if case.defence == UNDEFENDED:
        return "harm", (HONEST, UNDEFENDED)
    return "gain", (case.attack, UNDEFENDED)


def _named(rows: pd.DataFrame, verdict: str) -> str:
    found = rows[rows["verdict"] == verdict].sort_values("mean", ascending=False)
    pairs = zip(found["defence"], found["mean"], strict=True)
    return ", ".join(f"{defence} ({number(mean, signed=True)})" for defence, mean in pairs) or "none shown"


def cases(section: Mapping[str, Any], track: str) -> list[Case]:
    """Return the cases of a track: every attack at the section's share, and one attack at the other shares."""
    attacks = [one_of(tuple(ATTACKS))("attacks: tracks", attack) for attack in section["tracks"][track]]
    found = [Case(HONEST, 0.0, defence) for defence in DEFENCES]
    found += [Case(attack, section["share"], defence) for attack, defence in itertools.product(attacks, DEFENCES)]
    if VARIED in attacks:
        shares = section.get("shares") or []
        found += [Case(VARIED, share, defence) for share, defence in itertools.product(shares, DEFENCES)]
    return list(dict.fromkeys(found))


def attack_variants(section: Mapping[str, Any], track: str) -> dict[Case, dict[str, Any]]:
    """Return the settings of every case of a track; the section's ``settings`` hold for all cases of a track."""
    own = (section.get("settings") or {}).get(track, {})
    return {case: {"tolerated": section["share"], **own, **case.overrides()} for case in cases(section, track)}


def attack_study(
    settings: Profile, section: Mapping[str, Any], folder: Path | None = None, *, train: bool = True
) -> AttackStudy:
    """Run every attack of the profile's section against every defence, over its seeds.

    ``train`` False reads saved runs alone, see :func:`qfl_core.runs.study.get_study`.
    """
    for name in ("tracks", "seeds", "share"):
        if not section.get(name):
            raise ConfigError(f"attacks: {name} must have at least one value, got {section.get(name)!r}")
    found = {}
    for track in section["tracks"]:
        variants = attack_variants(section, track)
        studies = get_variants(settings, track, [METHOD], section["seeds"], variants, folder, train=train)
        found[track] = {case: kept(study) for case, study in studies.items()}
    return AttackStudy(found, section["share"])
