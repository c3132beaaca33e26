"""The paper's own numbers, each with the place that prints it."""

from __future__ import annotations

#: Last round, by track and metric, then by method: the text of the results sections on BAF and Genome.
#: Where it gives a range, its middle; "near zero" is 0.
PAPER: dict[tuple[str, str], dict[str, float]] = {
    ("baf", "global_accuracy"): {"duqfl-prox": 0.6504, "fedprox-qfl": 0.5344, "default-qfl": 0.4592},
    ("baf", "client_test_accuracy"): {"duqfl-prox": 0.6436, "fedprox-qfl": 0.5480, "default-qfl": 0.5022},
    ("baf", "train_test_gap"): {"duqfl-prox": 0.0, "fedprox-qfl": 0.2116, "default-qfl": 0.2854},
    ("baf", "fairness_gap"): {"duqfl-prox": 0.0193, "fedprox-qfl": 0.0958, "default-qfl": 0.1910},
    ("genome", "global_accuracy"): {"duqfl-prox": 0.825, "fedprox-qfl": 0.85},
    ("genome", "client_test_accuracy"): {"duqfl-prox": 0.80},
    ("genome", "train_test_gap"): {"duqfl-prox": 0.0},
}

#: The marks of the paper's qualitative table, columns as in :data:`QUALITIES`: 2 strongest, 1 competitive, 0 weak.
QUALITIES = (
    "final_accuracy",
    "peak_accuracy",
    "client_test_accuracy",
    "train_test_gap",
    "drift_from_broadcast",
    "fairness_gap",
)
QUALITATIVE: dict[str, dict[str, tuple[int, ...]]] = {
    "genome": {
        "adam-qfl": (0, 2, 0, 0, 0, 0),
        "duqfl-prox": (1, 0, 2, 2, 2, 2),
        "default-qfl": (0, 0, 0, 0, 0, 0),
        "fedprox-qfl": (2, 1, 1, 1, 1, 1),
    },
    "baf": {
        "adam-qfl": (0, 0, 0, 0, 0, 0),
        "duqfl-prox": (2, 2, 2, 2, 2, 2),
        "default-qfl": (0, 1, 0, 0, 0, 0),
        "fedprox-qfl": (1, 0, 1, 1, 1, 1),
    },
}
