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
# # 04 · Ablations: what does the work, on which data, and what does it depend on?
#
# Nine questions, each with its runs, its picture and its numbers:
#
# 1. **Components.** Which part of DUQFL-Prox makes the difference?
# 2. **Attribution.** What does each change add on the way from Default-QFL to DUQFL-Prox, and by what means?
# 3. **Protocol.** Which reading of what the paper leaves open comes closest to what it prints and says?
# 4. **Clean track.** What do the seven methods reach when the input encoding is sound?
# 5. **Sensitivity.** Does the controller learn, and what else decides the result?
# 6. **Extensions.** Do control variates and learned aggregation weights help?
# 7. **Bad clients.** What do they ruin, what protects, and what does the protection cost?
# 8. **Privacy.** What does hiding a client's part in the model cost, with few clients and with many?
# 9. **Rates without a grid.** Which way to the rates of SPSA is the best, where every circuit costs?
#
# *The stored outputs are those of the profile `paper`, as `make reproduce` makes them. Run the notebook as it is and it
# takes the profile `smoke`: two seeds, few rounds, seconds.*

# %% tags=["parameters"]
profile = "smoke"
seeds = [0, 1]
datasets = ["baf", "genome"]
experiment = {}
attribution = {}
protocol = {}
sensitivity = {}
extensions = {}
attacks = {}
privacy = {}

# %%
import pandas as pd
from IPython.display import display

from qfl_core import analysis
from qfl_core.algorithm.methods import METHODS
from qfl_core.analysis import beside
from qfl_core.analysis.sides import side_rates
from qfl_core.analysis.untrained import UNTRAINED
from qfl_core.config import CLEAN, load_profile
from qfl_core.figures import apply_style, studies
from qfl_core.figures import attacks as attack_figures
from qfl_core.figures import attribution as attribution_figure
from qfl_core.figures import controllers as controller_figures
from qfl_core.figures import extras as extra_figures
from qfl_core.figures import privacy as privacy_figure
from qfl_core.figures import protocol as protocol_figure
from qfl_core.figures import results as figures
from qfl_core.runs.study import get_study
from qfl_core.studies.attacks import attack_study
from qfl_core.studies.attribution import attribution_study
from qfl_core.studies.clean import clean_study, encoding_search
from qfl_core.studies.controllers import complete_comparison
from qfl_core.studies.extras import extras_study
from qfl_core.studies.privacy import privacy_study
from qfl_core.studies.protocol import complete_search
from qfl_core.studies.sensitivity import SETTINGS, controller_study, sensitivity_study
from qfl_core.studies.tuning import tuning_study

apply_style(final=profile == "paper")
pd.options.display.float_format = "{:.3f}".format
pd.options.display.max_colwidth = 200
settings = load_profile(profile, experiment=experiment)

# %% [markdown]
# ## 1 · Which part of the method does the work?
#
# The four unfolded methods differ by one switch at a time. **DUQFL-last** uploads the last unfold, **DUQFL-best** the
# unfold with the lowest validation loss,
#
# $$k_i^\star = \arg\min_k \mathcal{L}_{\mathrm{val}}\bigl(\theta_i^{(k)}\bigr),$$
#
# **DUQFL-drift** also holds every unfold's step inside a ball of radius $r$, and **DUQFL-Prox** adds the penalty
# $\tfrac{\mu}{2}\lVert\theta-\theta^{(t)}\rVert^2$ instead.

# %%
variants = ["default-qfl", *(name for name, method in METHODS.items() if method.unfolded), UNTRAINED]
components = {name: get_study(settings, name, variants, seeds) for name in datasets}

# %%
for name, study in components.items():
    title = "ablation_duqfl_components" if name == "genome" else f"ablation_{name}"
    figures.federated_metrics(study, title, title).show()

# %% [markdown]
# *What to see.* Of the switches between the four unfolded methods, best-unfold selection changes the gaps most: compare
# DUQFL-last with the other three. Their curves nearly coincide; their markers stand at different rounds, so that all
# of them can be seen. The step from Default-QFL to DUQFL-last changes several things at once: section 2 takes it apart.

# %%
for name, study in components.items():
    print(name)
    display(beside.components(study.rounds, name))
    display(analysis.final_table(study.rounds))

