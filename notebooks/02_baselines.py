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
# # 02 · Baselines: what happens when clients just train?
#
# In each round every client starts from the broadcast model $\theta^{(t)}$ and trains on its own samples, with a budget
# of circuit evaluations that is the same for all methods. The server averages the results, weighted by sample counts:
#
# $$\theta^{(t+1)} = \sum_i \frac{n_i}{\sum_j n_j}\,\theta_i^{(t)}.$$
#
# Three baselines differ in how a client trains:
#
# * **Default-QFL**: the library's SPSA with its own calibration;
# * **Adam-QFL**: the library's ADAM on exact parameter-shift gradients, its learning rate chosen on validation;
# * **FedProx-QFL**: the library's SPSA with fixed rates of 0.13 in place of the calibration, and the penalty
#   $\tfrac{\mu}{2}\lVert\theta - \theta^{(t)}\rVert^2$ in the loss (`fedprox_spsa: fixed`, the reading that comes
#   closest to the paper; notebook 04).
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

from qfl_core import analysis
from qfl_core.analysis import beside
from qfl_core.analysis.tables import roles_table
from qfl_core.analysis.untrained import UNTRAINED
from qfl_core.config import load_profile
from qfl_core.figures import apply_style
from qfl_core.figures import results as figures
from qfl_core.runs.study import get_study

apply_style(final=profile == "paper")
pd.options.display.float_format = "{:.2f}".format
pd.options.display.max_colwidth = 60
settings = load_profile(profile, experiment=experiment)

# %% [markdown]
# ## The seven methods
#
# The table of roles comes from the switches that the code runs by; the baselines are its first three rows.

# %%
roles_table()

# %% [markdown]
# ## Training
#
# Runs go through a sweep: a finished one is read, not repeated, and an interrupted one continues. With the baselines
# goes the **untrained** model, which keeps the initial weights $\theta^{(0)}$ in all rounds and is measured like the
# others: what it scores owes nothing to training.

# %%
baselines = ["default-qfl", "adam-qfl", "fedprox-qfl", UNTRAINED]
studies = {name: get_study(settings, name, baselines, seeds) for name in datasets}

# %%
for name, study in studies.items():
    figures.federated_metrics(study, f"{name}_baselines", name).show()

# %% [markdown]
# *What to see.* Lines are means over seeds, bands their 95 % intervals. The broken lines are what classical models
# reach on the same angles, and what always answering the majority class scores; the thin line with dots is the
# untrained model. A large train-test gap says that clients do better on their own skewed chunk than on the test
# set: notebook 05 tells how much of it the different mix of classes explains.

# %%
for name, study in studies.items():
    print(name)
    display(beside.baselines(study.rounds, name))

# %% [markdown]
# ## The last round, in numbers

# %%
for name, study in studies.items():
    print(name)
    display(analysis.final_table(study.rounds))

# %% [markdown]
# ## What did it cost?
#
# Circuit executions of one round, all clients together; each is repeated `shots` times. All methods have the same
# budget for training (*train*). Adam-QFL takes as many whole gradient steps as fit: in the profile `paper`, two thirds
# of the budget. What comes on top is counted apart: Default-QFL's calibration, which costs as much as its training
# again, the validation, and what a run spends to watch itself (*monitor*). *tuning (once)* is paid once and not in
# every round.

# %%
analysis.cost_table(studies[datasets[0]].rounds)
