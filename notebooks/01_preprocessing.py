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
# # 01 · Preprocessing: what do the clients hold, and what does it give away?
#
# A quantum neural network with four qubits sees four numbers per sample. This notebook follows the two datasets from
# their files to those numbers, shares them among clients, and then asks, before any quantum circuit runs, what the
# numbers already reveal to a classical model.
#
# * **BAF**, Bank Account Fraud: one application in ninety is fraud.
# * **Genome**, DemoHumanOrWorm: 200 bases, human or worm.
#
# This notebook always shows both datasets. The parameter `datasets` matters in the later notebooks only.
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

from qfl_core.analysis.tables import compared_with_published
from qfl_core.base.paths import figures_dir
from qfl_core.config import load_profile
from qfl_core.data import audit, baf, genome, load_splits
from qfl_core.data.partition import make_partition
from qfl_core.data.standin import fidelity
from qfl_core.figures import apply_style
from qfl_core.figures import data as figures

apply_style(final=profile == "paper")
pd.options.display.float_format = "{:.2f}".format
pd.options.display.max_colwidth = 80
settings, folder = load_profile(profile, experiment=experiment), figures_dir(profile)
seed = seeds[0]
configs = {dataset: settings.config(dataset, seed=seed) for dataset in ("baf", "genome")}

# %% [markdown]
# ## Where does the data come from?
#
# The package looks in `QFL_DATA_DIR`, then in its cache, then tries a download, and generates a stand-in where none
# of these has the official file. Whatever it chose is printed here and written into the footer of every figure.

# %%
splits = {dataset: load_splits(config) for dataset, config in configs.items()}
facts = {name: (f"data: {part.source}", f"seed {seed}", f"profile {profile}") for name, part in splits.items()}
pd.DataFrame({name: {"source": part.source, "rows dropped": sum(part.notes.values())} for name, part in splits.items()})

# %% [markdown]
# ## What does it look like?
#
# **BAF.** The paper draws 4,999 rows, stratified, and splits them before anything is fitted: 2,999 / 750 / 1,250.
# Text columns become ordinal codes (an unseen category becomes $-1$), all columns are standardised, PCA keeps four
# components, and MinMax scaling turns them into angles in $[0, \pi]$:
#
# $$x \;\mapsto\; \mathrm{clip}\Big(\pi\,\frac{W^\top z(x) - m}{M - m},\; 0,\; \pi\Big),$$
#
# with standardisation $z$, components $W$ and extremes $m, M$ of the training part alone. The paper removes missing
# values; the official file codes them as $-1$ and has no NaN, so nothing is removed and the codes stay.

# %%
splits["baf"].table()

# %%
figures.angles_by_class(splits["baf"], ("legitimate", "fraud"), facts["baf"]).save(folder)

# %% [markdown]
# *What to see.* The two classes overlap almost everywhere: no single angle finds fraud. Few rows are frauds, as the
# legend says, so their curves are rough.
#
# **The paper says:** PCA to four features, optionally scaled to $[0, \pi]$.
#
# **Here:** the same, scaled to $[0, \pi]$.
#
# **Genome.** 10,000 sequences for training (a fifth of them kept for validation) and 2,000 for testing, half of each
# kind. The next picture compares three ways to turn 200 letters into angles.

# %%
splits["genome"].table()

# %% [markdown]
# *What to see.* The test angles end earlier than the training angles. Test sequences come from the official test
# folder, whose files have small numbers, so `word-id` finds them early in the list of each class.

# %% [markdown]
# ## What do the encodings encode?
#
# The paper cuts a sequence into four words of 50 letters and gives every word a number. In which order is not stated;
# the simplest program numbers them **in order of first appearance**. A word
# of 50 letters almost never repeats, so a word's number is its place in the file list, and the file list is sorted by
# class. `word-id-shuffled` is the control: the same dictionary, built over a shuffled list. `kmer` counts short words
# instead, and reduces the counts by PCA.

# %%
encodings = {name: configs["genome"].replace(encoding=name) for name in ("word-id", "word-id-shuffled", "kmer")}
panels = {name: genome.first_angles(config) for name, config in encodings.items()}
figures.encoding_against_position(panels, facts["genome"]).save(folder)

