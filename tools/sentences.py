"""Write docs/paper-sentences.md: the sentences of the paper's results that can be checked, beside our numbers.

python -m tools.sentences           # write the page
python -m tools.sentences --check   # say whether it agrees with figures/tables, and end with 1 where it does not

Every number is read from figures/tables, and every verdict follows from the tables by a rule, so no line is typed by
hand; a test compares.
"""

from __future__ import annotations

import argparse
import sys

import pandas as pd

from qfl_core.base.files import write_text
from tools.evidence import (
    AGREES,
    NOT,
    OPEN,
    PARTLY,
    Change,
    Evidence,
    Highest,
    Last,
    Marks,
    Part,
    Rest,
    Untold,
    Variation,
    answer,
    lasts,
    parts,
)
from tools.readme import ROOT, Tables

PAGE = ROOT / "docs" / "paper-sentences.md"
_THREE = ("DUQFL-Prox", "FedProx-QFL", "Default-QFL")
_WHOLE = "DUQFL-Prox − Default-QFL"
#: The paper's sentences by section, shortened, each with what the tables say about it.
SENTENCES: dict[str, list[tuple[str, list[Evidence]]]] = {
    "BAF (figure baf_global_client_metrics)": [
        (
            "DUQFL-Prox achieves the strongest final global accuracy",
            [Part("1a"), Change("baf", _WHOLE, "global_accuracy", "higher")],
        ),
        ("approximately 0.6504, compared with 0.5344 and 0.4592", lasts("baf", "global accuracy", *_THREE)),
        ("Default-QFL reaches a temporary peak during intermediate rounds", parts("2b")),
        ("its late-round performance decreases substantially", parts("2a")),
        (
            "DUQFL-Prox obtains the highest final mean client test accuracy",
            [Part("3a"), Change("baf", _WHOLE, "client_test_accuracy", "higher")],
        ),
        ("approximately 0.6436, 0.5480 and 0.5022", lasts("baf", "mean client test accuracy", *_THREE)),
        ("large final train-test gaps of Default-QFL and FedProx-QFL", lasts("baf", "train-test gap", *_THREE[:0:-1])),
        ("DUQFL-Prox obtains a near-zero final gap", parts("4c")),
        (
            "DUQFL-Prox reduces local over-specialization",
            [*parts("4a", "4b"), Rest("baf", "DUQFL-Prox", "FedProx-QFL")],
        ),
        ("The client fairness gap is also lowest for DUQFL-Prox", parts("5a", "5b")),
        ("approximately 0.0193, 0.0958 and 0.1910", lasts("baf", "client fairness gap", *_THREE)),
    ],
    "Rare class on BAF (figures metrics_BAF_1, metrics_BAF_2)": [
        ("FedAvg-tuned-Adam achieves high recall for much of training", parts("6a", "6b")),
        ("accompanied by a decline in specificity", parts("6c")),
        (
            "DUQFL-Prox provides more consistent improvements in test F1, MCC, ROC-AUC, precision and specificity",
            parts("7f", "7g", "7h", "7i", "7j"),
        ),
        (
            "it maintains a more balanced recall-specificity trade-off",
            [Highest("baf", "balanced accuracy", ("DUQFL-Prox", "Adam-QFL", "Default-QFL"))],
        ),
        (
            "FedAvg-default exhibits stronger fluctuations, particularly for MCC, F1 and ROC-AUC",
            parts("7b", "7a", "7c"),
        ),
        ("The validation curves are noisier than the test curves", parts("8a", "8b", "8c", "8d")),
    ],
    "Genome (figure genome_global_client_metrics)": [
        (
            "FedProx-QFL achieves the highest final global accuracy, approximately 0.85",
            [*parts("9a", "9b", "9c"), Last("genome", "global accuracy", "FedProx-QFL")],
        ),
        (
            "DUQFL-Prox remains competitive, around 0.82-0.83",
            [Part("9d"), Last("genome", "global accuracy", "DUQFL-Prox")],
        ),
        ("Default-QFL ends with substantially lower global accuracy", parts("9e")),
        (
            "DUQFL-Prox achieves the highest final mean client test accuracy, approximately 0.80",
            [*parts("10a", "10b", "10c"), Last("genome", "mean client test accuracy", "DUQFL-Prox")],
        ),
        ("DUQFL-Prox obtains the lowest final train-test gap", parts("11a", "11b", "11c")),
        ("close to zero", parts("11d")),
        ("the lowest final client fairness gap", parts("12a", "12b", "12c")),
        ("DUQFL-best and DUQFL-drift also improve over Default-QFL", parts("13a", "13b", "13c", "13d")),
        (
            "but DUQFL-Prox provides the strongest overall stability and fairness profile",
            parts("16e", "16f", "16h", "16i"),
        ),
    ],
    "Both datasets (table of qualities)": [
        ("The marks of the methods on BAF", [Marks("baf")]),
        ("The marks of the methods on Genome", [Marks("genome")]),
        ("Adam-QFL has the strongest peak accuracy on Genome", parts("14a", "14b", "14c")),
        ("and a weak final accuracy", parts("14d", "14e")),
    ],
    "Controller (figures controller_behaviour, controller_heatmaps, loss_shift_trace, unfold_level_behaviour)": [
        ("η and δ remain within stable numerical ranges", parts("17c")),
        ("while varying across the unfolded training process", parts("17a", "17b", "17f", "17g")),
        ("they vary across clients and unfold steps", [*parts("17d", "17e"), Variation("baf"), Variation("genome")]),
        ("the parameter-shift curve monitors local movement", parts("17h")),
        ("most client-unfold updates yield positive loss reduction", parts("18a")),
        ("the largest average loss reduction often occurs during early unfold steps", parts("18b")),
        ("the last unfolded state is not always uploaded", parts("19")),
        (
            "best-unfold selection is necessary to prevent later, less generalizable unfold states from dominating",
            [
                Change("baf", "best unfold", "global_accuracy", "higher"),
                Change("genome", "best unfold", "global_accuracy", "higher"),
            ],
        ),
    ],
    "Ablation on Genome (figure ablation_duqfl_components)": [
        ("DUQFL-last improves over Default-QFL in some rounds", parts("15a")),
        ("its client-level performance remains less stable than DUQFL-best and DUQFL-Prox", parts("15b", "15c")),
        (
            "best-unfold selection improves this behaviour",
            [
                Change("genome", "best unfold", "client_test_accuracy", "higher"),
                Change("genome", "best unfold", "fairness_gap", "lower"),
            ],
        ),
        (
            "Adding drift control further improves stability",
            [
                Change("genome", "proximal term", "client_test_accuracy", "higher"),
                Change("genome", "proximal term", "fairness_gap", "lower"),
            ],
        ),
        (
            "DUQFL-Prox: the highest final mean client test accuracy among the DUQFL variants",
            parts("16a", "16b", "16c"),
        ),
        ("the lowest train-test gap", parts("16d", "16e", "16f")),
        ("and the smallest client fairness gap", parts("16g", "16h", "16i")),
        (
            "proximal regularization alone is insufficient; stable QFL also requires adaptive control",
            [Change("genome", "controller", "global_accuracy", "higher"), *parts("10a", "12a")],
        ),
    ],
    "Hardware (figure real_ibm_validation)": [
        ("DUQFL-Prox shows a more stable hardware trajectory than Default-QFL", parts("20a")),
        ("and an improving one", parts("20c")),
        ("it remains reasonably aligned with the simulator curves", parts("20b")),
        (
            "the checkpoints remain executable on real quantum hardware",
            [Untold("nothing ran on a quantum computer here; the three lines above are of a simulated IBM Fez")],
        ),
    ],
    "Theory (conclusion)": [
        ("step projection bounds cumulative client drift", parts("T1a", "T1b")),
        ("the proximal term penalizes deviation from the broadcast model", parts("T2")),
        ("the outer SPSA update supports descent-oriented adaptation in expectation", parts("T3")),
    ],
}


