"""Where the report's numbers come from: profile, data, engine, code, versions, and every run with its digests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd
import yaml

from qfl_core.runs import RunResult
from qfl_core.runs.identity import commit
from tools.report.collect import Material

#: Letters of a digest that are shown; the whole one is in the run's files.
SHORT = 12


@dataclass(frozen=True)
class Provenance:
    """The facts that hold for the whole report, files that changed, and the tables behind the facts."""

    facts: dict[str, str]
    changed: dict[str, list[str]]
    sources: pd.DataFrame
    versions: pd.DataFrame
    settings: dict[str, str]
    runs: pd.DataFrame


def provenance(material: Material) -> Provenance:
    """Gather the section from the environments that the runs stored."""
    runs = [run for study in material.studies.values() for run in study.runs]
    environments = [run.environment for run in runs]
    changed = {run.path.name: files for run in runs if (files := run.changed_files())}
    facts = {
        "Profile": material.profile,
        "Runs": f"{len(runs)}, on the tracks {', '.join(material.studies)}",
        "Seeds": ", ".join(map(str, sorted({run.config.seed for run in runs}))),
        "Data": _different(environment["data"]["source"] for environment in environments),
        "Engine": _different(_engine(environment["engine"]) for environment in environments),
        "Commit of the runs": _different(environment["commit"] for environment in environments),
        "Commit of this page": commit(),
        "Training code (SHA-256)": _different(e["code_sha256"][:SHORT] for e in environments),
        "Python": _different(f"{e['python']} on {e['platform']}" for e in environments),
        "Files of the runs": _integrity(changed, len(runs)),
    }
    versions = sorted({(name, version) for e in environments for name, version in e["packages"].items()})
    return Provenance(
        facts,
        changed,
        _sources(material),
        pd.DataFrame(versions, columns=["package", "version"]),
        {track: _settings(study.runs[0]) for track, study in material.studies.items()},
        _runs(material),
    )


def _different(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def _engine(engine: Mapping[str, object]) -> str:
    kind = f"{engine['shots']} shots" if engine["kind"] == "shots" else engine["kind"]
    return f"{engine['engine']} ({kind})"


def _integrity(changed: dict[str, list[str]], runs: int) -> str:
    if changed:
        return f"{len(changed)} of {runs} runs have files that CHANGED since they were sealed"
    return f"all as sealed (SHA-256 checked, {runs} runs)"


def _sources(material: Material) -> pd.DataFrame:
    """Return the distinct data of every track."""
    rows = {}
    for track, study in material.studies.items():
        for run in study.runs:
            data, notes = run.environment["data"], run.environment.get("data_notes", {})
            told = "; ".join(f"{name}: {value}" for name, value in notes.items())
            key = (track, data["source"], data["name"], data["sha256"][:SHORT], told)
            rows[key] = dict(zip(("track", "source", "name", "sha256", "notes"), key, strict=True))
    return pd.DataFrame(rows.values())


def _settings(run: RunResult) -> str:
    """Return a run's settings as YAML, without those in which the runs of a track differ."""
    shared = {name: value for name, value in run.config.to_dict().items() if name not in ("method", "seed")}
    return yaml.safe_dump(shared, sort_keys=False, default_flow_style=None)


def _runs(material: Material) -> pd.DataFrame:
    """Return every run with its digests, without what the facts and the data sources already tell of all runs."""
    table = pd.DataFrame(_run(track, run) for track, study in material.studies.items() for run in study.runs)
    told = {
        "commit": table["commit"].nunique() == 1,
        "data": (table.groupby("track")["data"].nunique() == 1).all(),
    }
    return table.drop(columns=[name for name, is_told in told.items() if is_told])


def _run(track: str, run: RunResult) -> dict[str, str]:
    return {
        "track": track,
        "method": run.config.method,
        "seed": str(run.config.seed),
        "run": run.path.name,
        "config": run.config.digest[:SHORT],
        "identity": run.environment["identity"][:SHORT],
        "data": run.environment["data"]["sha256"][:SHORT],
        "commit": run.environment["commit"],
    }