# %% [markdown]
# *What to see.* Under `word-id` the angle is the position in the list, and a threshold in the middle separates human
# from worm without a look at a single base. Shuffle the list and nothing is left. `kmer` does not know the position,
# and still tells the classes apart.
#
# **The paper says:** all unique words get integer ids.
#
# **Here:** with ids in the order of first appearance the first angle alone tells the classes apart; with ids in a
# shuffled order no model does better than chance (the audit below).

# %% [markdown]
# ## What does each client hold?
#
# Even clients prefer label 0, odd clients label 1, with four samples in five of the preferred label; chunk sizes vary
# by half; every round draws a new chunk, cyclically, from the labels' pools. A fifth of each label's rows is set aside
# first for the clients' own validation, so that no row serves both. Training chunks are skewed, validation parts are
# not: they follow the label mix of the data (`client_val: natural`; `skewed` gives them the client's own mix).

# %%
partitions = {name: make_partition(splits[name], configs[name]) for name in configs}
mix = {name: partitions[name].table(splits[name]) for name in configs}
for name in configs:
    figures.client_mix(mix[name], name, configs[name].split, facts[name]).save(folder)

# %%
mix["baf"].groupby("client")[["samples", "distinct_rows", "share_of_label_1", "val_samples"]].mean()

# %% [markdown]
# *What to see.* A BAF client has a fifth or four fifths of frauds among its samples, half on average, although frauds
# are one row in ninety: the same few frauds are drawn over and over, and a client with mostly frauds has only about two
# distinct rows in three samples. Together the clients train on a balanced task, and they are tested on the natural one.
# This, and not fraud detection, decides the accuracy curves of notebooks 02 to 05.
#
# **The paper says:** the data of the clients is non-IID; how it is shared out is not stated.
#
# **Here:** label skew, 0.8 of the preferred label, and 50 samples per client and round on average, a new chunk in every
# round. [docs/fidelity.md](../docs/fidelity.md) tells what other choices change.

# %% [markdown]
# ## The audit: what would a classical model do with the same angles?
#
# Five references see exactly what the QNN sees. Any claim about a QNN on this data has to be read beside them.

# %%
audit.audit(splits["baf"], seed)

# %% [markdown]
# *What to see.* "Never fraud" has the best accuracy and knows nothing; balanced accuracy and ROC-AUC tell the
# difference. For this reason the accuracy curves of this package carry the majority class and classical models as
# lines, and tables of final numbers have ROC-AUC beside accuracy.

# %%
tests = [audit.leak_test(config) for config in encodings.values()]
for test in tests:
    print(test.verdict)
leaks = pd.concat([test.table() for test in tests], ignore_index=True)
figures.leak_audit(leaks, facts["genome"]).save(folder)

# %% [markdown]
# *What to see.* One encoder, two orders of the same sequences. Nothing about a sequence changes with its place in a
# list, so the distance between the two markers is what the list gave away. The paper's figures use `word-id`, and this
# package reproduces them with it; `kmer` is the track on which a method has to learn biology.
#
# **The paper says:** words get integer ids, and the records are shuffled after that. It mentions no check for a leak on
# this dataset.
#
# **Here:** the order in which the *ids* are given decides, so shuffling the records afterwards changes nothing.

# %% [markdown]
# ## How faithful is the stand-in?
#
# The stand-ins are generated from published summary statistics alone. These tables compare what is in use here with the
# published figures; `within tolerance` says whether the difference is small enough. One row has no published number to
# compare with: how wide the frauds lie in the four components, beside legitimate rows. Where real files are at hand,
# `make real` trains all methods on them too, and `figures/tables/real/compared.md` tells claim by claim what differs.

# %%
real = baf.official_frame(configs["baf"].source)
table = fidelity.baf_fidelity(baf.standin_frame(), seeds=seeds[:10], real=real)
stated = table.dropna(subset=["published"])
print(f"{stated.ok.sum()} of {len(stated)} quantities are within their tolerance; the figures that matter most:")
compared_with_published(table.tail(8))

# %%
sequences, _, provenance = genome.genome_sequences(configs["genome"].source)
real = None if provenance.kind == "stand-in" else (sequences.bases, sequences.labels)
standin, *_ = genome.genome_sequences("stand-in")
compared_with_published(fidelity.genome_fidelity(standin.bases, standin.labels, real=real))
