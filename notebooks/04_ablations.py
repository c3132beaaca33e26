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
# # 04 · Ablations: which part of the method does the work?
#
# The four unfolded methods differ by one switch at a time. **DUQFL-last** uploads the last unfold, **DUQFL-best** the
# unfold with the lowest validation loss, **DUQFL-drift** also holds every unfold's step inside a ball of radius $r$,
# and **DUQFL-Prox** adds the proximal penalty instead.

# %% tags=["parameters"]
profile = "smoke"
seeds = [0, 1, 2]
datasets = ["baf", "genome"]
experiment = {}

# %%
import pandas as pd
from IPython.display import display

from qfl_core import analysis
from qfl_core.config import load_profile
from qfl_core.data import audit, load_splits
from qfl_core.figures import apply_style, save
from qfl_core.figures import results as figures
from qfl_core.methods import METHODS
from qfl_core.paths import figures_dir, results_dir
from qfl_core.sweep import grid, sweep

apply_style()
pd.options.display.float_format = "{:.2f}".format
pd.options.display.max_colwidth = 60
settings = load_profile(profile, experiment=experiment)

# %%
variants = ["default-qfl", *(name for name, method in METHODS.items() if method.unfolded)]
runs = {
    name: sweep(grid(settings.config(name), method=variants, seed=seeds), results_dir(profile), progress=False)
    for name in datasets
}
rounds = {name: analysis.tidy(runs[name]) for name in datasets}
references = {name: audit.reference_lines(load_splits(settings.config(name))) for name in datasets}
facts = {name: analysis.facts(runs[name], profile) for name in datasets}

# %% [markdown]
# ## Components

# %%
for name in datasets:
    figure = figures.federated_metrics(rounds[name], variants, facts[name], references[name])
    save(figure, "ablation_duqfl_components" if name == "genome" else f"ablation_{name}", figures_dir(profile))

# %% [markdown]
# *What to see.* Where two bands overlap, the seeds do not tell the methods apart. Best-unfold selection changes the
# gaps most: compare DUQFL-last with the other three.

# %%
for name in datasets:
    print(name)
    display(analysis.final_table(rounds[name]))