# %% [markdown]
# ## 2 · What makes the difference?
#
# A chain from the untrained model to DUQFL-Prox that changes one thing at a time: Default-QFL calibrates its own rates;
# *fixed rates* sets them to the paper's 0.13; *unfolding* cuts the same steps into K blocks; *controller* learns the
# rates; *best unfold* uploads the unfold with the lowest validation loss; the *proximal term* makes it DUQFL-Prox. All
# links share data, initial weights and seeds.
#
# With m the share of positives in the test set and q the share that a model calls positive,
#
# $$\mathrm{accuracy} = \underbrace{m q + (1-m)(1-q)}_{\text{a coin with the same calls}}
# + \underbrace{2m(1-m)\,(\mathrm{recall}+\mathrm{specificity}-1)}_{\text{telling the classes apart}} ,$$
#
# so every gain in accuracy has two parts: one that a shifted threshold gives, and one that needs a better model.

# %%
chain = attribution_study(settings, settings.section("attribution", attribution), seeds)
attribution_figure.attribution(chain).show()

# %%
display(chain.steps())
chain.whole()

# %% [markdown]
# *What to see.* The first table has what each change adds to the global accuracy, with its 95 % interval and its
# verdict; the second takes the whole apart. In the figure, the number beside a point is its paired difference from the
# point above. *Unfolding* takes the same steps but draws other shots, so its row shows how much chance alone changes.
# Hollow points have the other label mix in the clients' validation parts, which only selection and the controller see.
# On BAF, where one row in ninety is positive, accuracy gains are grey: fewer samples are called positive. A step can be
# *undecided* although its interval excludes zero, because the test behind the verdict is corrected for all steps and
# metrics together and the interval is not.

# %% [markdown]
# ## 3 · Which protocol did the paper use?
#
# The paper leaves points open: the loss, 5 or 10 clients, rounds and samples in a round, 5 to 10 SPSA iterations, the
# clients' validation and test sets, the angle range, the initial weights, the local SPSA of the baselines. Each is a
# factor, and a candidate is one choice of levels. Its distance from the paper's numbers $p_j$ on a track is the root
# mean square of the differences between its last round and these numbers,
#
# $$d = \sqrt{\frac{1}{J}\sum_{j=1}^{J} (\bar m_j - p_j)^2},$$
#
# averaged over both tracks. The paper also says how training goes (Default-QFL peaks and falls, DUQFL-Prox's scores
# improve, eta and delta vary, ...): each statement is graded from 0 to 1, and missing all of them costs as much as a
# distance of 0.1. The seeds are others than those of the figures. `make protocol-search` runs the search, in about 12
# minutes; this notebook shows what it wrote. [Its page](../docs/protocol-search.md) has the rule, the runner-up, what
# decides and what no reading reproduces.

# %%
search = complete_search()
protocol_figure.protocol_search(search).show()

# %% [markdown]
# *What to see.* Left: every candidate, with a mark for each factor's level, in three groups: those of the final on top,
# then those of the screening alone, then those of the screening that are marked (†). A marked candidate cannot win,
# because its untrained model already has the paper's final accuracy. Each group is sorted, with the closest on top and,
# in the final, the marked one last. Middle: how much a
# factor moves the total and its two parts, averaged over all others; an interval across zero says that these runs
# cannot tell. Right: the winner's numbers against the paper's; on the line they agree.

# %%
closest = search.candidates[["role", "stage", "seeds", *search.factors, "total", "all", "statements"]].head(3)
display(closest.set_index("role").T)

# %%
of_winner = search.numbers[search.numbers["candidate"] == search.winner]
of_winner.dropna(subset="paper").set_index(["track", "metric", "method"])[["paper", "ours"]]

# %% [markdown]
# *What to see.* These are the means of the search's own seeds; section 1 has other seeds, so its numbers differ by
# chance.

# %% [markdown]
# ## 4 · The clean track: what can be reached?
#
# The same clients, budget and methods, where the features describe the sample: 4-mer counts of a sequence, and for BAF
# the encoding that validation prefers. The **pooled QNN** is the same circuit trained on all clients' data at once with
# exact gradients, both classes weighing equally: what federation, shots and SPSA could at best recover. Logistic
# regression and gradient boosting see the same angles.

# %% [markdown]
# ### Which encoding does validation prefer on BAF?
#
# Every combination of feature map, repetitions, angle range and clipping is trained on the pooled data and scored on
# the validation part; the seeds are others than those of the figures, and the test part plays no role. We take the
# simplest encoding that the seeds cannot tell from the best.

# %%
section = settings.section("protocol", protocol)
encodings = encoding_search(settings, "baf-clean", section["encodings"])
studies.encoding_validation(encodings, "baf_encodings").show()

# %% [markdown]
# *What to see.* Filled marks cannot be told from the best; the ringed one is taken. In the profile `paper` the eight
# best of 24 are plain `z` maps. The paper's map, the entangling `zz` with two repetitions in [0, π], is behind the
# best, with a mean ROC-AUC close to 0.61.

