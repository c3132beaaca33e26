"""The README's numbers are those of figures/tables, of the documents and of the profile."""

import json
import re

import pandas as pd
import pytest

from qfl_core.config import load_profile
from qfl_core.studies.controllers.plan import PAPER_START, Plan
from tools import readme


def test_the_blocks_of_the_readme_are_made_from_the_tables():
    text = (readme.ROOT / "README.md").read_text(encoding="utf-8")
    assert {name for _, name, _, _ in readme.MARKED.findall(text)} == set(readme.BLOCKS)
    assert readme.rewritten(text, readme.Tables(readme.ROOT / "figures" / "tables")) == text


def test_the_block_of_the_data_page_is_made_from_the_tables():
    text = (readme.ROOT / "data" / "README.md").read_text(encoding="utf-8")
    assert {name for _, name, _, _ in readme.MARKED.findall(text)} == set(readme.DATA_BLOCKS)
    assert readme.rewritten(text, readme.Tables(readme.ROOT / "figures" / "tables"), readme.DATA_BLOCKS) == text


def test_a_number_that_differs_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    monkeypatch.setattr(readme, "BLOCKS", {"claims": lambda tables: "7 hold"})
    (tmp_path / "README.md").write_text("before\n<!-- numbers: claims -->\n8 hold\n<!-- end -->\nafter\n", "utf-8")
    assert readme.main(["--check"]) == 1
    assert "make readme" in capsys.readouterr().err
    assert readme.main([]) == 0
    written = (tmp_path / "README.md").read_text("utf-8")
    assert written == "before\n<!-- numbers: claims -->\n\n7 hold\n\n<!-- end -->\nafter\n"
    assert readme.main(["--check"]) == 0


def test_an_unknown_block_is_an_error():
    with pytest.raises(KeyError, match="nonsense"):
        readme.rewritten("<!-- numbers: nonsense -->\n<!-- end -->", readme.Tables(readme.ROOT))


# The numbers between the blocks, each beside the file that it comes from

TABLES = readme.Tables(readme.ROOT / "figures" / "tables")


def plain(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())


def prose() -> str:
    """Return the README between its blocks and without code, links' addresses and the section of another page."""
    text = readme.MARKED.sub("", (readme.ROOT / "README.md").read_text(encoding="utf-8"))
    text = re.sub(r"^\*\*Rates without a grid\.\*\*.*?\n\n", "", text, flags=re.M | re.S)  # docs/controller.md has it
    text = re.sub(r"^```.*?^```|^ {4}.*?$", "", text, flags=re.M | re.S)
    return plain(re.sub(r"`[^`]*`|\]\([^)]*\)", "", text))


