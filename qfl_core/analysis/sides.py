"""The two sides of a skewed federation: clients with mostly label 0, and clients with mostly label 1.

The fairness gap is the distance from the 10th to the 90th percentile of the clients' test accuracies. Where a client's
chunk has another class mix than the test set, its model learns the mix of the chunk: clients of one side then say yes
to most test samples and those of the other side no. On a test set of one class mostly, the first are nearly always
wrong and the second nearly always right. The gap then comes close to 1, however well the models rank the samples.
"""

from __future__ import annotations

import pandas as pd

from qfl_core.algorithm.methods import method_named
from qfl_core.analysis.gap import with_mixes
from qfl_core.analysis.summary import last_rounds
from qfl_core.runs.study import Study

SIDES = {False: "clients with mostly label 0", True: "clients with mostly label 1"}


def side_rates(study: Study) -> pd.DataFrame:
    """Return test accuracy, recall, specificity and share of yes of the last uploads: one row per method and side.

    Each is a mean over clients, then over seeds. ``yes`` is the share of test samples that get label 1.
    """
    uploads = last_rounds(with_mixes(study))
    share, recall = uploads["test_share"], uploads["test_recall"]
    specificity = (uploads["test_accuracy"] - share * recall) / (1 - share)
    uploads = uploads.assign(
        side=(uploads["train_share"] > 0.5).map(SIDES),
        accuracy=uploads["test_accuracy"],
        recall=recall,
        specificity=specificity,
        yes=share * recall + (1 - share) * (1 - specificity),
    )
    columns = ["accuracy", "recall", "specificity", "yes"]
    by_seed = uploads.groupby(["method", "side", "seed"], sort=False)[columns].mean()
    found = by_seed.groupby(["method", "side"], sort=False).mean().reset_index()
    order = {name: place for place, name in enumerate(study.methods)}
    found = found.sort_values("method", key=lambda names: names.map(order), kind="stable", ignore_index=True)
    return found.assign(method=[method_named(name).label for name in found["method"]])
