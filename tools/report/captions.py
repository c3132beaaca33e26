"""What each figure and table shows, in one sentence, in the order of the report."""

from __future__ import annotations

#: Figures by heading: file name without its ending, and caption.
FIGURES: dict[str, dict[str, str]] = {
    "The method": {
        "fl_Archi": "The federation: data stays with the clients, selected weights go up, the global model and the "
        "controller come down.",
        "duqfl_prox_overview": "One round of DUQFL-Prox: unfolded local training of a client (Algorithm 1), "
        "aggregation (Algorithm 2) and refinement of the controller (Algorithm 3).",
    },
    "The paper's comparisons": {
        "baf_global_client_metrics": "BAF: global accuracy, mean client test accuracy, train-test gap and client "
        "fairness gap over rounds, beside what classical models score on the same angles and what the untrained model "
        "scores (thin line with dots); triangles are the paper's numbers.",
        "genome_global_client_metrics": "Genome with word ids, an encoding that leaks the label: the same four "
        "metrics over rounds, beside what classical models score on the same angles and what the untrained model "
        "scores (thin line with dots); triangles are the paper's numbers.",
        "metrics_BAF_1": "BAF: recall, precision, F1 and specificity of the global model over rounds, test solid and "
        "validation dashed.",
        "metrics_BAF_2": "BAF: ROC-AUC, PR-AUC and MCC of the global model over rounds, test solid and validation "
        "dashed, and the client fairness gap.",
        "ablation_duqfl_components": "Genome: Default-QFL and the four unfolded variants, which add best-unfold "
        "selection, then step projection or the proximal term.",
        "ablation_baf": "BAF: Default-QFL and the four unfolded variants, which add best-unfold selection, then step "
        "projection or the proximal term.",
        "attribution": "From the untrained model to DUQFL-Prox, one change at a time: levels with 95 % intervals, the "
        "paired difference from the row above with its verdict, and what each gain in accuracy is made of; hollow "
        "points have the other label mix in the clients' validation parts.",
        "train_test_gap_shift": "The train-test gap of every method in the last round: the part that the clients' "
        "other mix of classes explains, which needs no training, and the rest; thin lines are 95 % intervals, "
        "triangles the paper's numbers.",
        "cost_per_method": "Circuit executions of one round, all clients together, by what they are spent on; what "
        "tuning spends once is spread over the rounds.",
    },
    "The claims": {
        "claims_baf": "Parts of the claims on BAF, with steadiness and controller: our estimate with its 95 % "
        "interval, the paper's value where it prints one, and in grey where the claim wants it.",
        "claims_genome": "Parts of the claims on genome, devices and theory, drawn in the same way.",
    },
    "The controller": {
        "controller_behaviour": "DUQFL-Prox: learning rate, perturbation and loss reduction of each unfold over "
        "rounds, how often each unfold is uploaded, and how much both rates vary within one run across "
        "clients, unfolds and rounds (coefficients of variation, means over seeds).",
        "controller_heatmaps": "DUQFL-Prox: mean learning rate and perturbation for every client and unfold; the "
        "colours reach at least from half to twice the initial rate; cells are means over seeds, which vary less than "
        "the rates within one run, whose coefficients of variation stand below.",
        "loss_shift_trace": "DUQFL-Prox: how far an unfold moves the weights over rounds, and what it takes off the "
        "loss at which learning rate and perturbation.",
        "unfold_level_behaviour": "DUQFL-Prox: learning rate, perturbation and loss reduction by unfold, each as a "
        "share of its largest, and which unfold is uploaded.",
        "controller_learning": "What a learnt controller gains over a frozen one, for several outer periods m and "
        "rates α, the learning rate at which it ends, and how much both rates vary across clients, unfolds and rounds.",
        "controllers_curves": "Test score against all circuits that were spent, for constant, tuned, calibrated and "
        "learnt rates, one panel for each task, with 95 % bands over seeds.",
        "controllers_rates": "Genome: the learning rate and the perturbation that learnt controllers give over rounds "
        "and unfolds, from three starts.",
    },
    "The data": {
        "baf_angles": "BAF: the smoothed density of each of the four input angles, by class.",
        "genome_encodings": "Genome: the first angle of every sequence against its place in the class-sorted file "
        "list; with word ids it is that place.",
        "leak_audit": "Balanced accuracy of classical models on every genome encoding, its rows met in file order and "
        "shuffled: where shuffling costs accuracy, the encoding leaks the label.",
        "baf_client_mix": "BAF: share of label 1 and number of samples of every client and round.",
        "genome_client_mix": "Genome: share of label 1 and number of samples of every client and round.",
    },
    "The clean track": {
        "baf_encodings": "Validation ROC-AUC of a QNN trained on pooled BAF data for every encoding tried; the "
        "simplest of those tied with the best is taken.",
        "baf_clean": "BAF under the encoding that validation prefers: scores over rounds for all methods, and ROC-AUC "
        "against the circuits spent.",
        "genome_clean": "Genome with 4-mer counts, which do not leak: scores over rounds for all methods, and "
        "accuracy against the circuits spent.",
    },
    "What it depends on": {
        "protocol_search": "Readings of what the paper leaves open: how far they are from its numbers and statements, "
        "the effect of each choice, and the winner beside the paper.",
        "sensitivity_mu": "DUQFL-Prox in the last round, for several proximal coefficients μ.",
        "sensitivity_skew_ratio": "DUQFL-Prox in the last round, from even labels to one label per client.",
        "sensitivity_dirichlet_alpha": "DUQFL-Prox in the last round, from IID clients to extreme Dirichlet ownership.",
        "sensitivity_clients": "DUQFL-Prox in the last round, for several numbers of clients.",
        "sensitivity_participation": "DUQFL-Prox in the last round, when only a share of the clients takes part.",
    },
    "Extensions": {
        "extensions": "Two methods of ours against the methods that they are without their own switch, a dataset that "
        "is not in the paper, and how far learned aggregation weights move from FedAvg's.",
    },
    "Bad clients": {
        "attacks": "DUQFL-Prox under attack: global accuracy in the last round by attack and defence (+ and − mark "
        "differences that the seeds show), what each defence costs where nobody attacks, and colluding clients.",
    },
    "Privacy": {
        "privacy": "Client-level differential privacy of DUQFL-Prox: the last round's score against epsilon for few "
        "and many clients; dashed, the same clients without clipping and noise.",
    },
    "Devices": {
        "real_ibm_validation": "Test accuracy of stored checkpoints of two methods, one run each: exact, sampled, "
        "under simulated device noise and on the backend that the lower right corner names; the titles say whether it "
        "is a quantum computer.",
        "ibm_workload_evidence": "The ledger of jobs: what ran where, as what kind, and what it cost.",
        "noise_study": "Test accuracy against noise and against shots, and each seed's steadiness over checkpoints.",
    },
}

