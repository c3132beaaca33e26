"""What claims are judged on: runs by track, device results and theory checks, as one number per seed and part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd

from qfl_core.analysis.claims import Part
from qfl_core.analysis.compare import check_comparable
from qfl_core.analysis.measures import Theory
from qfl_core.base.errors import AnalysisError, did_you_mean
from qfl_core.runs import RunResult

RUN_TRACKS = ("baf", "genome")
#: From the most real device to the least.
DEVICES = ("hardware", "fake", "noisy")
HARDWARE_COLUMNS = ("method", "seed", "checkpoint", "kind", "accuracy")


@dataclass(frozen=True, eq=False)
class Numbers:
    """A part's number by seed, a note on what is missing, and where the numbers come from (empty for nowhere)."""

    values: pd.Series
    note: str = ""
    source: str = ""


@dataclass(frozen=True, eq=False)
class Evidence:
    """``runs[track][method][seed]`` is what a measure reads; ``sources`` says where a track's numbers come from."""

    runs: Mapping[str, Mapping[str, Mapping[int, Any]]]
    sources: Mapping[str, str]
    theory: Theory | None = None

    @classmethod
    def gather(
        cls, studies: Mapping[str, Sequence[RunResult]], hardware: pd.DataFrame | None, theory: Theory | None
    ) -> Evidence:
        """Sort the runs by method and seed; raise an error if they cannot be compared. Every source may be absent."""
        runs: dict[str, Mapping[str, Mapping[int, Any]]] = {}
        sources: dict[str, str] = {}
        for track, given in studies.items():
            if track not in RUN_TRACKS:
                hint = did_you_mean(track, RUN_TRACKS)
                raise AnalysisError(f"unknown track {track!r}{hint}; tracks: {', '.join(RUN_TRACKS)}")
            if given:
                runs[track], sources[track] = _by_method(track, list(given))
        if hardware is not None and len(hardware):
            runs["hardware"], sources["hardware"] = _checkpoints(hardware)
        if theory is not None:
            sources["theory"] = "computed (exact)"
        return cls(runs, sources, theory)

    def numbers(self, part: Part) -> Numbers:
        """Return the part's number by seed and a note on what is missing; values that are not numbers are left out."""
        return Numbers(*self._values(part), self.sources.get(part.track, ""))

    def _values(self, part: Part) -> tuple[pd.Series, str]:
        if part.track == "theory":
            found = part.measure(self.theory) if self.theory else ()
            return pd.Series(found, dtype=float), "" if self.theory else "missing: the theory checks were not computed"
        if part.track not in self.runs:
            return pd.Series(dtype=float), f"missing: no results of track {part.track}"
        methods = self.runs[part.track]
        absent = [method for method in part.methods if method not in methods]
        if absent:
            everyone = sorted({seed for runs in methods.values() for seed in runs})
            named = f"{', '.join(absent)} on {part.track}, seeds {_listed(everyone)}"
            return pd.Series(dtype=float), f"missing: no run of {named}"
        held = [methods[method] for method in part.methods]
        paired = sorted(set.intersection(*(set(runs) for runs in held)))
        values = pd.Series({seed: part.measure(*(runs[seed] for runs in held)) for seed in paired}, dtype=float)
        defined = values[np.isfinite(values)]
        return defined, "; ".join(self._notes(part, methods, paired, values, defined))

    def _notes(
        self,
        part: Part,
        methods: Mapping[str, Mapping[int, Any]],
        paired: list[int],
        values: pd.Series,
        defined: pd.Series,
    ) -> list[str]:
        notes = []
        for method in part.methods:
            lost = sorted({seed for runs in methods.values() for seed in runs} - set(methods[method]))
            if lost:
                notes.append(f"no run of {method} on {part.track} for seeds {_listed(lost)}")
        if len(defined) < len(values):
            notes.append(f"not defined for seeds {_listed(sorted(set(paired) - set(defined.index)))}")
        if len(defined) < 2:
            notes.insert(0, f"missing: {len(defined)} paired seeds of at least 2")
        return notes


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _by_method(track: str, runs: list[RunResult]) -> tuple[dict[str, dict[int, RunResult]], str]:
    check_comparable(runs)
    if runs[0].config.dataset != track:
        raise AnalysisError(f"the runs of track {track!r} are of dataset {runs[0].config.dataset!r}")
    found: dict[str, dict[int, RunResult]] = {}
    for run in runs:
        of_method = found.setdefault(run.config.method, {})
        if run.config.seed in of_method:
            raise AnalysisError(f"{track} has two runs of {run.config.method} with seed {run.config.seed}; keep one")
        of_method[run.config.seed] = run
    data, engine = runs[0].environment["data"]["source"], runs[0].environment["engine"]["kind"]
    return found, f"{track} {runs[0].config.encoding}: {data} data, {engine}"


def _checkpoints(table: pd.DataFrame) -> tuple[dict[str, dict[int, pd.DataFrame]], str]:
    """Return accuracies by checkpoint for every method and seed.

    They come from one kind of device: of those that all methods have, the first in :data:`DEVICES`.
    """
    lacking = [column for column in HARDWARE_COLUMNS if column not in table]
    if lacking:
        raise AnalysisError(f"the hardware table lacks {', '.join(lacking)}; it has {', '.join(table.columns)}")
    twice = table.duplicated(["method", "seed", "checkpoint", "kind"])
    if twice.any():
        row = table[twice].iloc[0]
        raise AnalysisError(f"the hardware table has {row['method']} seed {row['seed']} {row['kind']} twice")
    kinds = table.groupby("method")["kind"].agg(set)
    common = set.intersection(*kinds)
    device = next((kind for kind in DEVICES if kind in common), None)
    if device is None or "exact" not in common:
        raise AnalysisError(
            f"every method needs the kind exact and one of {', '.join(DEVICES)}; all have {', '.join(sorted(common))}"
        )
    wide = table.pivot(index=["method", "seed", "checkpoint"], columns="kind", values="accuracy")
    wide = wide.rename(columns={device: "device"})[["device", "exact"]].dropna().sort_index()
    found: dict[str, dict[int, pd.DataFrame]] = {}
    for key, rows in wide.groupby(["method", "seed"]):
        method, seed = cast(tuple[str, int], key)
        found.setdefault(method, {})[int(seed)] = rows
    return found, "real device" if device == "hardware" else f"simulated device ({device})"