# %% [markdown]
# ### Which settings? One rule for all methods
#
# Loss, client validation and samples in a round are the same for all methods of a track. What concerns some methods
# alone has two levels for each: which SPSA, which moments, which outer update. Every method tries every combination,
# scored on the validation part with seeds that no result uses, and has its own best level. We take the combination with
# the best mean over the seven methods. The first table has each method's validation score with the common combination,
# and how much more its own best one would give (*cost*). The second has the levels, averaged over the methods that have
# them. All combinations: [BAF](../figures/tables/clean_baf_tuning.md),
# [genome](../figures/tables/clean_genome_tuning.md).

# %%
tracks = [f"{name}{CLEAN}" for name in datasets if f"{name}{CLEAN}" in settings.experiment]
tuned = {name: tuning_study(settings, name, section["tuning"]) for name in tracks}
for name, found in tuned.items():
    print(f"{name}, validation {found.score.replace('_', '-')}; taken: {found.chosen}")
costs = pd.concat([found.costs() for found in tuned.values()])
display(costs.set_index(["method", "track"])[["score with the common one", "cost"]].unstack(sort=False))
levels = pd.concat([found.levels() for found in tuned.values()])
levels.groupby(["setting", "level", "track"], sort=False)["score"].mean().unstack(sort=False)

# %% [markdown]
# *What to see.* A *cost* of 0 means that the common combination is also the method's own best. In the profile `paper`
# two levels cost much on these tracks: the calibrated SPSA, and the outer update in every round with rate 3, which the
# protocol search chose for the paper's own tracks. So the clean tracks have fixed rates and an outer update in every
# fifth round.

# %% [markdown]
# ### All seven methods

# %%
scores = {"baf-clean": "roc_auc", "genome-clean": "accuracy"}
runs = {name: get_study(settings, name, [*METHODS, UNTRAINED], settings.for_studies(seeds)) for name in tracks}
clean = {name: clean_study(study, scores[name]) for name, study in runs.items()}

# %%
for name in tracks:
    studies.clean_track(clean[name], name.replace("-", "_")).show()

# %% [markdown]
# *What to see.* The broken lines are the references, the one with dots is the untrained model. The last panel sets the
# score against everything that was spent on circuits: where a curve crosses the black line, the method has reached
# 95 % of logistic regression.

# %%
for name in tracks:
    print(f"{name} (95 % of logistic regression's {scores[name].replace('_', '-')})")
    display(clean[name].table())

# %% [markdown]
# ### Why is the fairness gap on clean BAF close to 1?
#
# Because nearly every upload predicts the class that its client has most of. Half of the clients train on chunks with
# mostly legitimate rows, the others on chunks with mostly frauds, and a model that fits its chunk also learns how
# frequent frauds are there. The test set, which all clients share, is 99 % legitimate: the uploads of the first half
# are nearly always right, those of the second half nearly always wrong, and the distance between them is the fairness
# gap. The average of all uploads, the global model, takes neither side. The uploads of
# Adam-QFL take a side less often, so its gap is smaller.

# %%
for name in tracks:
    print(name)
    display(side_rates(runs[name]).set_index(["method", "side"])[["accuracy", "yes"]].unstack(sort=False))

# %% [markdown]
# *What to see.* Accuracy of both sides, and `yes`, the share of test samples that an upload calls label 1. Where one
# side says yes to nearly all samples and the other to nearly none, the uploads differ in their threshold and not in
# what they know: ROC-AUC, which needs no threshold, is the score to compare on this track. On genome both labels are
# equally frequent in the test set, so that both sides lose equally and the gap stays small.

# %% [markdown]
# ## 5 · Sensitivity
#
# ### Does the controller learn?
#
# Algorithm 3 refines $\phi$ every $m$ rounds along a random direction $\Delta$,
#
# $$\phi \leftarrow \phi - \alpha_{\mathrm{out}}\,
# \frac{\mathcal{L}_{\mathrm{meta}}(\phi + c\Delta) - \mathcal{L}_{\mathrm{meta}}(\phi - c\Delta)}{2c}\,\Delta .$$
#
# The profile refines in every round with rate 3 and standardised features; the first edition of the protocol search had
# every fifth round, rate 1 and raw features. The same runs with $\phi$ frozen keep $\eta = \delta = 0.13$ throughout.
# All start from the same weights and see the same data, so seeds are paired.

# %%
section = settings.section("sensitivity", sensitivity)
controller = controller_study(settings, section)
studies.controller_learning(controller).show()