def printed(notebook: str) -> str:
    """Return what the stored outputs of a notebook show as text."""
    cells = json.loads((readme.ROOT / "notebooks" / notebook).read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return "\n".join(
        "".join(output.get("text") or output.get("data", {}).get("text/plain") or []) for output in outputs
    )


def numbers_with_a_source() -> dict[str, list[str]]:
    """Return every sentence part of the README with a number, as the number's source makes it."""
    page, speed = load_profile("paper"), plain((readme.ROOT / "docs" / "speed.md").read_text(encoding="utf-8"))
    claims, fresh = TABLES("claims"), plain((readme.ROOT / "docs" / "claims.md").read_text(encoding="utf-8"))
    audit = printed("01_preprocessing.ipynb")
    runs = int(re.search(r"([\d,]+) runs, \d+ minutes of processor time", speed)[1].replace(",", ""))
    leak = re.search(r"word-id LEAKS the label: .* balanced accuracy ([\d.]+) when .* order, ([\d.]+) in", audit)
    part = {name: re.search(rf"^{name} +(\d+) +(\d+)", audit, flags=re.M) for name in ("train", "test")}
    level = re.search(r"Three lists of statements share the level of (\d+) %", fresh)[1]
    both = re.search(r"even one verdict of both stages is wrong is therefore at most (\d+) %", fresh)[1]
    seeds, clean = int(claims["seeds"].max()), page.study_seeds
    rate = page.config("baf", method="duqfl-prox").learning_rate
    assert rate == page.config("genome", method="duqfl-prox").learning_rate
    slower = re.search(r"training run / its draws, time \| at most [\d.]+ \| ([\d.]+) ", speed)[1]
    assert len(load_profile("quick").seeds) == 10  # the README says it in words
    return {
        "profile": [
            f"Genome, {seeds} seeds, means with 95 % intervals",
            f"Last round, {seeds} seeds, stand-in data, mean",
        ],
        "claims": [f"wrong is at most {level} %. In the first two columns together it is at most {both} %"],
        "costs": [f"executes {costs():.1f} times as many circuits per round as FedProx-QFL"],
        "attribution": [f"fixed step size of {rate:g}", f"{seeds} seeds show no gain in accuracy"],
        "clean": [f"± is half of the 95 % interval over {clean} seeds"],
        "runs": [f"it trains {runs // 100 * 100:,} runs"],
        "leak": [f"balanced accuracy of {leak[1]} with it, and of {leak[2]} once the list is shuffled"],
        "never fraud": [f"scores {1 - int(part['test'][2]) / int(part['test'][1]):.3f}"],
        "frauds": [f"the same few of {part['train'][2]} training frauds"],
        "controllers": controllers(),
        "speed": [f"about {float(slower):.1f} times as long as drawing its random numbers alone"],
    }


def costs() -> float:
    """Return how many times FedProx-QFL's circuits a round of DUQFL-Prox executes; the same on both tracks."""
    spent = TABLES("cost_per_method").set_index(["method", "track"])["per round"].unstack()
    (ratio,) = set((spent.loc["DUQFL-Prox"] / spent.loc["FedProx-QFL"]).round(1))
    return ratio


def controllers() -> list[str]:
    """Return what the README says of the comparison of controllers, on the engine without noise."""
    scores = pd.read_csv(readme.ROOT / "docs" / "controller" / "scores.csv", dtype={"start": str})
    scores = scores[~scores["task"].str.endswith("noisy")]
    by_method = {name: rows.set_index("task") for name, rows in scores.groupby("method")}
    offline, best = by_method["learnt offline"], by_method["tuned constant"]
    below = (best["final"] - offline["final"]).sort_values()
    assert below.index[-1] == "breast-cancer"
    # No method without tuning has a larger area than the offline controller on any task; a grid and a start are tuning.
    others = scores[~scores["method"].isin(["tuned constant", "frozen at the start"])]
    assert others.groupby("task")["area"].max().to_dict() == offline["area"].to_dict()
    spent, plan = by_method["learnt online"]["spent"], Plan.of(load_profile("paper"))
    lowest = min(rate for start in plan.goal_starts(plan.tasks[0]) for rate in map(float, start.split(" / ")))
    return [
        f"at most {below.iloc[-2]:.3f} below the best of {len(plan.tasks[0].grid)} constants on four tasks",
        f"{below.iloc[-1]:.3f} below it on breast cancer",
        f"the paper's constant {PAPER_START[0]}",
        f"from any start between {lowest} and 1",
        f"{spent.min():.1f} to {spent.max():.1f} times the circuits",
    ]


def test_on_new_tasks_the_offline_controller_is_about_as_good_as_the_papers_constant():
    rows = pd.read_csv(readme.ROOT / "docs" / "controller" / "fresh.csv")
    area = rows.groupby(["method", "task"])["area"].mean()
    assert (area["learnt offline"] - area["constant 0.13"]).between(-0.01, 0.0).all()


def test_every_number_between_the_blocks_is_that_of_its_source():
    text = prose()
    for source, parts in numbers_with_a_source().items():
        for part in parts:
            assert part in text, source


def test_no_other_number_stands_between_the_blocks():
    """A decimal number or a count from 100 on that no source is named for."""
    text = prose()
    for parts in numbers_with_a_source().values():
        for part in parts:
            text = text.replace(part, "")
    found = re.findall(r"(?<![\w.:/-])(?:\d+\.\d+|\d{1,3},\d{3}|[1-9]\d\d+)(?![\w.]|-)", text)
    # The oldest Python, the licence, a port of the example, and what the paper's circuit is fed with.
    assert [number for number in found if number not in ("3.11", "2.0", "8000")] == []


def test_the_verdict_names_as_many_equal_verdicts_as_the_comparison():
    first = (readme.ROOT / "figures" / "tables" / "real" / "compared.md").read_text(encoding="utf-8").splitlines()[0]
    same = re.match(r"(\d+ of \d+ claims and theory points have the same verdict) on stand-in and real data", first)[1]
    assert f"; {same} as on the stand-in" in readme.verdict(TABLES)


def test_the_changes_that_the_verdict_names_are_the_largest_beyond_the_margin():
    def table(name):
        rows = [("DUQFL-Prox − Default-QFL", 0.2), *zip(readme.LINKS, (0.01, -0.05, 0.15, 0.03, -0.02), strict=True)]
        columns = {"metric": "global_accuracy", "validation": "natural", "low": 0.1, "high": 0.3, "margin": 0.02}
        table = pd.DataFrame(rows, columns=["link", "mean"]).assign(**columns)
        table["verdict"] = (table["mean"].abs() > 0.1).map({True: "higher", False: "undecided"})
        return pd.concat([table.assign(track=track) for track in readme.TRACKS])

    told = readme._links(table)
    steps = "with the largest steps the controller (+0.150) and unfolding (-0.050, undecided)"
    assert f"by +0.200 [0.100, 0.300] on BAF, {steps}" in told
    assert "fixed rates" not in told


def test_what_the_readme_says_in_words_is_what_the_tables_say():
    """No gain of the controller or the proximal term; the untrained model has the smallest gaps."""
    table = TABLES("attribution")
    links = table[(table["metric"] == "global_accuracy") & table["link"].isin(["controller", "proximal term"])]
    assert "higher" not in set(links["verdict"])
    final = TABLES("final_metrics")
    for track in readme.TRACKS:
        for metric in ("train-test gap", "client fairness gap"):
            means = final[(final["track"] == track) & (final["metric"] == metric)].set_index("method")["mean"]
            assert means.abs().idxmin() == "untrained"
            trained = means.loc[["DUQFL-Prox", "FedProx-QFL", "Default-QFL", "Adam-QFL"]]
            if track == "genome":  # the README says it of the picture, which shows genome
                assert trained.idxmin() == "DUQFL-Prox"
