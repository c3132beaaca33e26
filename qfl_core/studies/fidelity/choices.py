"""Every line of the paper's algorithms, settings table and data section, with what we do and what else one could do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qfl_core.config import ExperimentConfig

ALGORITHM_1, ALGORITHM_2, ALGORITHM_3 = (f"Algorithm {number}" for number in (1, 2, 3))
SETTINGS, DATA = "Table of settings", "Data and federation"
#: The parts of the page, in order, with what the paper calls them.
PARTS = {
    ALGORITHM_1: "Client-side deep-unfolded proximal QNN training",
    ALGORITHM_2: "One federated round of DUQFL-Prox",
    ALGORITHM_3: "Outer SPSA-based controller update",
    SETTINGS: "Main experimental configuration, and the compared methods",
    DATA: "Datasets, preprocessing, partition",
}
#: What a row says where paper and package do the same.
SAME = "The same."


@dataclass(frozen=True)
class Choice:
    """One line of the paper and our reading of it.

    Attributes
    ----------
    key : names the row in the table of measured numbers.
    part : one of :data:`PARTS`.
    where : the line, the setting or the sentence.
    paper : what the paper says.
    ours : what we do; ``{field}`` stands for the profile's value of that config field.
    why : the reason.
    other : what another choice would change, where no setting of a config makes it.
    alternatives : other choices by name, each with the config fields that it changes. Those that are the profile's own
        settings already are not trained.
    method : the method that the alternatives are trained with.
    tracks : the tracks where the choice exists; None means all.
    """

    key: str
    part: str
    where: str
    paper: str
    ours: str
    why: str
    other: str = ""
    alternatives: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    method: str = "duqfl-prox"
    tracks: tuple[str, ...] | None = None

    def changes(self, base: ExperimentConfig, name: str) -> dict[str, Any]:
        """Return the fields that an alternative changes; another encoding keeps number and range of the angles."""
        asked = dict(self.alternatives[name])
        kept = ("features", "angle_range", "tail_share") if "encoding" in asked else ()
        return {field_name: getattr(base, field_name) for field_name in kept} | asked

    def to_train(self, base: ExperimentConfig) -> dict[str, dict[str, Any]]:
        """Return the alternatives that differ from the base config, with the fields that they change."""
        changes = {name: self.changes(base, name) for name in self.alternatives}
        return {name: fields for name, fields in changes.items() if base.replace(**fields) != base}


_PI_RANGE, _UNIT_RANGE = [0.0, math.pi], [0.0, 1.0]

# fmt: off
_CLIENT = (
    Choice(
        "start", ALGORITHM_1, "lines 1, 3", "θ_i,0 ← θ^(t); L_i,* ← ∞, k* ← 0", SAME, "",
        "Nothing: the first unfold has a finite validation loss, so k* is never 0.",
    ),
    Choice(
        "summary", ALGORITHM_1, "line 2", "“Initialize optimization summary s_i,0”, without values",
        "No fall of the loss and no step.", "Nothing has happened yet.",
        "Only η and δ of the first unfold, through the weights that φ has learnt for these two features.",
    ),
    Choice(
        "loop", ALGORITHM_1, "lines 4, 17, 19", "For k = 0 ... K − 1; the client returns model and summaries", SAME, "",
        "–",
    ),
    Choice(
        "features", ALGORITHM_1, "line 5", "z includes unfold and round progress, previous loss information, previous "
        "displacement, client data fraction, a heterogeneity indicator; their scale is not given",
        "(1, k/K, t/T, relative fall of the proximal loss, displacement / √P, n_i / Σn, |client's − federation's share "
        "of label 1|), {controller_features}.", "The list is the paper's; the constant makes φ start at the initial "
        "rates.",
        alternatives={
            "features standardised": {"controller_features": "standardised"},
            "features as they are": {"controller_features": "raw"},
        },
    ),
    Choice(
        "bounds", ALGORITHM_1, "line 6", "log η = φ_η · z and log δ = φ_δ · z, clipped to “predefined feasible "
        "intervals”, which are not given", "The same map; η in {eta_bounds}, δ in {delta_bounds}.",
        "Wide enough to let the controller move by a factor of three "
        "or more each way.", "Only runs in which a rate reaches a bound; the trace records every rate.",
    ),
    Choice(
        "loss", ALGORITHM_1, "line 7", "L_i is “the empirical local QNN loss”", "{loss}; the penalty is "
        "(μ/2)|θ − θ^(t)|², as printed.", "By the protocol search.",
        alternatives={
            "cross entropy": {"loss": "cross_entropy"},
            "squared error": {"loss": "squared_error"},
        },
    ),
    Choice(
        "before", ALGORITHM_1, "line 8", "“Compute pre-update proximal loss”",
        "The same: measured before every unfold with shots of its own.", "With shots, the loss after the previous "
        "unfold would be another number.", "Re-using the previous number would save one measurement per unfold. "
        "Without shots it is the same number; there is no setting for it.",
    ),
    Choice(
        "update", ALGORITHM_1, "line 9", "“Apply one SPSA-based proximal QNN update”; the settings table has 5 to 10 "
        "SPSA iterations per unfold", "A block of {spsa_iterations} SPSA iterations with the unfold's η and δ.",
        "The table says what one update consists of.",
        alternatives={
            "1 iteration": {"spsa_iterations": 1},
            "5 iterations": {"spsa_iterations": 5},
            "10 iterations": {"spsa_iterations": 10},
        },
    ),
    Choice("after", ALGORITHM_1, "lines 10, 11", "Post-update loss; Δθ = θ_k+1 − θ_k", SAME, "", "–"),
    Choice(
        "validation", ALGORITHM_1, "line 12", "Validation loss on V_i; what V_i holds is not stated",
        "Log loss on rows that no client trains on, a share of {client_val_share} of each label's rows; their labels "
        "have the {client_val} mix.", "A rare row repeats in the chunks, so V_i must be set aside first; otherwise the "
        "same row would train and validate.",
        alternatives={
            "the client's own label mix": {"client_val": "skewed"},
            "the data's label mix": {"client_val": "natural"},
        },
    ),
    Choice(
        "selection", ALGORITHM_1, "lines 13 to 15, 18", "The unfold of lowest validation loss is uploaded",
        "The same; of equal losses the first counts.", "“<” in line 13.", "DUQFL-last in the ablation figures is the "
        "other choice.",
    ),
    Choice(
        "summarize", ALGORITHM_1, "line 16", "Summarize(L_before, L_after, L_val, Δθ)",
        "The same four; the controller sees the relative fall of the loss and |Δθ|.", "The list of features of line 5 "
        "has no validation loss.", "A feature more; φ would start at 0 for it.",
    ),
)

_SERVER = (
    Choice(
        "participants", ALGORITHM_2, "line 1", "The server broadcasts θ^(t) to the clients of S^(t); who takes part is "
        "not given", "All clients (participation {participation}); φ^(t) is sent with θ^(t).", "Nothing in the results "
        "speaks of absent clients, and Algorithm 1 needs φ^(t).",
        "Shown in the figure sensitivity_participation.",
    ),
    Choice(
        "parallel", ALGORITHM_2, "lines 2 to 4, 8", "All clients execute Algorithm 1 in parallel; the round returns "
        "θ^(t+1) and L_meta", "The same: one batch of clients, or one network node per client.",
        "Random streams are named by client and round, so that both ways give the same bits.", "Nothing.",
    ),
    Choice(
        "weights", ALGORITHM_2, "lines 5, 6", "w_i = |D_i| / Σ|D_j|, θ^(t+1) = Σ w_i θ_i,*",
        "The same; D_i is the client's chunk of the round.", "“n_i ... available to client i in the current round”.",
        "Equal weights where chunks have equal sizes; here sizes vary by {size_variation} both ways.",
    ),
    Choice(
        "meta-loss", ALGORITHM_2, "line 7", "L_val + λ_fair Ω_fair + λ_comm Ω_comm + λ_stab Ω_stab; the Ω are "
        "described, the λ not given", "Log loss of the server's validation split; P90 − P10 of client validation "
        "accuracies; parameters moved / (2NP); spread over k of the change of the proximal loss; λ = {lambda_fair}, "
        "{lambda_comm}, {lambda_stab}.", "Each Ω is the shortest formula for the paper's sentence. Ω_comm is the same "
        "in both virtual rounds and cancels: with full models sent, no controller changes what is communicated.",
        alternatives={"validation loss alone": {"lambda_fair": 0.0, "lambda_comm": 0.0, "lambda_stab": 0.0}},
    ),
)

_OUTER = (
    Choice(
        "direction", ALGORITHM_3, "lines 1, 2", "Rademacher Δ_φ; φ ± c_out Δ_φ, c_out not given",
        "The same, c_out = {outer_perturbation}.", "Moves η and δ by a tenth through each feature of size 1.",
        "The step is (L+ − L−) / (2 c_out): a larger radius averages over more of the curve.",
    ),
    Choice(
        "virtual", ALGORITHM_3, "lines 3, 4", "“Evaluate one federated round” under φ+ and φ−",
        "Two virtual rounds from θ^(t) with the same data, directions and shots; they change nothing but φ.",
        "The difference then measures the perturbation alone.", "With other random numbers in each, the difference "
        "would hold the noise of two rounds as well. There is no setting for it.",
    ),
    Choice(
        "outer-step", ALGORITHM_3, "lines 5 to 7", "φ ← φ − α_out ĝ, “periodically rather than necessarily at every "
        "round”; α_out and the period are not given", "A period of {outer_period} (1: every round) with "
        "α_out = {outer_learning_rate}, and no step after the last round.", "By the refinement of the protocol search: "
        "with longer periods the rates hardly vary, which the paper says they do. No round follows the last one, so a "
        "step there would serve nobody.",
        alternatives={
            "controller frozen": {"outer_period": 0},
            "every 5 rounds, α_out = 1": {"outer_period": 5, "outer_learning_rate": 1.0},
            "every 5 rounds, α_out = 3": {"outer_period": 5, "outer_learning_rate": 3.0},
            "every round, α_out = 1": {"outer_period": 1, "outer_learning_rate": 1.0},
        },
    ),
)

_SETTINGS = (
    Choice(
        "software", SETTINGS, "Language, environment, framework", "Python 3.11.14, Visual Studio Code, Qiskit, Qiskit "
        "Machine Learning", "Python 3.11 or newer, any editor, versions in requirements.lock.", "A lock file makes the "
        "set-up repeatable.", "–",
    ),
    Choice(
        "simulator", SETTINGS, "Simulator, shots", "Qiskit Aer simulator, 1024 shots",
        "Our statevector engine, {shots} shots drawn from the exact probabilities.", "Tests hold it equal to "
        "Qiskit's; it is faster.",
        alternatives={"exact probabilities": {"shots": None}},
    ),
    Choice(
        "circuit", SETTINGS, "Feature map, ansatz", "ZZFeatureMap, RealAmplitudes; repetitions, entanglement and "
        "readout are not given", "{feature_map} with {feature_map_reps} repetitions and full entanglement, "
        "RealAmplitudes with {ansatz_reps} and reverse-linear entanglement; class = parity of the measured bits.",
        "The library's defaults.",
        alternatives={"ansatz with 1 repetition": {"ansatz_reps": 1}},
    ),
    Choice(
        "default-qfl", SETTINGS, "Optimizer, Default-QFL", "The table: “SPSA / DUQFL-Prox SPSA”; the list of methods: "
        "“Qiskit's default SPSA optimizer”",
        "The library's SPSA, rates {default_spsa}, as many iterations as all unfolds together.",
        "By default the library calibrates its own rates; the table's 0.13 stands beside “SPSA”, too.",
        alternatives={
            "rates fixed at 0.13": {"default_spsa": "fixed"},
            "rates calibrated": {"default_spsa": "calibrated"},
        },
        method="default-qfl",
    ),
    Choice(
        "fedprox-qfl", SETTINGS, "Optimizer, FedProx-QFL",
        "“a conventional local optimization routine” with the proximal term",
        "SPSA, rates {fedprox_spsa} (fixed: the table's 0.13), the same μ.",
        "The paper names no optimiser here; by the protocol search.",
        alternatives={
            "rates fixed at 0.13": {"fedprox_spsa": "fixed"},
            "rates calibrated": {"fedprox_spsa": "calibrated"},
        },
        method="fedprox-qfl",
    ),
    Choice(
        "adam-qfl", SETTINGS, "Optimizer, Adam-QFL",
        "“Generic adaptive optimizer baseline”, “FedAvg-tuned-Adam”; steps, rate and moments are not given",
        "The library's ADAM on exact gradients, rate chosen on validation among {adam_rates}; steps per round "
        "{adam_steps} (0: as many as the SPSA methods' circuits pay for); moments {adam_moments} after a round.",
        "An equal budget compares optimisers, not efforts.",
        alternatives={
            "5 steps": {"adam_steps": 5},
            "moments kept": {"adam_moments": "kept"},
        },
        method="adam-qfl",
    ),
    Choice(
        "duqfl-drift", SETTINGS, "DUQFL-drift", "“an explicit displacement constraint”, without its radius",
        "The step of an unfold is cut to a length of {drift_radius} where it is longer.",
        "The constraint is on what the trace records as displacement.",
        alternatives={"radius 0.1": {"drift_radius": 0.1}, "radius 1": {"drift_radius": 1.0}},
        method="duqfl-drift",
    ),
    Choice(
        "clients", SETTINGS, "Number of clients", "5 or 10", "{clients}.", "By the protocol search.",
        alternatives={"5 clients": {"clients": 5}, "10 clients": {"clients": 10}},
    ),
    Choice(
        "rounds", SETTINGS, "Communication rounds", "10 to 50 “depending on dataset capacity”", "{rounds}.",
        "By the protocol search.",
        alternatives={"10 rounds": {"rounds": 10}, "50 rounds": {"rounds": 50}},
    ),
    Choice("unfolds", SETTINGS, "Unfold steps", "K = 5", "{unfolds}.", "The paper's.", "–"),
    Choice(
        "rates", SETTINGS, "Initial learning rate, initial perturbation, μ", "0.13, 0.13, 0.01",
        "{learning_rate}, {perturbation}, {mu}.", "The paper's.", "Shown for μ in the figure sensitivity_mu.",
    ),
    Choice(
        "initial", SETTINGS, "Initial weights", "A seed is fixed; the distribution is not given",
        "Uniform in ± {initial_range}.", "By the protocol search.",
        alternatives={"± π": {"initial_range": math.pi}, "± 0.1": {"initial_range": 0.1}},
    ),
)

_DATA = (
    Choice(
        "baf-missing", DATA, "BAF, missing values", "“After removing missing values”",
        "Rows with NaN are dropped; the code −1 for “missing” is an ordinary value.", "The published file has no NaN, "
        "and three rows in four have such a code.", "Without these rows BAF is another population.",
        tracks=("baf",),
    ),
    Choice(
        "baf-splits", DATA, "BAF, splits", "Stratified subsample; 2,999 / 750 / 1,250 rows; after the split ordinal "
        "encoding of categories, standardisation of numbers, PCA to four features", "The same, fitted on the training "
        "split; the codes of categories are standardised, too.",
        "PCA weighs a column by its variance, and that of a code follows from the number of categories.",
        "Other weights of five of the 31 columns in PCA. There is no setting for it.", tracks=("baf",),
    ),
    Choice(
        "angles", DATA, "Angle range", "BAF “optionally scaled to [0, π]”; genome by MinMax scaling, range not given",
        "{angle_range}.", "By the protocol search.",
        alternatives={"[0, π]": {"angle_range": _PI_RANGE}, "[0, 1]": {"angle_range": _UNIT_RANGE}},
    ),
    Choice(
        "genome-features", DATA, "Genome, features", "2 or 4", "{features}.",
        "The word size follows: 200 bases / features.",
        alternatives={"2 features": {"features": 2}, "4 features": {"features": 4}}, tracks=("genome",),
    ),
    Choice(
        "genome-dictionary", DATA, "Genome, word ids", "All unique words get integer ids; in which order is not stated",
        "{encoding}: ids in the order of first appearance along the file list.", "The shortest program that does it. "
        "The list is sorted by class, so the ids give the label away (notebook 01).",
        alternatives={"ids along a shuffled list": {"encoding": "word-id-shuffled"}}, tracks=("genome",),
    ),
    Choice(
        "genome-splits", DATA, "Genome, splits",
        "Vectors are shuffled and scaled by MinMax; 10,000 records for training, 2,000 for testing",
        "Ids first, over all chosen records. Training and server validation are stratified draws of {train_size} and "
        "{val_size} from the official train folder, and test is one of {test_size} from its test folder; the scaling "
        "is fitted on the training split.", "The test folder is the publisher's; the meta-loss needs D_val, which the "
        "paper does not place; a scaling of all records would have seen the test split.", "A fifth fewer training "
        "rows. With word-id, the test files have small numbers and stand early in the list of each class, so their "
        "angles cover only the lower half of each class's range (notebook 01). Trained global models score about 0.03 "
        "higher on the validation part than on the test part, and the train-test gap contains that. There is no "
        "setting for a random split over both folders.",
        tracks=("genome",),
    ),
    Choice(
        "partition", DATA, "Non-IID partition", "“non-IID”; the recipe is not stated",
        "{split}: even clients hold {skew_ratio} of label 0, odd clients of label 1; every round a new chunk from "
        "common pools.", "What public code of the same group does.",
        alternatives={
            "Dirichlet ownership, α = 0.5": {"split": "dirichlet", "dirichlet_alpha": 0.5, "min_per_class": 0}
        },
    ),
    Choice(
        "chunk", DATA, "Samples of a client in a round", "n_i varies by round; its size is not stated",
        "{chunk} on average.", "By the protocol search.",
        alternatives={"50 samples": {"chunk": 50}, "100 samples": {"chunk": 100}},
    ),
    Choice(
        "client-test", DATA, "Client test set", "Not stated", "{client_test}.", "By the protocol search.",
        alternatives={
            "each client its own part": {"client_test": "split"},
            "one test set for all": {"client_test": "shared"},
        },
    ),
    Choice(
        "fairness", DATA, "Client fairness gap", "“the P90 − P10 spread of client test accuracies”",
        "The same, of the uploaded models.", "They are the clients' models of the round.",
        "Of the global model it would be 0 on a shared test set; the column global_fairness_gap records it.",
    ),
    Choice(
        "gap", DATA, "Train-test gap", "“train–test gap” of clients, without a formula",
        "Mean over clients of train accuracy on the chunk − test accuracy, of the uploaded model.",
        "The clients' chunks have another class mix than the test set; the figure train_test_gap_shift tells the part "
        "of the gap that this explains.", "On test data with the client's own mix the gap would be the rest in that "
        "figure.",
    ),
)

# fmt: on

CHOICES: tuple[Choice, ...] = (*_CLIENT, *_SERVER, *_OUTER, *_SETTINGS, *_DATA)
