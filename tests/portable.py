"""Draw figures and write tables of planted runs into a folder, in a process of its own (see test_portable.py).

python portable.py runs.pickle folder
"""

import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

matplotlib.use("Agg")

from planted import planted_splits, small
from planted_claims import PlantedRun, device_table
from planted_search import planted_stage

from qfl_core import analysis
from qfl_core.algorithm.methods import METHODS
from qfl_core.analysis import tables
from qfl_core.analysis.gap import PARTS
from qfl_core.analysis.inference import intervals
from qfl_core.config import load_profile
from qfl_core.data.partition import make_partition
from qfl_core.figures import apply_style, claims, controller, data, gap, hardware, protocol, results
from qfl_core.runs.study import REFERENCES, Study
from qfl_core.studies.clean import CleanStudy
from qfl_core.studies.protocol import Plan, Search, SearchTables, finalists


@dataclass(frozen=True, eq=False)
class PlantedStudy(Study):
    """A study of planted runs, whose tables are in memory."""

    runs: tuple[PlantedRun, ...]

    def __post_init__(self) -> None:
        self.__dict__["rounds"] = self.joint("rounds").dropna()
        self.__dict__["facts"] = ("data: planted",)
        rng = np.random.default_rng(1)
        rows = [
            {"model": model, "seed": seed, **dict.fromkeys(("accuracy", "balanced_accuracy", "roc_auc"), rng.uniform())}
            for model in REFERENCES
            for seed in sorted({run.config.seed for run in self.runs})
        ]
        self.__dict__["reference_scores"] = pd.DataFrame(rows)

    def joint(self, name: str) -> pd.DataFrame:
        parts = [getattr(run, name).assign(method=run.config.method, seed=run.config.seed) for run in self.runs]
        return pd.concat(parts, ignore_index=True)

    def table(self, name: str) -> pd.DataFrame:
        return self.joint({"classification_metrics": "metrics", "client_trace": "clients"}[name])


def main(runs: Path, folder: Path) -> None:
    apply_style(final=False)
    found = pickle.loads(runs.read_bytes())
    planted = {track: PlantedStudy(track, "planted", tuple(mine), folder) for track, mine in found.items()}
    rounds = {
        track: study.rounds.assign(drift_from_broadcast=study.rounds["fairness_gap"] / 3, circuits_train=7)
        for track, study in planted.items()
    }
    write_tables(found, planted, rounds, folder / "tables")
    baf, prox = planted["baf"], planted["baf"].of("duqfl-prox")
    sheets = [
        results.federated_metrics(baf, "federated", "baf"),
        results.classification_curves(baf.of("duqfl-prox", "adam-qfl"), "metrics", results.CLASSIFICATION_2),
        controller.controller_heatmaps(prox),
        data.angles_by_class(planted_splits(features=1), ("legitimate", "fraud"), baf.facts),
        controller.loss_shift_trace(prox),
        protocol.protocol_search(search()),
        claims.claim_sheets(analysis.parts_table(analysis.judge(found, device_table())), baf.facts)[0],
        controller.controller_behaviour(prox),
        controller.unfold_level_behaviour(prox),
        data.client_mix(mix(), "baf", "label-skew", baf.facts),
        gap.train_test_gap_shift(gaps(), baf.facts),
        hardware.noise_study(*noise(), baf.facts, "baf"),
    ]
    for sheet in sheets:
        sheet.save(folder)


def mix() -> pd.DataFrame:
    """Return the clients' shares of both classes in every round."""
    splits = planted_splits()
    return make_partition(splits, small(rounds=3)).table(splits)


def gaps() -> pd.DataFrame:
    """Return what the gaps of two methods are made of, as means with intervals over planted seeds."""
    rng = np.random.default_rng(2)
    parts = pd.DataFrame(
        {"track": "baf", "method": method, "seed": seed, "part": part, "value": rng.normal(0.1, 0.05)}
        for method in ("duqfl-prox", "default-qfl")
        for seed in range(7)
        for part in PARTS
    )
    found = intervals(parts, "value", ["track", "method", "part"])
    return found.assign(label=[METHODS[method].label for method in found["method"]])


def noise() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return planted tables of accuracies under noise, and of the steadiness of every seed."""
    rng = np.random.default_rng(3)
    keys = [(method, seed) for method in ("duqfl-prox", "default-qfl") for seed in range(5)]
    grid = pd.DataFrame(
        {"method": method, "seed": seed, "noise_scale": scale, "shots": shots, "accuracy": rng.uniform(0.4, 0.9)}
        for method, seed in keys
        for scale in (0.0, 0.5, 1.0)
        for shots in (0, 100, 1000)
    )
    steadiness = pd.DataFrame(
        {"method": method, "distance": rng.uniform(0, 0.1, 9).mean(), "unsteadiness": rng.uniform(0, 0.1, 9).std()}
        for method, _ in keys
    )
    return grid, steadiness


def write_tables(
    found: dict[str, list[PlantedRun]],
    planted: dict[str, PlantedStudy],
    rounds: dict[str, pd.DataFrame],
    folder: Path,
) -> None:
    settings = load_profile("smoke")
    analysis.write_claims(analysis.judge(found, device_table()), folder)
    search().write(folder)
    clean = planted["baf"]
    clean.__dict__["rounds"] = rounds["baf"].assign(global_fairness_gap=0.0)
    references = clean.reference_scores
    clean = CleanStudy(clean, "roc_auc", references[references["model"] != "majority class"])
    written = {
        "clean": clean.table().reset_index(),
        "configuration": tables.configuration_table(settings),
        "datasets": tables.datasets_table(settings, {"baf": "planted"}),
        "notation": tables.notation_table(),
        "method_roles": tables.roles_table(),
        "qualitative_comparison": tables.qualitative_table(rounds),
        "final_metrics": tables.beside_paper(rounds),
    }
    for name, table in written.items():
        tables.write_table(table, name, folder)


def search() -> SearchTables:
    plan = Plan.of(load_profile("paper").sections["protocol"])
    chosen = finalists(plan, planted_stage(plan, plan.candidates, 4))
    final = planted_stage(plan, chosen, 4)
    return SearchTables.of(Search(plan, planted_stage(plan, plan.candidates, 4), final, ("planted",)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