#: Tables by file name without its ending: heading, caption. The claims have a section of their own.
TABLES: dict[str, tuple[str, str]] = {
    "follow_up": (
        "A second look with fresh seeds",
        "Claims that the first stage left undecided, judged once more on fresh seeds alone: each part with its mean, "
        "95 % interval and verdict; names that end in _first are the first stage's. p is corrected for all rows "
        "together.",
    ),
    "final_metrics": (
        "Final metrics beside the paper's",
        "Last round, mean over seeds and 95 % interval; the last column tells whether the paper's number lies inside. "
        'Between the two columns that end in "of runs" lie 95 % of the single runs.',
    ),
    "qualitative_comparison": (
        "Qualitative comparison",
        "✓✓ the best mean over seeds, ✓ in the better half of the distance from best to worst, − otherwise; the "
        "paper's mark in brackets.",
    ),
    "method_roles": ("Roles of the methods", "The switches that tell the methods apart, from the code that runs them."),
    "configuration": ("Settings", "What the paper prints, and what this profile runs with."),
    "datasets": ("Datasets", "What each track is trained on."),
    "clean_baf": (
        "Clean track, BAF",
        "Mean ± half the 95 % interval; rounds and circuit executions until a run scores 95 % of logistic regression.",
    ),
    "clean_genome": (
        "Clean track, genome",
        "Mean ± half the 95 % interval; rounds and circuit executions until a run scores 95 % of logistic regression.",
    ),
    "clean_baf_tuning": (
        "Tuning of the clean track, BAF",
        "Mean validation ROC-AUC ± half the 95 % interval, on seeds apart from the reported ones, per setting; * "
        "marks the setting with the best mean over all methods, which all take, and each method's own best.",
    ),
    "clean_genome_tuning": (
        "Tuning of the clean track, genome",
        "Mean validation accuracy ± half the 95 % interval, on seeds apart from the reported ones, per setting; * "
        "marks the setting with the best mean over all methods, which all take, and each method's own best.",
    ),
    "clean_tuning_levels": (
        "Tuning: what concerns some methods alone",
        "Validation scores of the levels of settings that the named methods alone have; their best level is taken.",
    ),
    "clean_tuning_costs": (
        "Tuning: what the common setting costs each method",
        "Each method's own best setting, its validation score there and with the setting that all methods take.",
    ),
    "clean_client_sides": (
        "Clean track: the models that clients upload",
        "Last round, test scores of the uploads of clients with mostly label 0 and mostly label 1; yes is the share of "
        "test samples that the upload calls positive.",
    ),
    "attribution": (
        "What makes the difference",
        "Last round: the level of every link of the chain, its paired difference from the link before, 95 % intervals, "
        "and the verdict; all differences are judged together. called_positive is the share of test samples that the "
        "model calls positive.",
    ),
    "train_test_gap_shift": (
        "What the train-test gap is made of",
        "Last round, mean over seeds and 95 % interval: the part that the clients' other mix of classes explains, "
        "which the untrained model has as well, and the rest.",
    ),
    "cost_per_method": (
        "What each method costs",
        "Circuit executions by what they are spent on, all clients together, mean over seeds; tuning is spent once, "
        "everything else in every round.",
    ),
    "controller_variation": (
        "How much the controller's rates vary",
        "Coefficient of variation in percent, mean over seeds: across clients, unfolds and rounds, the other two "
        "averaged out. The controllers other than the profile's are those of the sensitivity study.",
    ),
    "extensions": (
        "Extensions",
        "Extra − base in the last round over paired seeds, with 95 % intervals; p is corrected for all rows together.",
    ),
    "attacks": (
        "Bad clients",
        "Differences of the last round's global accuracy over paired seeds, with 95 % intervals; p is corrected for "
        "all rows together. Harm: attacked − honest, undefended. Gain: defended − undefended, attacked. Cost: defended "
        "− undefended where nobody attacks.",
    ),
    "privacy": (
        "Privacy",
        "Private − not private in the last round with as many clients (ROC-AUC on BAF, accuracy on genome), over "
        "paired seeds, with 95 % intervals; p is corrected for all rows together. Noise 0 is clipping alone.",
    ),
    "protocol_candidates": (
        "Protocol search: candidates",
        "Readings of the paper's open points by their total: distance (root mean square) from its numbers, plus the "
        "cost of the statements that they miss.",
    ),
    "protocol_effects": ("Protocol search: effects", "What each choice changes of the total and of its parts."),
    "protocol_numbers": (
        "Protocol search: numbers",
        "The finalists' last round beside the paper, with the range of a single run.",
    ),
    "protocol_statements": (
        "Protocol search: statements",
        "How far the finalists meet what the paper says about the course of training.",
    ),
    "protocol_refinement": ("Protocol search: refinement", "What concerns one method alone, tried on the winner."),
    "notation": ("Notation", "The paper's symbols and the names that the code uses for them."),
}

#: Tables that a command of their own writes, not ``make reproduce``: a report is complete without them.
BY_COMMAND = ("follow_up",)


def figure_names() -> list[str]:
    """Return every captioned figure, in the order of the report."""
    return [name for group in FIGURES.values() for name in group]
