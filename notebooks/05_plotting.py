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
#
# *The stored outputs are those of the profile `paper`, as `make reproduce` makes them. Run the notebook as it is and it
# takes the profile `smoke`: two seeds, few rounds, seconds.*

# %% tags=["parameters"]
profile = "smoke"
seeds = [0, 1]
datasets = ["baf", "genome"]
experiment = {}

# %%
import pandas as pd
from IPython.display import display

from qfl_core import METHODS, analysis
from qfl_core.analysis import beside, tables
from qfl_core.analysis.gap import gap_parts, gap_sheet, gap_table
from qfl_core.analysis.kept import kept
from qfl_core.analysis.real_claims import read_real
from qfl_core.analysis.sides import side_rates
from qfl_core.analysis.untrained import UNTRAINED
from qfl_core.analysis.variation import variation_table
from qfl_core.base.paths import figures_dir, results_dir
from qfl_core.config import CLEAN, load_profile
from qfl_core.figures import apply_style, schematics
from qfl_core.figures import attacks as attack_figures
from qfl_core.figures import attribution as attribution_figure
from qfl_core.figures import claims as claim_figures
from qfl_core.figures import controller as controller_figures
from qfl_core.figures import controllers as comparison_figures
from qfl_core.figures import extras as extra_figures
from qfl_core.figures import gap as gap_figures
from qfl_core.figures import privacy as privacy_figure
from qfl_core.figures import protocol as protocol_figure
from qfl_core.figures import results as figures
from qfl_core.figures import studies as study_figures
from qfl_core.hardware import HardwareConfig
from qfl_core.runs.study import get_study
from qfl_core.studies.attacks import attack_study
from qfl_core.studies.attribution import attribution_study
from qfl_core.studies.clean import clean_study, encoding_search
from qfl_core.studies.controllers import complete_comparison
from qfl_core.studies.extras import extras_study
from qfl_core.studies.noise import checkpoints_file
from qfl_core.studies.privacy import privacy_study
from qfl_core.studies.protocol import complete_search
from qfl_core.studies.sensitivity import SETTINGS, controller_study, sensitivity_study
from qfl_core.studies.theory import check_theory
from qfl_core.studies.tuning import tuning_study

apply_style(final=profile == "paper")
pd.options.display.float_format = "{:.3f}".format
pd.options.display.max_colwidth = 150
settings, folder = load_profile(profile, experiment=experiment), figures_dir(profile)
everything = [*METHODS, UNTRAINED]
studies = {name: kept(get_study(settings, name, everything, seeds, train=False)) for name in datasets}
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
    part = study.of(*compared.get(name, ["default-qfl", "fedprox-qfl", "duqfl-prox"]), UNTRAINED)
    figures.federated_metrics(part, f"{name}_global_client_metrics", name).save(folder, panels=True)

# %% [markdown]
# *What to see.* Beside every accuracy stand three lines: the majority class and two classical models on the same
# angles. On BAF the first is at 0.989 and no method comes near it; on genome with word ids the other two are at 1,
# because the encoding gives the label away (notebook 01). The thin line with dots, in every panel, is the untrained
# model, which keeps the initial weights: what lies on it was not learnt. Triangles are the paper's numbers.

# %%
for name, study in studies.items():
    print(name)
    display(beside.final_numbers(study.of("duqfl-prox", "fedprox-qfl", "default-qfl", UNTRAINED).rounds, name))

# %% [markdown]
# ### What is the train-test gap made of?
#
# Clients train on chunks with another mix of classes than the test set. A model that favours one class then scores
# differently on both although it has memorised nothing. With $m_i$ and $m_{test}$ the shares of label 1, and
# $r_{1,i}$, $r_{0,i}$ the shares of positive and of negative test samples that the uploaded model answers rightly, this
# part of the gap is
#
# $$\frac1N\sum_i (m_i - m_{test})\,(r_{1,i} - r_{0,i}).$$

# %%
gaps = gap_table({name: gap_parts(study) for name, study in studies.items()})
gap_figures.train_test_gap_shift(gaps, studies[datasets[0]].facts).save(folder)
beside.gaps(gaps)

# %% [markdown]
# *What to see.* The two bars of a method add up to the diamond. The light bar needs no training: the untrained model
# has one, too. The dark bar is what a method does better on samples that it has trained on, and the chance of which
# samples those are; the untrained model's dark bar is that chance alone. On genome the dark bar also holds what the
# other angles of the official test folder change (notebook 01): in the profile `paper`, trained global models score
# about 0.03 higher on the server's validation part, which comes from the training folder, than on the test part.

