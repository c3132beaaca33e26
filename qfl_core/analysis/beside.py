"""The paper's words beside our numbers: two lines under a figure, the second one computed from the runs it shows.

A notebook shows the value of a function of this module as its cell's output. The words are the paper's, shortened; the
numbers are means over seeds, with half of the 95 % interval where there are several seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from qfl_core.algorithm.methods import method_named
from qfl_core.analysis.inference import intervals
from qfl_core.analysis.paper import PAPER
from qfl_core.analysis.summary import FINAL_METRICS, interval_texts, last_rounds
from qfl_core.analysis.untrained import UNTRAINED
from qfl_core.analysis.variation import ACROSS, RATES, variation, variation_by_seed
from qfl_core.analysis.verdicts import counted_verdicts
from qfl_core.base.numbers import counted, number, significant

#: What the paper's text says of the four panels, by track.
_FINAL_WORDS = {
    "baf": "DUQFL-Prox has the highest final global and mean client accuracy, a train-test gap near zero and the "
    "lowest fairness gap; Default-QFL peaks in between and ends lower.",
    "genome": "FedProx-QFL has the highest final global accuracy, DUQFL-Prox stays close, Default-QFL ends far below; "
    "DUQFL-Prox has the highest mean client accuracy and the lowest two gaps.",
}
#: What it says of the baselines, in its text or in its table of qualities.
_BASELINE_WORDS = {
    "baf": "Default-QFL peaks in the middle rounds and falls late; Default-QFL and FedProx-QFL end with large "
    "train-test gaps.",
    "genome": "FedProx-QFL ends with the highest global accuracy, Default-QFL with a substantially lower one; Adam-QFL "
    "peaks highest and ends weak.",
}
#: What it says of the variants of DUQFL.
_COMPONENT_WORDS = {
    "baf": "nothing about DUQFL-last, DUQFL-best and DUQFL-drift on this dataset; DUQFL-Prox ends ahead of Default-QFL "
    "in all four panels.",
    "genome": "DUQFL-last improves over Default-QFL in some rounds, but is less stable than DUQFL-best and DUQFL-Prox; "
    "DUQFL-best and DUQFL-drift also improve over Default-QFL; of these variants DUQFL-Prox has the highest mean "
    "client accuracy and the lowest two gaps.",
}
#: What it says of the train-test gap.
_GAP_WORDS = (
    "a lower train-test gap of DUQFL-Prox indicates less local over-specialization (baf) and less overfitting (genome)."
)
_NOTHING = "nothing about this dataset."
_PANELS = ("global_accuracy", "client_test_accuracy", "train_test_gap", "fairness_gap")
_GAP_METHODS = ("default-qfl", "fedprox-qfl", "duqfl-prox", UNTRAINED)
_RARE = {"f1": "F1", "mcc": "MCC", "roc_auc": "ROC-AUC", "precision": "precision", "specificity": "specificity"}


@dataclass(frozen=True)
class Beside:
    """What the ``paper`` says about a figure, and what is seen ``here``."""

    paper: str
    here: str

    def _repr_markdown_(self) -> str:
        return f"**The paper says:** {self.paper}\n\n**Here:** {self.here}"

    def __repr__(self) -> str:
        """Return both lines as plain text, where Markdown is not shown."""
        return f"The paper says: {self.paper}\nHere: {self.here}"


def final_numbers(rounds: pd.DataFrame, track: str) -> Beside:
    """Return the last round's four panels of the comparison figures; ``rounds`` holds one track."""
    return Beside(_FINAL_WORDS.get(track, _NOTHING), _last_round(rounds, _PANELS, track))


def baselines(rounds: pd.DataFrame, track: str) -> Beside:
    """Return the course and the last round of the methods that have no controller."""
    told = [name for name in ("default-qfl", "adam-qfl") if name in set(rounds["method"])]
    courses = "; ".join(_course(rounds, name) for name in told)
    here = f"global accuracy: {courses}. Then the {_last_round(rounds, _PANELS, track)}"
    return Beside(_BASELINE_WORDS.get(track, _NOTHING), here)


def components(rounds: pd.DataFrame, track: str) -> Beside:
    """Return the last round of the methods that differ by one component."""
    return Beside(_COMPONENT_WORDS.get(track, _NOTHING), _last_round(rounds, _PANELS, track))


def gaps(table: pd.DataFrame) -> Beside:
    """Return which part of the train-test gap the class mix explains; ``table`` as from ``gap_table``."""
    told = []
    for track, rows in table.groupby("track", sort=False):
        means = rows.pivot(index="method", columns="part", values="mean").to_dict("index")
        parts = [
            f"{method_named(name).label} {number(means[name]['shift'])} {'+' if means[name]['rest'] >= 0 else '-'} "
            f"{number(abs(means[name]['rest']))} = {number(means[name]['gap'])}"
            for name in _GAP_METHODS
            if name in means
        ]
        told.append(f"{track}: {', '.join(parts)}")
    here = (
        "last round, part that the class mix explains + rest = gap, mean of "
        f"{counted(int(table['seeds'].max()), 'seed')}. {'. '.join(told)}."
    )
    return Beside(_GAP_WORDS, here)


