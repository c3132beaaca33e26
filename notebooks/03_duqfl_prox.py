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
# # 03 · DUQFL-Prox: does unfolding with a controller and a proximal term help?
#
# Local SPSA is cut into $K$ blocks (unfolds). Before each, a controller that all clients share reads the state of the
# optimisation, $z$, and sets learning rate and perturbation,
#
# $$\log \eta = \phi_\eta^\top z, \qquad \log \delta = \phi_\delta^\top z,$$
#
# clipped to fixed intervals. The block minimises $L(\theta) + \tfrac{\mu}{2}\lVert\theta - \theta^{(t)}\rVert^2$,
# and the client uploads the unfold with the lowest validation loss. Every few rounds two virtual rounds under
# $\phi \pm c\Delta$ refine the controller on the loss after aggregation.

# %% tags=["parameters"]
profile = "smoke"
seeds = [0, 1]
datasets = ["baf", "genome"]
experiment = {}

# %%
import pandas as pd
from IPython.display import display

from qfl_core import analysis
from qfl_core.analysis.untrained import UNTRAINED
from qfl_core.config import load_profile
from qfl_core.figures import apply_style
from qfl_core.figures import controller as controller_figures
from qfl_core.figures import results as figures
from qfl_core.runs.study import get_study

apply_style(final=profile == "paper")
pd.options.display.float_format = "{:.2f}".format
settings = load_profile(profile, experiment=experiment)

# %%
compared = ["default-qfl", "fedprox-qfl", "duqfl-prox", UNTRAINED]
studies = {name: get_study(settings, name, compared, seeds) for name in datasets}

# %% [markdown]
# ## Against Default-QFL and FedProx-QFL

# %%
for name, study in studies.items():
    figures.federated_metrics(study, f"{name}_global_client_metrics", name).show()

# %% [markdown]
# *What to see.* Read the two gaps first: they are where the method differs most. On BAF, remember the broken line:
# never answering "fraud" scores 0.989. The thin line with dots is the untrained model: a method that stays on it has
# learnt nothing that this panel shows.

# %%
for name, study in studies.items():
    print(name)
    display(analysis.final_table(study.rounds))

# %% [markdown]
# ## What does the controller do?
#
# One row of the trace is one unfold of one client.

# %%
ours = studies[datasets[0]].of("duqfl-prox")
controller_figures.controller_behaviour(ours).show()

# %% [markdown]
# *What to see.* The rates start at 0.13 and move only when an outer step has refined the controller. Their scale goes
# at least from half to twice the start, so that a small change looks small, and the line below gives the spread as
# coefficients of variation: across clients, unfolds and rounds, the other two averaged out. The loss falls most in the
# first unfolds, and the last unfold is not always the one uploaded. Notebook 04 asks whether the outer steps help.

# %%
controller_figures.controller_heatmaps(ours).show()

# %%
controller_figures.loss_shift_trace(ours).show()

# %% [markdown]
# *What to see.* On the left, how far an unfold moves the weights: it should shrink as the model settles. On the right,
# points below zero are unfolds that made the client's own loss worse.
