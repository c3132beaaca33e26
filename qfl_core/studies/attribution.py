"""What makes the difference? A chain from the untrained model to DUQFL-Prox that changes one thing at a time.

Every link is a method with settings, and differs from the link before by one change. All links share data, initial
weights and seeds, so the difference of two links is paired over seeds, and the differences of a chain add up to the
whole.

The change "unfolding" only cuts local training into K blocks: the steps are those of the link before, but the clients
measure more often and so draw other shots. What it shows is what chance alone does to a difference.

**Where a gain in accuracy comes from.** Let m be the share of positives in the test set and q the share of test samples
that a model calls positive. Then

    accuracy = m q + (1 - m) (1 - q)  +  2 m (1 - m) (recall + specificity - 1).

The first part is what a coin scores that calls the same share positive: it changes with the threshold alone. The second
part needs a model that tells the classes apart. Both add up to the accuracy of every run, so their differences add up
to every difference in accuracy.

**Client validation.** From the controller on, the clients' validation parts decide what is uploaded and learnt. These
links run twice: with validation rows in the mix of the data (natural) and in the mix of the client (skewed). With the
first, selection on BAF favours models that call fewer frauds; with the second, it does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from qfl_core.analysis.differences import judge_differences, side_by_side, told
from qfl_core.analysis.inference import intervals
from qfl_core.analysis.kept import kept
from qfl_core.analysis.margins import of_metric
from qfl_core.analysis.tracks import track_title
from qfl_core.base.errors import ConfigError
from qfl_core.base.numbers import number
from qfl_core.config import CLEAN, Profile
from qfl_core.runs.study import Study, get_variants


@dataclass(frozen=True)
class Link:
    """One row of the chain: what was added, and the runs that have it.

    ``validated`` tells that the clients' validation parts play a role in its training.
    """

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    validated: bool = False


LINKS = (
    Link("untrained", "untrained"),
    Link("Default-QFL", "default-qfl", {"default_spsa": "calibrated"}),
    Link("fixed rates", "default-qfl", {"default_spsa": "fixed"}),
    Link("unfolding", "duqfl-last", {"outer_period": 0}),
    Link("controller", "duqfl-last", validated=True),
    Link("best unfold", "duqfl-best", validated=True),
    Link("proximal term", "duqfl-prox", validated=True),
)
NAMES = tuple(link.name for link in LINKS)
#: The whole: the last link minus Default-QFL.
WHOLE = "DUQFL-Prox − Default-QFL"
#: What is judged in the last round: column and title.
METRICS = {
    "global_accuracy": "global accuracy",
    "client_test_accuracy": "client test accuracy",
    "train_test_gap": "train-test gap",
    "fairness_gap": "fairness gap",
    "test_roc_auc": "ROC-AUC",
    "called_positive": "share called positive",
}
#: The two parts that add up to the global accuracy.
PARTS = {"by_calls": "calls another share positive", "by_telling": "tells the classes apart"}
OWN, OTHER = "own", "other"
_MIXES = {"natural": "skewed", "skewed": "natural"}


@dataclass(frozen=True, eq=False)
class Attribution:
    """The last round of every run of the chain.

    Attributes
    ----------
    last : one row per track, validation (``own`` is the track's, ``other`` the other mix), link and seed, with the
        columns of :data:`METRICS` and :data:`PARTS`. Links in which validation plays no role have the same rows twice.
    mixes : the label mix of the track's own client validation, ``natural`` or ``skewed``, by track.
    facts : what a figure's footer says.
    """

    last: pd.DataFrame
    mixes: Mapping[str, str]
    facts: tuple[str, ...]

    @property
    def tracks(self) -> tuple[str, ...]:
        """The tracks, in the order given."""
        return tuple(self.mixes)

    def mix(self, track: str, validation: str) -> str:
        """Return the label mix of the clients' validation rows."""
        return self.mixes[track] if validation == OWN else _MIXES[self.mixes[track]]

    @cached_property
    def levels(self) -> pd.DataFrame:
        """Mean, low and high (95 % over seeds): one row per track, validation, link and metric or part."""
        by = ["track", "validation", "link"]
        found = [intervals(self.last, metric, by).assign(metric=metric) for metric in (*METRICS, *PARTS)]
        return pd.concat(found, ignore_index=True)

    @cached_property
    def differences(self) -> pd.DataFrame:
        """Each link minus the one before, and the whole, with verdicts: one row per track, validation, link and metric.

        The columns are those of :func:`qfl_core.analysis.differences.judge_differences`; all rows form one family.
        With the other validation only the links that it changes are judged.
        """
        steps = {(*key, metric): self._paired(*key, metric) for key in self._steps() for metric in METRICS}
        table = pd.DataFrame(steps).rename_axis(columns=["track", "validation", "link", "metric"])
        margins = [of_metric(metric) for *_, metric in steps]
        return judge_differences(table, margins, "attribution").reset_index()

    @cached_property
    def parts(self) -> pd.DataFrame:
        """Both parts of every difference in global accuracy: mean, low, high (95 %), one row per link and part."""
        rows = []
        for track, validation, link in self._steps():
            for part in PARTS:
                values = self._paired(track, validation, link, part).rename(part).reset_index()
                found = intervals(values.assign(track=track, validation=validation, link=link), part, _KEY)
                rows.append(found.assign(part=part))
        return pd.concat(rows, ignore_index=True)

    def _steps(self) -> Iterator[tuple[str, str, str]]:
        for track in self.tracks:
            for validation in (OWN, OTHER):
                changed = [link.name for link in LINKS[1:] if validation == OWN or link.validated]
                yield from ((track, validation, name) for name in (*changed, WHOLE))

    def _paired(self, track: str, validation: str, link: str, metric: str) -> pd.Series:
        """Return one difference per seed."""
        after, before = (NAMES[-1], NAMES[1]) if link == WHOLE else (link, NAMES[NAMES.index(link) - 1])
        mine = self.last[(self.last["track"] == track) & (self.last["validation"] == validation)]
        values = {name: mine[mine["link"] == name].set_index("seed")[metric] for name in (after, before)}
        return values[after] - values[before]

    def table(self) -> pd.DataFrame:
        """Return what readers see: per track, validation, link and metric its level, its difference and the verdict."""
        level = self.levels[self.levels["metric"].isin(METRICS)]
        level = level.rename(columns={name: f"level_{name}" for name in ("mean", "low", "high")}).drop(columns="seeds")
        both = self.differences.merge(level, on=[*_KEY, "metric"], how="outer")
        places = {name: place for place, name in enumerate((*NAMES, WHOLE))}
        order = {
            "track": {name: place for place, name in enumerate(self.tracks)},
            "validation": {OWN: 0, OTHER: 1},
            "link": places,
            "metric": {name: place for place, name in enumerate(METRICS)},
        }
        ranks = both[list(order)].apply(lambda column: column.map(order[str(column.name)]))
        both = both.loc[ranks.sort_values(list(order)).index].reset_index(drop=True)
        # A link without a role for validation has one level: the rows of its copy say nothing new.
        copies = (both["validation"] == OTHER) & both["mean"].isna()
        both["validation"] = [
            self.mix(track, which) for track, which in zip(both["track"], both["validation"], strict=True)
        ]
        columns = ["level_mean", "level_low", "level_high", "mean", "low", "high", "margin", "p", "verdict", "seeds"]
        return both.loc[~copies, [*_KEY, "metric", *columns]].reset_index(drop=True)

    def steps(self) -> pd.DataFrame:
        """Return what each link adds to the global accuracy, as text: one row per link and the whole, by track."""
        rows = self.differences[(self.differences["metric"] == "global_accuracy")]
        rows = rows[(rows["validation"] == OWN) & rows["link"].isin([*NAMES[2:], WHOLE])]
        return side_by_side(rows, "link", "track")

    def whole(self) -> pd.DataFrame:
        """Return what all links together change from Default-QFL on, as text: one row per number, by track."""
        return pd.DataFrame({track: self._whole(track) for track in self.tracks})

    def _whole(self, track: str) -> dict[str, str]:
        rows = self.differences[(self.differences["track"] == track) & (self.differences["link"] == WHOLE)]
        found = dict(zip(zip(rows["validation"], rows["metric"], strict=True), told(rows), strict=True))
        mine = self.parts[(self.parts["track"] == track) & (self.parts["validation"] == OWN)]
        parts = mine[mine["link"] == WHOLE].set_index("part")["mean"]
        levels = self.levels[(self.levels["track"] == track) & (self.levels["validation"] == OWN)]
        called = levels[levels["metric"] == "called_positive"].set_index("link")["mean"]
        return {
            "global accuracy": found[OWN, "global_accuracy"],
            **{f"of this: {words}": number(float(parts[part]), signed=True) for part, words in PARTS.items()},
            METRICS["called_positive"]: " → ".join(number(float(called[name])) for name in (NAMES[1], NAMES[-1])),
            METRICS["test_roc_auc"]: found[OWN, "test_roc_auc"],
            "clients' validation rows": self.mix(track, OWN),
            "global accuracy with the other mix there": found[OTHER, "global_accuracy"],
            "ROC-AUC with the other mix there": found[OTHER, "test_roc_auc"],
        }


_KEY = ["track", "validation", "link"]


def chain(validation: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the settings of every link by (link, validation); ``validation`` is the track's own client validation."""
    found = {(link.name, OWN): {"method": link.method, **link.settings} for link in LINKS}
    changed = {"client_val": _MIXES[validation]}
    return found | {
        (link.name, OTHER): {"method": link.method, **link.settings, **changed} for link in LINKS if link.validated
    }


def attribution_study(
    settings: Profile,
    section: Mapping[str, Any],
    seeds: Sequence[int],
    folder: Path | None = None,
    *,
    train: bool = True,
) -> Attribution:
    """Run the chain on the ``tracks`` of the profile's section; a clean track takes the first seeds alone.

    ``train`` False reads saved runs alone, see :func:`qfl_core.runs.study.get_study`.
    """
    if not section.get("tracks"):
        raise ConfigError(f"attribution: tracks must list at least one value, got {section.get('tracks')!r}")
    parts, studies, mixes = [], {}, {}
    for track in section["tracks"]:
        mixes[track] = settings.config(track).client_val
        mine = seeds_of(settings, track, seeds)
        found = get_variants(settings, track, None, mine, chain(mixes[track]), folder, train=train)
        for (link, validation), study in found.items():
            parts.append(last_round(kept(study)).assign(track=track, link=link, validation=validation))
        early = [part for part in parts if part["track"].iloc[0] == track and part["link"].iloc[0] in _UNCHANGED]
        parts += [part.assign(validation=OTHER) for part in early]
        studies[track] = found[NAMES[-1], OWN]
    return Attribution(pd.concat(parts, ignore_index=True), mixes, _facts(studies))


_UNCHANGED = {link.name for link in LINKS if not link.validated}


def seeds_of(settings: Profile, track: str, seeds: Sequence[int]) -> list[int]:
    """Return the seeds of a track's chain: all of them, on a clean track those of studies."""
    return settings.for_studies(seeds) if track.endswith(CLEAN) else list(seeds)


def last_round(study: Study) -> pd.DataFrame:
    """Return seed, metrics and parts of the last round, one row per run."""
    rounds = study.rounds
    last = rounds[rounds["round"] == rounds["round"].max()]
    rows = last["test_tp"] + last["test_fp"] + last["test_fn"] + last["test_tn"]
    share = (last["test_tp"] + last["test_fn"]) / rows
    called = (last["test_tp"] + last["test_fp"]) / rows
    youden = last["test_recall"] + last["test_specificity"] - 1
    last = last.assign(
        called_positive=called,
        by_calls=share * called + (1 - share) * (1 - called),
        by_telling=2 * share * (1 - share) * youden,
    )
    return last[["seed", *METRICS, *PARTS]]


def _facts(studies: Mapping[str, Study]) -> tuple[str, ...]:
    """Return what a figure's footer says: source and seeds by track, then what all tracks share."""
    sources = sorted({study.facts[0] for study in studies.values()})
    counts = {track: len(study.runs) for track, study in studies.items()}
    seeds = "seeds: " + ", ".join(f"{track_title(track)} {count}" for track, count in counts.items())
    _, engine, _, profile = next(iter(studies.values())).facts
    return (*sources, engine, seeds, profile)