# %%
controller.verdicts()

# %% [markdown]
# *What to see.* No difference from a frozen controller is shown: every verdict is *absent* or *undecided*. *Absent*
# excludes an effect as large as the margin. *Undecided* also stands beside intervals without zero, because the test
# behind the verdict is corrected for all comparisons of a panel and the intervals are not; the outer step in every
# round points to a gain on BAF and to a loss on clean genome. The last two panels say whether the controller moved at
# all: the learning rate that it ends with, on a scale from half to twice the initial one or more, and how much η and δ
# vary across clients, unfolds and rounds, in percent of their means.

# %% [markdown]
# ### Everything else, one setting at a time
#
# The proximal coefficient $\mu$; label skew from even to one label per client; Dirichlet ownership from IID to extreme;
# the number of clients; the share of clients that take part in a round. All other settings are the track's.

# %%
for name in SETTINGS:
    found = sensitivity_study(settings, section, name)
    studies.sensitivity(found, SETTINGS[name].label).show()
    display(found.verdicts().rename_axis(index=f"{SETTINGS[name].label}, minus {found.base}"))

# %% [markdown]
# *What to see.* Bars are 95 % intervals over seeds. Under each figure stands the global accuracy at each level minus
# that at the level that the head of the table names, with its verdict; the verdicts are corrected for all levels of a
# setting. Accuracy on BAF follows the mix of labels that clients train on more than anything that the method does;
# ROC-AUC does not.

# %% [markdown]
# ## 6 · Extensions: do they help?
#
# Two methods and a dataset that are not in the paper; [EXTENDING.md](../EXTENDING.md) shows how they are made and how
# to add others. Each method is one of the paper's but for a single switch, so its seeds are paired with its base's:
#
# - **SCAFFOLD-QFL** is DUQFL-best with control variates (Karimireddy et al., 2020): every local step becomes
#   $\theta \leftarrow \theta - \eta\,(g - c_i + c)$, where $c_i$ is client $i$'s mean gradient when it last took part
#   and $c$ the mean over all clients.
# - **DUQFL-learned** is DUQFL-Prox with the aggregation weights that the paper's appendix leaves to the future,
#   $\Theta_i = n_i e^{a_i} / \sum_j n_j e^{a_j}$. The outer SPSA refines $a$ in the same two virtual rounds as $\phi$.
# - **Breast cancer** (569 tumours, 30 measurements reduced to four angles) comes with scikit-learn.

# %%
extras = extras_study(settings, settings.section("extensions", extensions))
extra_figures.extensions(extras).show()

# %%
extras.verdicts()

# %% [markdown]
# *What to see.* Differences from the base in the last round, with 95 % intervals. A ring marks a difference that is
# shown to be better or worse, by the rules of the claims and corrected for all differences together. The last panel
# shows one point per client and seed: how far learning moved its weight from FedAvg's.
#
# With the paper's settings, control variates do not pay here: over 30 seeds they are shown to lower the accuracy on BAF
# and to let clients drift further on breast cancer, and to help in one place, the fairness gap on clean genome. Each
# $c_i$ is itself an average of few noisy SPSA estimates. The learned weights change, but no change of a score is
# shown.

# %% [markdown]
# ## 7 · Bad clients
#
# A share of the clients attacks. They add noise to their weights (*noise*), send their step backwards (*sign-flip*), or
# backwards and twenty times as long (*scaling*); they all send the same reversed step (*collusion*), train on exchanged
# labels (*label-flip*), or send honest weights and lie about their losses and scores, so that Algorithm 3 raises the
# learning rate (*lying-trace*). Against them stand, each alone:
#
# - **mean**: the paper's weighted mean. Uploads that no training gives (absurd numbers) never count, here and in every
#   run.
# - **screening**: an upload does not count if its step, or the unsteadiness of its losses, is more than ten times the
#   median of its round.
# - **median**, **trimmed-mean**, **krum**, **multi-krum**: other rules than the mean, built for this share of bad
#   clients; **clipped-mean** shortens steps to the median length.
#
# `attack`, `attackers`, `aggregation`, `tolerated` and `screening` are settings like any other.

# %%
attacked = attack_study(settings, settings.section("attacks", attacks))
attack_figures.attacks(attacked).show()

# %%
attacked.verdicts()

