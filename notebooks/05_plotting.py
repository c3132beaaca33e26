# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 05 · Plotting: the paper's figures and tables, from saved results
#
# Nothing is trained here. The notebook reads what notebooks 02, 03, 04 and 06 left in `results/<profile>`, from this
# code and this data and no other, and writes every figure (PDF and PNG, the paper's panels also alone) and every table
# (CSV, Markdown, LaTeX). `make reproduce` runs it last, and `make figures` runs it only.
#
# Every figure tells its data, engine and seeds in the lower right corner. Lines are means over seeds, bands 95 %
# intervals (Student's $t$).

# %% tags=["parameters"]
profile = "smoke"
seeds = [0, 1]
datasets = ["baf", "genome"]
experiment = {}

# %%
import pandas as pd
from IPython.display import display

from qfl_core import METHODS, analysis
from qfl_core.analysis import tables
from qfl_core.base.paths import figures_dir, results_dir
from qfl_core.config import CLEAN, load_profile
from qfl_core.figures import apply_style, schematics
from qfl_core.figures import claims as claim_figures
from qfl_core.figures import extras as extra_figures
from qfl_core.figures import results as figures
from qfl_core.figures import studies as study_figures
from qfl_core.hardware import HardwareConfig
from qfl_core.runs.study import get_study
from qfl_core.studies.clean import clean_study, encoding_search
from qfl_core.studies.extras import extras_study
from qfl_core.studies.noise import checkpoints_file
from qfl_core.studies.protocol import Plan, protocol_search, write_search
from qfl_core.studies.sensitivity import SETTINGS, controller_study, sensitivity_study
from qfl_core.studies.theory import check_theory

apply_style(final=profile == "paper")
pd.options.display.float_format = "{:.3f}".format
settings, folder = load_profile(profile, experiment=experiment), figures_dir(profile)
jobs = -1 if profile == "paper" else 1  # processes that draw the panels
studies = {name: get_study(settings, name, METHODS, seeds, train=False) for name in datasets}
rounds = {name: study.rounds for name, study in studies.items()}

# %% [markdown]
# ## The method in two pictures

# %%
schematics.architecture().save(folder)

# %%
schematics.overview().save(folder)

# %% [markdown]
# ## Which method does best?
#
# Global accuracy, the clients' mean test accuracy, how much worse they test than they train, and how far apart they
# are (the distance from the 10th to the 90th percentile of client test accuracies).

# %%
compared = {"genome": ["default-qfl", "adam-qfl", "fedprox-qfl", "duqfl-prox"]}
for name, study in studies.items():
    methods = compared.get(name, ["default-qfl", "fedprox-qfl", "duqfl-prox"])
    figures.federated_metrics(study.of(*methods), f"{name}_global_client_metrics", name).save(
        folder, panels=True, jobs=jobs
    )

# %% [markdown]
# *What to see.* Beside every accuracy stand three lines: the majority class and two classical models on the same
# angles. On BAF the first is at 0.989 and no method comes near it; on genome with word ids the other two are at 1,
# because the encoding gives the label away (notebook 01). Look at round 0, too: with the paper's settings DUQFL-Prox
# begins on BAF at 0.64 and keeps it, where the baselines lose it.

# %% [markdown]
# ## Does accuracy hide what happens to the rare class?
#
# Default-QFL (F in the paper), DUQFL-Prox (D) and Adam-QFL (A) on BAF, validation and test.

# %%
if "baf" in studies:
    rare = studies["baf"].of("default-qfl", "duqfl-prox", "adam-qfl")
    figures.classification_curves(rare, "metrics_BAF_1", figures.CLASSIFICATION_1).save(folder, panels=True, jobs=jobs)

# %%
if "baf" in studies:
    figures.classification_curves(rare, "metrics_BAF_2", figures.CLASSIFICATION_2, fairness=True).save(
        folder, panels=True, jobs=jobs
    )

# %% [markdown]
# *What to see.* ROC-AUC near 0.5 says that the ranking of applications is hardly better than chance, whatever the
# accuracy; logistic regression on the same four angles is the dotted line.

# %% [markdown]
# ## Which part of the method does the work?

# %%
variants = ["default-qfl", *(name for name, method in METHODS.items() if method.unfolded)]
for name, study in studies.items():
    title = "ablation_duqfl_components" if name == "genome" else f"ablation_{name}"
    prefix = "ablation" if name == "genome" else title
    figures.federated_metrics(study.of(*variants), title, prefix).save(folder, panels=name == "genome", jobs=jobs)

# %% [markdown]
# ## What does the controller do?

# %%
ours = studies[datasets[0]].of("duqfl-prox")
figures.controller_behaviour(ours).save(folder, panels=True, jobs=jobs)

# %%
figures.controller_heatmaps(ours).save(folder, panels=True, jobs=jobs)