# %% [markdown]
# ## Does accuracy hide what happens to the rare class?
#
# Default-QFL (F in the paper), DUQFL-Prox (D) and Adam-QFL (A) on BAF, validation and test.

# %%
if "baf" in studies:
    rare = studies["baf"].of("default-qfl", "duqfl-prox", "adam-qfl", UNTRAINED)
    figures.classification_curves(rare, "metrics_BAF_1", figures.CLASSIFICATION_1).save(folder, panels=True)

# %%
if "baf" in studies:
    figures.classification_curves(rare, "metrics_BAF_2", figures.CLASSIFICATION_2, fairness=True).save(
        folder, panels=True
    )

# %% [markdown]
# *What to see.* ROC-AUC near 0.5 says that the ranking of applications is hardly better than chance, whatever the
# accuracy; logistic regression on the same four angles is the dotted line.

# %%
if "baf" in studies:
    display(beside.rare_class(rare.rounds))

# %% [markdown]
# ## Which part of the method does the work?

# %%
variants = ["default-qfl", *(name for name, method in METHODS.items() if method.unfolded), UNTRAINED]
for name, study in studies.items():
    title = "ablation_duqfl_components" if name == "genome" else f"ablation_{name}"
    prefix = "ablation" if name == "genome" else title
    figures.federated_metrics(study.of(*variants), title, prefix).save(folder, panels=name == "genome")
    display(beside.components(study.of(*variants).rounds, name))

# %% [markdown]
# ## What does the controller do?

# %%
ours = studies[datasets[0]].of("duqfl-prox")
trace = ours.table("client_trace")
controller_figures.controller_behaviour(ours).save(folder, panels=True)
beside.rates(trace)

# %%
controller_figures.controller_heatmaps(ours).save(folder, panels=True)
beside.rates_by_client(trace)

# %% [markdown]
# *What to see.* The variations under the maps are computed within single runs and then averaged over seeds. The cells
# are means over seeds and differ less; the last lines have both.

# %%
controller_figures.loss_shift_trace(ours).save(folder, panels=True)
beside.movement(trace)

# %%
controller_figures.unfold_level_behaviour(ours).save(folder, panels=True)
beside.unfolds(trace)

# %% [markdown]
# ## What does each method cost?
#
# Circuit executions of one round, all clients together, by what they are spent on.

# %%
costs = {name: analysis.cost_table(table) for name, table in rounds.items()}
figures.cost_per_method(studies, costs).save(folder)
every_cost = analysis.costs_table(costs)
every_cost.set_index(["method", "track"])["per round"].unstack()

# %% [markdown]
# *What to see.* The table has the circuits of one round, without what tuning spends once. The methods with unfolds
# measure the loss before and after every unfold, those with a controller also run virtual rounds for the outer step.
# With the paper's settings that is more than three times as many circuits as FedProx-QFL needs.

# %% [markdown]
# ## Our own studies
#
# The attribution, the clean track, the protocol search, the comparison of controllers, the choice of BAF's encoding,
# what the method depends on, the extensions, the attacks and privacy: notebook 04 shows these pictures and says what to
# see in them; this notebook only saves them to `figures/`.

# %%
scores = {"baf-clean": "roc_auc", "genome-clean": "accuracy"}
tracks = [f"{name}{CLEAN}" for name in datasets]
few = settings.for_studies(seeds)
sound = {name: kept(get_study(settings, name, everything, few, train=False)) for name in tracks}
clean = {name: clean_study(study, scores[name], train=False) for name, study in sound.items()}
for name in tracks:
    study_figures.clean_track(clean[name], name.replace("-", "_")).save(folder, show=False)

# %%
chain = attribution_study(settings, settings.section("attribution", {}), seeds, train=False)
attribution_figure.attribution(chain).save(folder, show=False)

# %%
search = complete_search()
protocol_figure.protocol_search(search).save(folder, show=False)

# %%
comparison = complete_comparison()
comparison_figures.controller_curves(comparison).save(folder, show=False)
comparison_figures.controller_rates(comparison).save(folder, show=False)

# %%
section = settings.section("protocol", {})
encodings = encoding_search(settings, "baf-clean", section["encodings"], train=False)
study_figures.encoding_validation(encodings, "baf_encodings").save(folder, show=False)
tuned = {name: tuning_study(settings, name, section["tuning"], train=False) for name in tracks}

# %%
section = settings.section("sensitivity", {})
controller = controller_study(settings, section, train=False)
study_figures.controller_learning(controller).save(folder, show=False)