def claims(verdicts: Sequence[str]) -> Beside:
    """Return how many claims have each verdict."""
    paper = "every row is a statement of its result sections, in our words."
    return Beside(paper, f"{counted_verdicts(verdicts)}, of {counted(len(verdicts), 'claim')} and theory points.")


def rare_class(rounds: pd.DataFrame) -> Beside:
    """Return how the scores of the rare class move between the first and the last third of the rounds."""
    paper = (
        "DUQFL-Prox improves test F1, MCC, ROC-AUC, precision and specificity more consistently; Adam-QFL has high "
        "recall and a specificity that declines; Default-QFL fluctuates more."
    )
    prox = _thirds(rounds, "duqfl-prox", _RARE)
    adam = _thirds(rounds, "adam-qfl", {"recall": "recall", "specificity": "specificity"})
    recalls = rounds[rounds["round"] > 0].groupby("method")["test_recall"].mean()
    others = ", ".join(f"{method_named(name).label} {number(recalls[name])}" for name in ("duqfl-prox", "default-qfl"))
    here = (
        f"{_seeds(rounds)}, mean of the first and of the last third of the rounds, test part. DUQFL-Prox: {prox}. "
        f"Adam-QFL: {adam}; its mean recall is {number(recalls['adam-qfl'])} ({others})."
    )
    return Beside(paper, here)


def rates(trace: pd.DataFrame) -> Beside:
    """Return where the rates stay, what the unfolds do to the loss, and which are uploaded."""
    paper = (
        "eta and delta stay in stable ranges and vary over the unfolded training; unfolds reduce the loss, above all "
        "the early ones; the last unfold is not always the one uploaded."
    )
    ends = {name: trace[name].quantile([0.05, 0.95]) for name in ("eta", "delta")}
    spans = [f"{name} {significant(low, 2)} to {significant(high, 2)}" for name, (low, high) in ends.items()]
    fall, earlier = _falls(trace), _earlier(trace)
    here = (
        f"{_seeds(trace)}; nine in ten unfolds have {' and '.join(spans)}. The loss falls by {number(fall.iloc[0])} in "
        f"the first unfold and by {number(fall.iloc[1:].mean())} in a later one; {earlier:.0%} of uploads are not the "
        "last unfold."
    )
    return Beside(paper, here)


def rates_by_client(trace: pd.DataFrame) -> Beside:
    """Return how much the rates vary across clients and unfolds: within a run, and after the mean over seeds."""
    paper = "the learning rate and the perturbation vary across clients and unfold steps."
    within = _varying(variation(trace).set_index(["rate", "across"])["mean"], tuple(ACROSS.values()))
    after = variation_by_seed(trace.assign(seed=0)).set_index(["rate", "across"])["variation"]
    here = (
        f"within one run, {_seeds(trace)}: {within}. The cells of the heat maps are means over seeds, which differ "
        f"less: {_varying(after, ('clients', 'unfolds'))} (standard deviation in percent of the mean)."
    )
    return Beside(paper, here)


def movement(trace: pd.DataFrame) -> Beside:
    """Return how far unfolds move the weights, early and late, and how many reduce the client's loss."""
    moved = trace.groupby("round")["displacement"].mean()
    reduced = (trace["loss_after"] < trace["loss_before"]).mean()
    paper = "the parameter-shift curve shows how local movement changes over the rounds."
    here = (
        f"{_seeds(trace)}; an unfold moves the weights by {number(moved.iloc[0])} in the first round and by "
        f"{number(moved.iloc[-1])} in the last; {reduced:.0%} of unfolds reduce the client's loss."
    )
    return Beside(paper, here)


def unfolds(trace: pd.DataFrame) -> Beside:
    """Return the loss reduction and the share of uploads, unfold by unfold."""
    falls = ", ".join(number(value) for value in _falls(trace))
    uploads = trace[trace["is_selected"].astype(bool)]["unfold"]
    shares = ", ".join(f"{(uploads == unfold).mean():.0%}" for unfold in sorted(trace["unfold"].unique()))
    paper = "the largest loss reduction often occurs in early unfolds, and the best unfold is not always the last."
    return Beside(paper, f"{_seeds(trace)}; unfold by unfold the loss falls by {falls}; uploads: {shares}.")


