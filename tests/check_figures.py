"""After the notebooks ran in the smoke profile: every figure and table of the paper is there, and none is empty."""

from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from qfl_core.base.numbers import rounded
from qfl_core.base.paths import figures_dir, results_dir
from qfl_core.config import load_profile, read_profile
from qfl_core.runs import find_runs
from qfl_core.studies.protocol import SearchTables
from tools.planned import planned_configs

FOLDER = figures_dir("smoke")
FOUR = ("global_accuracy", "mean_client_test", "train_test_gap", "client_fairness_gap")

#: The paper's figures by label, with the labels of their panels.
PAPER = {
    "fl_Archi": (),
    "duqfl_prox_overview": (),
    "baf_global_client_metrics": tuple(f"baf_{name}" for name in FOUR),
    "metrics_BAF_1": ("recall", "precision_epochs", "f1_epochs", "specificity_epochs"),
    "metrics_BAF_2": ("roc_auc_epochs", "pr_auc_epochs", "mcc_epochs", "client_fairness_epochs"),
    "genome_global_client_metrics": tuple(f"genome_{name}" for name in FOUR),
    "real_ibm_validation": ("ibm_duqfl_prox", "ibm_default_qfl"),
    "controller_behaviour": (
        "controller_eta",
        "controller_delta",
        "controller_loss_reduction",
        "controller_selected_unfold",
    ),
    "ablation_duqfl_components": tuple(f"ablation_{name}" for name in FOUR),
    "controller_heatmaps": ("heatmap_lr_client_unfold", "heatmap_pert_client_unfold"),
    "loss_shift_trace": ("param_shift_over_rounds", "scatter_lr_pert_loss_delta"),
    "unfold_level_behaviour": ("eta_delta_loss_reduction_by_unfold", "selected_unfold_distribution"),
    "ibm_workload_evidence": (),
}
OURS = (
    "leak_audit",
    "train_test_gap_shift",
    "baf_clean",
    "genome_clean",
    "cost_per_method",
    "attribution",
    "claims_baf",
    "claims_genome",
    "protocol_search",
    "baf_encodings",
    "controller_learning",
    "controllers_curves",
    "controllers_rates",
    "sensitivity_mu",
    "extensions",
    "attacks",
    "privacy",
    "noise_study",
)
TABLES = (
    "configuration",
    "datasets",
    "method_roles",
    "qualitative_comparison",
    "notation",
    "final_metrics",
    "attribution",
    "clean_baf",
    "clean_genome",
    "clean_baf_tuning",
    "clean_genome_tuning",
    "clean_tuning_levels",
    "clean_tuning_costs",
    "clean_client_sides",
    "extensions",
    "attacks",
    "privacy",
    "train_test_gap_shift",
    "cost_per_method",
    "controller_variation",
)
#: The tables of the protocol search, as its command wrote them.
PROTOCOL = tuple(f"protocol_{field.name}" for field in fields(SearchTables))

FILES = [*PAPER, *OURS, *(f"panels/{panel}" for panels in PAPER.values() for panel in panels)]


@pytest.mark.parametrize("name", FILES)
def test_the_figure_is_drawn_and_not_empty(name):
    written = (FOLDER / f"{name}.pdf").read_bytes()
    assert written.startswith(b"%PDF-")
    assert b"CreationDate" not in written  # the same results draw the same file
    with Image.open(FOLDER / f"{name}.png") as image:
        pixels = np.asarray(image.convert("L"))
    assert min(pixels.shape) > 150
    assert (pixels < 250).mean() > 0.01  # more than a footer
    assert len(np.unique(pixels)) > 20


@pytest.mark.parametrize("name", TABLES)
def test_the_table_is_written_in_three_formats(name):
    table = pd.read_csv(FOLDER / "tables" / f"{name}.csv")
    assert len(table)
    lines = (FOLDER / "tables" / f"{name}.md").read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("|") for line in lines) == len(table) + 2
    assert (FOLDER / "tables" / f"{name}.tex").read_text(encoding="utf-8").count(r"\\") == len(table) + 1


def test_numbers_in_tables_have_the_digits_that_are_meant():
    files = sorted((FOLDER / "tables").glob("*.csv"))
    assert {path.stem for path in files} >= {*TABLES, *PROTOCOL, "claims", "claim_parts"}
    for path in files:
        numbers = pd.read_csv(path).select_dtypes("float")
        assert numbers.equals(numbers.map(rounded)), path.name


def test_the_claims_are_judged():
    claims = pd.read_csv(FOLDER / "tables" / "claims.csv")
    assert len(claims) == 23
    assert set(claims["verdict"]) <= {"holds", "fails", "absent", "undecided", "missing"}


def test_every_figure_of_the_repository_is_one_that_smoke_draws_too():
    """What the repository shows has no figure that no notebook makes any more."""
    shown = {path.relative_to(figures_dir("paper")).as_posix() for path in figures_dir("paper").rglob("*.p*")}
    drawn = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.p*")}
    assert shown <= drawn


def test_what_the_notebooks_trained_is_what_their_bars_counted():
    """A notebook that trains something else would tell a wrong remaining time."""
    settings, values = load_profile("smoke"), read_profile("smoke")
    planned = {config for number in ("02", "03", "04", "06") for config in planned_configs(number, settings, values)}
    trained = {run.config for run in find_runs(results_dir("smoke"))}
    assert planned <= trained
