"""Where the report's numbers come from: profile, data, engine, code, versions, and every run with its digests."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
import yaml

from qfl_core.runs import RunResult, commit
from tools.report.collect import Material
from tools.report.markup import facts, folded, table, text

#: Letters of a digest that are shown; the whole one is in the run's files.
SHORT = 12


def provenance(material: Material) -> str:
    """Return the section's HTML."""
    runs = [run for study in material.studies.values() for run in study.runs]
    environments = [run.environment for run in runs]
    changed = {run.path.name: files for run in runs if (files := run.changed_files())}
    seeds = sorted({run.config.seed for run in runs})
    said = {
        "Profile": material.profile,
        "Runs": f"{len(runs)}, on the tracks {', '.join(material.studies)}",
        "Seeds": ", ".join(map(str, seeds)),
        "Data": _different(environment["data"]["source"] for environment in environments),
        "Engine": _different(_engine(environment["engine"]) for environment in environments),
        "Commit of the runs": _different(environment["commit"] for environment in environments),
        "Commit of this page": commit(),
        "Training code (SHA-256)": _different(e["code_sha256"][:SHORT] for e in environments),
        "Python": _different(f"{e['python']} on {e['platform']}" for e in environments),
        "Files of the runs": _integrity(changed, len(runs)),
    }
    versions = pd.DataFrame(
        sorted({(name, version) for e in environments for name, version in e["packages"].items()}),
        columns=["package", "version"],
    )
    parts = [
        facts(said),
        _changed(changed),
        folded("Data sources", table(_sources(material), "data sources"), "data-sources", is_open=True),
        folded("Package versions", table(versions, "package versions"), "versions"),
        _settings(material),
        folded(
            "Every run",
            table(pd.DataFrame(_run(track, run) for track, s in material.studies.items() for run in s.runs), "runs"),
            "runs",
            note="A config's digest covers every setting; a run's identity also the data and the training code.",
        ),
    ]
    return "\n".join(part for part in parts if part)


def _different(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def _engine(engine: dict) -> str:
    kind = f"{engine['shots']} shots" if engine["kind"] == "shots" else engine["kind"]
    return f"{engine['engine']} ({kind})"


def _integrity(changed: dict[str, list[str]], runs: int) -> str:
    if changed:
        return f"{len(changed)} of {runs} runs have files that CHANGED since they were sealed"
    return f"all as sealed (SHA-256 checked, {runs} runs)"


def _changed(changed: dict[str, list[str]]) -> str:
    lines = "".join(f"<li><code>{text(name)}</code>: {text(', '.join(files))}</li>" for name, files in changed.items())
    return f'<div class="warning"><p>Changed since sealed:</p><ul>{lines}</ul></div>' if changed else ""


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


def _settings(material: Material) -> str:
    """Return each track's settings: those of its first run, without what runs differ in."""
    parts = []
    for track, study in material.studies.items():
        shared = {k: v for k, v in study.runs[0].config.to_dict().items() if k not in ("method", "seed")}
        written = text(yaml.safe_dump(shared, sort_keys=False, default_flow_style=None))
        parts.append(f'<h4>{text(track)}</h4>\n<pre tabindex="0" aria-label="settings">{written}</pre>')
    return folded("Settings of every track", "\n".join(parts), "settings", note="Runs differ in method and seed only.")


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