def devices(seed: int, checkpoints: pd.DataFrame, steady: pd.DataFrame) -> Beside:
    """Return where the checkpoints end under the device's noise and how steady they are: one seed, and all of them.

    ``seed`` is the one of the picture; ``checkpoints`` and ``steady`` hold all seeds, as from
    :func:`qfl_core.studies.noise.checkpoint_table` and :func:`qfl_core.studies.noise.steadiness`.
    """
    paper = (
        "on IBM hardware DUQFL-Prox's checkpoints take a more stable and improving course than Default-QFL's, and stay "
        "reasonably close to the simulators."
    )
    noisy = checkpoints[checkpoints["kind"] == steady["kind"].iloc[0]]
    last = noisy[noisy["checkpoint"] == noisy["checkpoint"].max()]
    unsteady, apart = (_means(steady, column) for column in ("unsteadiness", "distance"))
    here = (
        f"under the device's noise, on the whole test part, the last checkpoint has the accuracy "
        f"{_means(last[last['seed'] == seed], 'accuracy')} in seed {seed}, which the picture shows, and "
        f"{_means(last, 'accuracy')} as the {_seeds(last)}. {_order(noisy, seed)}Unsteadiness of the checkpoints' "
        f"accuracy, {_seeds(steady)}: {unsteady}; mean distance from the noiseless accuracy: {apart}."
    )
    return Beside(paper, here)


def _order(noisy: pd.DataFrame, seed: int) -> str:
    """Return in how many seeds the first method's checkpoints score less than the second's; empty for one seed."""
    means = noisy.pivot_table(index="seed", columns="method", values="accuracy", sort=False)
    if len(means) < 2 or means.shape[1] < 2:
        return ""
    first, second = means.columns[:2]
    below = means[first] < means[second]
    this = "this one included" if below[seed] else "this one not included"
    labels = [method_named(str(name)).label for name in (first, second)]
    return (
        f"The mean over checkpoints is lower for {labels[0]} than for {labels[1]} in {int(below.sum())} of "
        f"{len(below)} seeds, {this}. "
    )


def question(stored: pd.DataFrame, asked: pd.DataFrame) -> pd.DataFrame:
    """Return the last round of one method as stored and with the settings that a reader asked for, paired by seed."""
    rows = {}
    for metric, title in FINAL_METRICS.items():
        values = {
            name: last_rounds(rounds).set_index("seed")[metric]
            for name, rounds in (("stored", stored), ("asked", asked))
        }
        paired = pd.DataFrame(values).dropna()
        change = pd.DataFrame({"change": paired["asked"] - paired["stored"], "all": ""})
        means = {name: number(paired[name].mean()) for name in paired}
        rows[title] = means | {"change": interval_texts(intervals(change, "change", ["all"]), 3).iloc[0]}
    return pd.DataFrame(rows).T.rename_axis("last round")


def _varying(found: pd.Series, across: Sequence[str]) -> str:
    parts = [
        f"{rate} by " + ", ".join(f"{significant(found[rate, each], 2)} % across {each}" for each in across)
        for rate in RATES
    ]
    return "; ".join(parts)


def _seeds(table: pd.DataFrame) -> str:
    return f"mean of {counted(table['seed'].nunique(), 'seed')}"


def _last_round(rounds: pd.DataFrame, metrics: Sequence[str], track: str) -> str:
    """Return a table in Markdown: one row per metric, one column per method, the paper's number in brackets."""
    last = last_rounds(rounds)
    methods = list(dict.fromkeys(rounds["method"]))
    lines = ["| | " + " | ".join(method_named(name).label for name in methods) + " |", "|---|" + "---|" * len(methods)]
    for metric in metrics:
        texts = interval_texts(intervals(last, metric, ["method"]).set_index("method"), digits=3)
        printed = PAPER.get((track, metric), {})
        cells = [texts[name] + (f" ({number(printed[name])})" if name in printed else "") for name in methods]
        lines.append(f"| {FINAL_METRICS[metric]} | {' | '.join(cells)} |")
    table = "\n".join(lines)
    return f"last round, {_seeds(rounds)}; in brackets the paper's numbers.\n\n{table}"


def _course(rounds: pd.DataFrame, method: str) -> str:
    """Return where a method's mean accuracy is highest, and where it ends."""
    means = rounds[rounds["method"] == method].groupby("round")["global_accuracy"].mean()
    label, peak, last = method_named(method).label, means.idxmax(), means.index[-1]
    ends = f"and ends at {number(means.iloc[-1])}" if peak != last else "the last"
    return f"{label} is highest in round {peak}, {number(means.max())}, {ends}"


def _thirds(rounds: pd.DataFrame, method: str, metrics: dict[str, str]) -> str:
    mine = rounds[(rounds["method"] == method) & (rounds["round"] > 0)]
    last = mine["round"].max()
    first, third = mine[mine["round"] <= last / 3], mine[mine["round"] > 2 * last / 3]
    return ", ".join(
        f"{label} {number(first[f'test_{metric}'].mean())} → {number(third[f'test_{metric}'].mean())}"
        for metric, label in metrics.items()
    )


def _falls(trace: pd.DataFrame) -> pd.Series:
    return (trace["loss_before"] - trace["loss_after"]).groupby(trace["unfold"]).mean()


def _earlier(trace: pd.DataFrame) -> float:
    uploads = trace[trace["is_selected"].astype(bool)]
    return float((uploads["unfold"] < trace["unfold"].max()).mean())


def _means(table: pd.DataFrame, column: str) -> str:
    found = intervals(table, column, ["method"]).set_index("method")
    shown = interval_texts(found, digits=3)
    return ", ".join(f"{method_named(name).label} {shown[name]}" for name in shown.index)