# %%
figures.loss_shift_trace(ours).save(folder, panels=True, jobs=jobs)

# %%
figures.unfold_level_behaviour(ours).save(folder, panels=True, jobs=jobs)

# %% [markdown]
# ## What does each method cost?
#
# Circuit executions of one round, all clients together, by what they are spent on.

# %%
costs = {name: analysis.cost_table(table) for name, table in rounds.items()}
figures.cost_per_method(studies, costs).save(folder)

# %% [markdown]
# ## Our own studies
#
# The clean track, the protocol search, the choice of BAF's encoding, what the method depends on and the extensions:
# notebook 04 shows these pictures and says what to see in them; here they are only written.

# %%
scores = {"baf-clean": "roc_auc", "genome-clean": "accuracy"}
tracks = [f"{name}{CLEAN}" for name in datasets]
sound = {name: get_study(settings, name, METHODS, seeds, train=False) for name in tracks}
clean = {name: clean_study(study, scores[name], train=False) for name, study in sound.items()}
for name in tracks:
    study_figures.clean_track(clean[name], name.replace("-", "_")).save(folder, show=False)

# %%
section = settings.section("protocol", {})
search = protocol_search(settings, Plan.of(section), train=False)
study_figures.protocol_search(search).save(folder, show=False)

# %%
encodings = encoding_search(settings, "baf-clean", section["encodings"], train=False)
study_figures.encoding_validation(encodings, "baf_encodings").save(folder, show=False)

# %%
section = settings.section("sensitivity", {})
study_figures.controller_learning(controller_study(settings, section, train=False)).save(folder, show=False)

# %%
for name, setting in SETTINGS.items():
    found = sensitivity_study(settings, section, name, train=False)
    study_figures.sensitivity(found, setting.label).save(folder, show=False)

# %%
extras = extras_study(settings, settings.section("extensions", {}), train=False)
extra_figures.extensions(extras).save(folder, show=False)

# %% [markdown]
# ## Which of the paper's claims hold here?
#
# Each claim is a list of parts, each part one number per seed, with what must come out of it. A part *holds* where an
# exact sign-flip test over paired seeds rejects at 5 %, corrected for all parts of all claims, and the 95 % bootstrap
# interval lies on the claimed side; it *fails* where both say the opposite; otherwise the seeds do not settle it.
# Claim 20 is about devices: it rests on what notebook 06 stored, which also prints its verdict.

# %%
device = HardwareConfig.from_dict(settings.section("hardware", {}))
saved = checkpoints_file(studies[datasets[-1]].of(*device.methods).runs, device, results_dir(profile))
checkpoints = pd.read_csv(saved) if saved.is_file() else None
runs = {name: study.runs for name, study in studies.items()}
verdicts = analysis.judge(runs, checkpoints, check_theory(len(seeds)))
claims = analysis.claims_table(verdicts).set_index("id")
claims.loc[claims.index != "20", ["claim", "verdict", "parts_holding"]]

# %%
facts = studies[datasets[0]].facts
for sheet in claim_figures.claim_sheets(analysis.parts_table(verdicts), facts):
    sheet.save(folder)

# %% [markdown]
# *What to see.* A row's grey band is where the claim wants the value, the triangle is the paper's number. A wide
# interval across the edge of the band is an open question, not a refutation: more seeds would narrow it.

# %% [markdown]
# ## Tables

# %%
write = folder / "tables"
analysis.write_claims(verdicts, write)
note = "; ".join(f"{name}: {', '.join(study.facts)}" for name, study in studies.items())
everything = studies | {name: found.study for name, found in clean.items()}
sources = {name: str(study.rounds["source"].iloc[0]) for name, study in everything.items()}
write_search(search, write)
for name, found in clean.items():
    tables.write_table(found.table().reset_index(), f"clean_{name.removesuffix(CLEAN)}", write)
tables.write_table(tables.configuration_table(settings), "configuration", write)
tables.write_table(tables.datasets_table(settings, sources), "datasets", write)
tables.write_table(tables.notation_table(), "notation", write)
tables.write_table(tables.roles_table(), "method_roles", write)
tables.write_table(extras.differences, "extensions", write)

# %% [markdown]
# **The qualitative table.** For each column the best mean over seeds gets two marks, a mean in the better half of the
# distance from best to worst gets one, and the others a dash; the paper's own mark stands in brackets.

# %%
qualitative = tables.qualitative_table(rounds)
tables.write_table(qualitative, "qualitative_comparison", write, note)
display(qualitative)

# %% [markdown]
# **Final metrics beside the paper's.** The rows for which the paper prints a number:

# %%
final = tables.beside_paper(rounds)
tables.write_table(final, "final_metrics", write, note)
final.dropna(subset=["paper"])