# %% [markdown]
# *What to see.* The table has one row per attack; *lower* in its first column means that the attack is shown to harm.
# In the figure, a plus marks a defence that is shown to be better than the mean under the same attack, a minus one that
# is shown to be worse; in the column of the mean, a minus marks an attack that is shown to harm. The row "nobody
# attacks" is what a defence costs: clients with skewed labels have honest uploads that differ, and a rule that trusts
# the middle may lose what the others have learnt.
#
# Of the attacks in the table, where three clients in ten are bad, only *scaling* is shown to harm, and every defence
# stops it. *Label-flip* and *lying-trace* lower the mean by more than 0.1, but the harm varies so much over 30 seeds
# that the corrected test does not decide. On BAF the median is shown to cost accuracy where nobody attacks. The last
# panel has more and more clients that collude, without a test: with four in ten, only the median has a higher mean
# accuracy than the plain mean.

# %% [markdown]
# ## 8 · Privacy
#
# The weights that a client uploads can tell something about its rows. With differential privacy, every client shortens
# its step to a length $C$ and adds noise before it uploads, and all clients have the same weight:
#
# $$\theta^{(t+1)} = \theta^{(t)} + \frac{1}{m} \sum_{i=1}^{m} \left[ \mathrm{clip}_C\!\left(\theta_i -
# \theta^{(t)}\right) + \mathcal{N}\!\left(0, \tfrac{z^2 C^2}{m} I\right) \right].$$
#
# The noise of the sum has the standard deviation $z C$, and one client changes the sum by at most $C$. So the models of
# all rounds together are $(\varepsilon, \delta)$ private for every single client: whoever sees them can hardly tell
# whether the client's data was there. $\varepsilon$ depends on $z$, $\delta$ and the number of rounds, and not on the
# number of clients; the noise of the mean, $z C / m$, does. Traces, scores and the outer update are off, because they
# would tell more (`dp_noise`, `dp_clip`, `dp_delta`; [docs/federation.md](../docs/federation.md) says what
# $\varepsilon$ holds for).

# %%
private = privacy_study(settings, settings.section("privacy", privacy))
privacy_figure.privacy(private).show()

# %%
display(private.verdicts())
private.budgets().round(1)

# %% [markdown]
# *What to see.* The first table has the change against as many clients without privacy, the second the $\varepsilon$ of
# each noise. In the figure, to the left is more privacy. A dashed line is the same number of clients without clipping
# and noise, with the 95 % interval over seeds. The noise of the mean is $z C / m$: with ten times as many clients it is
# a tenth, for the same $\varepsilon$. Where it is longer than the steps of the clients, the model wanders instead of
# learning. An $\varepsilon$ far above 10 promises little.
#
# In the profile `paper`, ten clients pay for an $\varepsilon$ near 3 with 0.16 of the ROC-AUC on clean BAF and with
# 0.12 of the accuracy on clean genome; below 1 nothing but chance is left. A hundred clients lose about 0.02 or less
# at the same $\varepsilon$ near 3, and the seeds do not show that this is a loss.

# %% [markdown]
# ## 9 · Rates without a grid
#
# The right rates of SPSA differ from task to task, and on hardware nobody can afford to try many. Can a controller find
# them? Compared are constant rates, the best of a grid (all of whose circuits count), Qiskit's calibration, the paper's
# outer SPSA, our *normalised* one that learns online, a controller that was learnt *offline* on other datasets, and
# both together. With $s(c)$ the test score of the last round that $c$ circuits have paid for, the score is the area
#
# $$A = \frac{1}{C}\int_0^{C} s(c)\,dc ,$$
#
# where $C$ is what constant 0.13 spends in a whole run, and virtual rounds, calibration and the grid count.
# `make controllers` trains some 9,000 runs with seeds that nothing else uses; this notebook shows what it wrote.
# [Its page](../docs/controller.md) has the verdicts task by task, the ablation of the features, and a neural network.

# %%
comparison = complete_comparison()
controller_figures.controller_curves(comparison).show()

# %% [markdown]
# *What to see.* A curve that is higher on the left has learnt with fewer circuits. Methods that can start anywhere are
# the mean over their starts from 0.02 to 1; *frozen at the start* is what these starts give without learning. The tuned
# constant pays for a grid of 36 runs (8 with noise), far to the right: the dashed level is where it ends.

# %%
controller_figures.controller_rates(comparison).show()

# %% [markdown]
# *What to see.* Every step is an unfold. The online controller leaves a bad start within five rounds and then stays;
# the offline one gives its rates at once, and changes them within every round. The table has the verdicts on the goal:
# from any start a final score within .01 of the tuned constant's, half of the circuits of constant 0.13, and beaten by
# no method that needs no tuning. It is not reached; the page says what limits it.

# %%
comparison.statements.set_index(["engine", "method", "statement"])["verdict"].unstack(sort=False)