# %%
for name, setting in SETTINGS.items():
    found = sensitivity_study(settings, section, name, train=False)
    study_figures.sensitivity(found, setting.label).save(folder, show=False)

# %%
extras = extras_study(settings, settings.section("extensions", {}), train=False)
extra_figures.extensions(extras).save(folder, show=False)

# %%
attacked = attack_study(settings, settings.section("attacks", {}), train=False)
attack_figures.attacks(attacked).save(folder, show=False)

# %%
private = privacy_study(settings, settings.section("privacy", {}), train=False)
privacy_figure.privacy(private).save(folder, show=False)

# %% [markdown]
# ## Which of the paper's claims hold here?
#
# Each claim is a list of parts. A part is one number per seed, with what must come out of it. It *holds* where a
# sign-flip test over paired seeds rejects, where with more than 14 seeds a bootstrap test rejects, too, and where the
# 95 % interval lies on the claimed side. It *fails* where the opposite is shown. It is *absent* where an effect as
# large as the margin, the smallest one worth claiming, is excluded. Otherwise the seeds do not settle it. The tests are
# corrected so that the chance of even one wrong verdict is at most 5 % ([the rules](../docs/claims.md)).
# Claim 20 is about devices: it rests on what notebook 06 stored, which also prints its verdict.

# %%
device = HardwareConfig.from_dict(settings.section("hardware", {}))
noisy = [run for run in studies[datasets[-1]].of(*device.methods).runs if run.config.seed in few]
saved = checkpoints_file(noisy, device, results_dir(profile))
checkpoints = pd.read_csv(saved) if saved.is_file() else None
runs = {name: study.runs for name, study in studies.items()}
verdicts = analysis.judge(runs, checkpoints, check_theory(min(len(seeds), 10)))
claims = analysis.claims_table(verdicts).set_index("id")
claims.loc[claims.index != "20", ["claim", "verdict", "parts_holding"]]

# %%
facts = studies[datasets[0]].facts
real = read_real(folder / "tables")
for sheet in claim_figures.claim_sheets(analysis.parts_table(verdicts), facts, real):
    sheet.save(folder)
beside.claims([verdict.verdict for verdict in verdicts])

# %% [markdown]
# *What to see.* A row's grey band is where the claim wants the value, the triangle is the paper's number, and the thin
# line under a row, where there is one, is the interval on the real samples. A wide
# interval across the edge of the band is an open question, not a refutation: more seeds would narrow it.

# %% [markdown]
# ## Tables

# %%
write = folder / "tables"
analysis.write_claims(verdicts, write)
note = "; ".join(f"{name}: {', '.join(study.facts)}" for name, study in studies.items())
shown = studies | {name: found.study for name, found in clean.items()}
sources = {name: str(study.rounds["source"].iloc[0]) for name, study in shown.items()}
search.write(write)
for name, found in clean.items():
    tables.write_table(found.table().reset_index(), f"clean_{name.removesuffix(CLEAN)}", write)
    tables.write_table(tuned[name].table().reset_index(), f"clean_{name.removesuffix(CLEAN)}_tuning", write)
sides = pd.concat([side_rates(found.study).assign(track=name) for name, found in clean.items()], ignore_index=True)
tables.write_table(sides[["track", *sides.columns.drop("track")]], "clean_client_sides", write)
costs_of_tuning = pd.concat([found.costs() for found in tuned.values()], ignore_index=True)
tables.write_table(costs_of_tuning, "clean_tuning_costs", write)
levels_of_tuning = pd.concat([found.levels() for found in tuned.values()], ignore_index=True)
tables.write_table(levels_of_tuning, "clean_tuning_levels", write)
tables.write_table(tables.configuration_table(settings), "configuration", write)
tables.write_table(tables.datasets_table(settings, sources), "datasets", write)
tables.write_table(tables.notation_table(), "notation", write)
tables.write_table(tables.roles_table(), "method_roles", write)
tables.write_table(extras.differences, "extensions", write)
tables.write_table(chain.table(), "attribution", write)
tables.write_table(attacked.differences, "attacks", write)
tables.write_table(private.differences, "privacy", write)
traces = {(name, "profile"): study.of("duqfl-prox").table("client_trace") for name, study in studies.items()}
tables.write_table(variation_table(traces | controller.traces), "controller_variation", write)
tables.write_table(gap_sheet(gaps), "train_test_gap_shift", write, note)
tables.write_table(every_cost, "cost_per_method", write, note)

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