def checked(tables: Tables) -> pd.DataFrame:
    """Return one row per sentence: section, the paper's words, what is seen here, and the answer."""
    rows = []
    for section, sentences in SENTENCES.items():
        for words, evidence in sentences:
            told = [each.told(tables) for each in evidence]
            here = "; ".join(text for text, _ in told)
            rows.append({"section": section, "paper": words, "here": here, "answer": answer([a for _, a in told])})
    return pd.DataFrame(rows)


def page(tables: Tables) -> str:
    """Return the page."""
    found = checked(tables)
    counts = found["answer"].value_counts()
    several = {AGREES: "agree", PARTLY: "agree in part", NOT: "do not agree", OPEN: "cannot be told"}
    summary = ", ".join(f"{counts.get(kind, 0)} {words}" for kind, words in several.items())
    lines = [
        "# The paper's sentences, one by one",
        "",
        "Every sentence of the paper's result sections that can be checked, shortened, beside what the same figures",
        f"show here. Of {len(found)}: {summary}.",
        "",
        "- Numbers are means over seeds with 95 % intervals, on stand-in data. In brackets is the part of the claim",
        "  ([table](../figures/tables/claims.md), [rules](claims.md)), whether an untrained model passes it, too, and",
        "  the verdicts on [fresh seeds](../figures/tables/follow_up.md) and on the samples of the real files where",
        "  they differ. The answer does not use these two.",
        f"- *{AGREES}*: every part is shown. *{NOT}*: the contrary is shown, or an effect worth claiming is excluded.",
        f"  *{PARTLY}*: a part is shown, and another one is not so. *{OPEN}*: none is contrary, and one is undecided.",
        "- A number that the paper prints comes from one run. It agrees where the range in which 95 % of our runs lie",
        "  holds it: from the 2.5 % quantile of the runs to the 97.5 % quantile",
        "  ([table](../figures/tables/final_metrics.md)).",
        "- Without a part in brackets: what one change of the method adds ([table](../figures/tables/attribution.md)).",
        "",
        "`make readme` writes this page from [figures/tables](../figures/tables): do not edit it.",
    ]
    for section, rows in found.groupby("section", sort=False):
        lines += ["", f"## {section}", "", "| the paper | here | |", "|---|---|---|"]
        lines += [f"| {row['paper']} | {_cell(row['here'])} | {row['answer']} |" for row in rows.to_dict("records")]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(prog="python -m tools.sentences", description="Write docs/paper-sentences.md.")
    parser.add_argument("--check", action="store_true", help="change nothing; end with 1 where a number differs")
    asked = parser.parse_args(arguments)
    made = page(Tables(ROOT / "figures" / "tables"))
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == made:
        print(f"{PAGE.name}: its numbers are those of figures/tables")
        return 0
    if asked.check:
        print(f"{PAGE.name}: its numbers are not those of figures/tables; `make readme` writes them", file=sys.stderr)
        return 1
    write_text(PAGE, made)
    print(f"{PAGE.name}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
