"""The protocol search: the fraction is balanced, the scores are the stated ones, and a planted truth wins."""

import itertools
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from planted_search import planted_stage

from qfl_core.__main__ import main
from qfl_core.base.errors import AnalysisError, ConfigError, RunError
from qfl_core.config import load_profile
from qfl_core.figures import protocol as figures
from qfl_core.studies.protocol import (
    ALL,
    DEFAULTS,
    GRADE,
    TOTAL,
    Plan,
    Search,
    SearchTables,
    Stage,
    finalists,
    paper_numbers,
    predicted,
    profile_candidate,
    protocol_search,
)
from qfl_core.studies.protocol import statements as said
from qfl_core.studies.protocol.command import report
from qfl_core.studies.protocol.distance import distance, half_interval
from qfl_core.studies.protocol.page import REAL_HEADING, page, real_part, real_section, with_real, words
from qfl_core.studies.protocol.plan import HALF
from qfl_core.studies.protocol.statements import Course
from qfl_core.studies.protocol.tables import complete_search

DOCS = Path(__file__).resolve().parent.parent / "docs"


def plan() -> Plan:
    return Plan.of(load_profile("paper").sections["protocol"])


def two_levels(**changes) -> Plan:
    section = {
        "tracks": ["baf"],
        "factors": {
            "clients": {"2": {"clients": 2}, "3": {"clients": 3}},
            "loss": {"cross entropy": {"loss": "cross_entropy"}, "squared error": {"loss": "squared_error"}},
        },
        "method_factors": {
            "fedprox-qfl": {"SPSA": {"calibrated": {"fedprox_spsa": "calibrated"}, "fixed": {"fedprox_spsa": "fixed"}}}
        },
        "seeds": [1000, 1001],
        "finalists": 1,
        "final_seeds": [1100, 1101, 1102],
        "readings": {"A": {"clients": "3"}},
        "refinement": {
            "duqfl-prox": {"outer": {"rate 1": {"outer_learning_rate": 1}, "rate 3": {"outer_learning_rate": 3}}},
            "adam-qfl": {"steps": {"budget": {"adam_steps": 0}, "2 steps": {"adam_steps": 2}}},
        },
        "refinement_seeds": [1200, 1201],
    }
    return Plan.of(section | changes)


def contrasts(tried: Plan) -> dict[str, list[np.ndarray]]:
    """Return the contrasts (candidates,) of every shared factor: one of two levels, three of four."""
    found = {}
    for place, (name, levels) in enumerate(tried.factors.items()):
        level = np.array([int(c[place]) for c in tried.screened])
        last, first = 1 - 2 * (level % 2), 1 - 2 * (level // 2)
        found[name] = [last] if len(levels) == 2 else [last, first, last * first]
    return found


def test_no_main_effect_of_the_paper_profile_is_mixed_with_another_or_with_a_pair():
    found = contrasts(plan())
    assert len(plan().screened) == 32
    assert all(c.sum() == 0 for mine in found.values() for c in mine)
    for a, b in itertools.combinations(found, 2):
        pairs = [x * y for x in found[a] for y in found[b]]
        assert all(pair.sum() == 0 for pair in pairs)
        for pair, mine in itertools.product(pairs, found.values()):
            assert all(abs((pair * c).sum()) < len(pair) for c in mine)


def test_the_search_never_uses_a_seed_whose_results_are_reported():
    used = plan()
    stages = (used.seeds, used.final_seeds, used.refinement_seeds)
    assert min(seed for seeds in stages for seed in seeds) >= 1000 > max(load_profile("paper").seeds)
    assert len({seed for seeds in stages for seed in seeds}) == sum(map(len, stages))


def test_the_settings_of_every_combination_make_a_config():
    profile, tried = load_profile("paper"), plan()
    assert len(tried.combinations) == 2048
    found = {profile.config("baf", **tried.settings(candidate)).digest for candidate in tried.combinations}
    assert len(found) == 2048
    assert tried.settings(DEFAULTS) == {}


def test_a_factor_of_one_method_changes_the_runs_of_that_method_alone():
    tried = two_levels()
    assert tried.candidates == ["000", "001", "010", "011", "100", "101", "110", "111"]
    assert tried.settings("001", "duqfl-prox") == tried.settings("000", "duqfl-prox")
    assert tried.settings("001", "fedprox-qfl")["fedprox_spsa"] == "fixed"
    assert tried.reading("A") == "100"
    assert tried.refinements("adam-qfl") == {"budget": {"adam_steps": 0}, "2 steps": {"adam_steps": 2}}


def test_the_twelve_numbers_of_baf_and_the_four_of_genome_are_the_targets():
    counts = paper_numbers(["baf", "genome"]).groupby("track").size()
    assert counts.to_dict() == {"baf": 12, "genome": 4}


def test_distance_is_the_root_mean_square():
    assert distance(np.array([0.3, 0.5]), np.array([0.0, 0.1])) == pytest.approx(np.sqrt((0.09 + 0.16) / 2))
    assert distance(paper_numbers(["baf"]).to_numpy(), paper_numbers(["baf"]).to_numpy()) == 0


def stage(numbers: np.ndarray, grades: np.ndarray, untrained: np.ndarray, tracks=("baf", "genome")) -> Stage:
    """Return a stage of candidates a, b, ...; ``grades`` and ``untrained`` (candidates,) are the same for all seeds."""
    seeds = numbers.shape[1]
    wide = np.repeat(np.reshape(grades, (-1, 1, 1)), seeds, axis=1)
    scores = np.repeat(np.reshape(untrained, (-1, 1, 1)), seeds, axis=1)
    return Stage(tuple("abc"[: len(numbers)]), numbers, paper_numbers(tracks), wide, (("baf", "x"),), scores, (0.6,))


def test_tracks_count_equally_and_missing_every_statement_costs_a_tenth():
    paper = paper_numbers(["baf", "genome"])
    off = np.where(paper.index.get_level_values("track") == "baf", 0.1, 0.3)
    numbers = np.stack([paper.to_numpy() + off] * 2)[:, None]
    table = stage(numbers, np.array([0.0, 1.0]), np.array([0.5, 0.5])).table
    assert table[ALL].tolist() == pytest.approx([0.2, 0.2])
    assert table[GRADE].tolist() == [0, 1]
    assert table[TOTAL].tolist() == pytest.approx([0.3, 0.2])


def test_a_candidate_whose_untrained_model_has_the_final_accuracy_cannot_win():
    paper = paper_numbers(["baf", "genome"]).to_numpy()
    numbers = np.stack([paper, paper + 0.1, paper + 0.2])[:, None]
    found = stage(numbers, np.ones(3), np.array([0.64, 0.6, 0.3]))
    assert found.table["marked"].tolist() == [True, False, False]
    assert found.ranked() == ["b", "c", "a"]
    assert found.ranked(marked=True) == ["a", "b", "c"]


def test_the_jackknife_interval_of_a_mean_is_students():
    values = np.random.default_rng(0).normal(size=(1, 7, 1))
    half = half_interval(lambda kept: kept.mean(axis=1)[:, 0], values)
    assert half[0] == pytest.approx(2.446912 * values.std(ddof=1) / np.sqrt(7))
    assert np.isnan(half_interval(lambda kept: kept.mean(axis=1)[:, 0], values[:, :2])).all()


@pytest.mark.parametrize("truth", ["0020000011", "1031000001"])
def test_a_planted_protocol_is_predicted_even_where_it_was_not_screened(truth):
    tried = plan()
    screening = planted_stage(tried, tried.candidates, 2, truth)
    assert predicted(tried, screening).ranked()[0] == truth
    assert truth not in tried.candidates
    chosen = finalists(tried, screening)
    assert {DEFAULTS, truth, *map(tried.reading, tried.readings)} <= set(chosen)
    assert len(chosen) == len(set(chosen))


def test_a_planted_protocol_that_the_untrained_model_already_meets_goes_to_no_final():
    tried = plan()
    screening = planted_stage(tried, tried.candidates, 2, "0000000100")
    everywhere = predicted(tried, screening)
    assert everywhere.ranked(marked=True)[0] == "0000000100"
    assert everywhere.table.loc["0000000100", "untrained"] == pytest.approx(0.64)
    assert "0000000100" not in finalists(tried, screening)


def test_a_factor_that_does_nothing_shows_no_effect_and_one_that_does_shows_its_own():
    tried = plan()
    screening = planted_stage(tried, tried.candidates, 2)
    paper = screening.paper.to_numpy()
    second = np.array([[int(c[0]), int(c[-1])] for c in screening.candidates])
    shift = 0.05 + second @ [0.2, 0.1]
    noise = np.random.default_rng(1).normal(0, 0.01, screening.numbers.shape)
    changed = Stage(
        screening.candidates, paper + shift[:, None, None] + noise, screening.paper, screening.grades[..., :0], (),
        screening.untrained, screening.limits,
    )  # fmt: skip
    effects = Search(tried, changed, None, ()).effects
    effects = effects[effects["score"] == ALL].drop_duplicates("factor").set_index("factor")
    assert effects.loc["loss", "effect"] == pytest.approx(0.2, abs=0.01)
    assert effects.loc["SPSA of FedProx-QFL", "effect"] == pytest.approx(0.1, abs=0.01)
    others = effects.drop(index=["loss", "SPSA of FedProx-QFL"])
    assert (others["effect"].abs() < 0.01).all()
    assert (effects["low"] < effects["effect"]).all()


def test_the_difference_of_two_candidates_is_paired_over_seeds():
    """Noise that both share cancels: the interval of the difference is far below that of either distance."""
    paper = paper_numbers(["baf"])
    shared = np.random.default_rng(2).normal(0, 0.1, (6, 1))
    numbers = np.stack([paper.to_numpy() + 0.3 + shared, paper.to_numpy() + 0.35 + shared])
    found = stage(numbers, np.ones(2), np.zeros(2), ("baf",))
    difference, half = found.difference("a", "b")
    assert difference == pytest.approx(-0.05, abs=1e-9)
    assert half < 1e-6 < 0.01 < found.table[f"{ALL} ±"].min()
    assert found.ranked() == ["a", "b"]


def test_a_number_is_inside_where_one_more_run_could_have_it():
    paper = paper_numbers(["baf"])
    spread = np.linspace(-0.1, 0.1, 5)[:, None]
    found = stage(
        np.stack([paper.to_numpy() + 0.05 + spread, paper.to_numpy() + 2 + spread]), np.ones(2), np.zeros(2), ("baf",)
    )
    table = found.numbers_table().groupby("candidate")["inside"]
    assert table.all().to_dict() == {"a": True, "b": False}
    assert not table.any()["b"]


def course(accuracy=(), rounds=None, trace=None) -> Course:
    columns = rounds or {"global_accuracy": accuracy}
    return Course(pd.DataFrame(columns), pd.DataFrame(trace) if trace is not None else None)


def unfolds(eta, fall=(0.1, 0.1), selected=0, displacement=None) -> dict[str, np.ndarray]:
    """Return a trace of two clients and two unfolds; ``eta`` (clients, unfolds)."""
    eta = np.ravel(eta).astype(float)
    return {
        "client": np.array([0, 0, 1, 1]),
        "unfold": np.array([1, 2, 1, 2]),
        "eta": eta,
        "delta": np.full(4, 0.1),
        "loss_before": np.ones(4),
        "loss_after": 1 - np.tile(fall, 2),
        "displacement": eta if displacement is None else np.array(displacement, float),
        "is_selected": np.arange(4) % 2 == selected,
    }


def test_default_peaks_in_the_middle_and_falls():
    grade = said._peaks_and_falls
    assert grade(course([0.9, 0.4, 0.6, 0.5])) == 1
    assert grade(course([0.0, 0.4, 0.5, 0.6])) == 0.5
    assert grade(course([0.0, 0.5, 0.4, 0.6])) == 0


def test_scores_improve_over_the_rounds_and_over_the_untrained_model():
    def scores(*values):
        return course(rounds={f"test_{name}": values for name in said.IMPROVING})

    assert said._improves(scores(0.1, 0.2, 0.3, 0.4)) == 1
    assert said._improves(scores(0.5, 0.2, 0.3, 0.4)) == 0
    assert said._improves(scores(0.1, 0.4, 0.3, 0.2)) == 0


def test_rates_that_vary_too_little_to_see_are_graded_by_how_much_they_vary():
    assert said._rates_vary(course(trace=unfolds([[0.1, 0.1], [0.1, 0.1]]))) == 0
    # eta varies visibly across unfolds and not across clients, delta does not vary at all: one of four.
    assert said._rates_vary(course(trace=unfolds([[0.1, 0.2], [0.1, 0.2]]))) == pytest.approx(0.25)
    little = course(trace=unfolds(np.array([[0.975, 1.025], [0.975, 1.025]]) * 0.1))
    assert said._rates_vary(little) == pytest.approx(0.125)


def test_what_unfolds_do_is_graded():
    varied = [[0.1, 0.2], [0.1, 0.2]]
    assert said._early_unfolds(course(trace=unfolds(varied, fall=(0.2, 0.1)))) == 1
    assert said._early_unfolds(course(trace=unfolds(varied, fall=(0.1, 0.2)))) == 0.5
    assert said._early_unfolds(course(trace=unfolds(varied, fall=(-0.1, 0.2)))) == 0
    assert said._earlier_uploads(course(trace=unfolds(varied, selected=0))) == 1
    assert said._earlier_uploads(course(trace=unfolds(varied, selected=1))) == 0
    assert said._displacement_follows(course(trace=unfolds(varied))) == 1
    assert said._displacement_follows(course(trace=unfolds(varied, displacement=[2, 1, 2, 1]))) == 0
    assert said._displacement_follows(course(trace=unfolds([[0.1, 0.1], [0.1, 0.1]], displacement=[2, 1, 2, 1]))) == 0


def test_methods_are_compared_as_the_paper_says():
    rising, flat, low = course([0.5, 0.5, 0.6, 0.8]), course([0.5, 0.6, 0.6, 0.6]), course([0.5, 0.5, 0.5, 0.5])
    assert said._checkpoints(rising, flat) == 1
    assert said._checkpoints(flat, rising) == 0
    assert said._genome_order(rising, flat, low) == 1
    assert said._genome_order(flat, rising, flat) == 0.5
    adam = course([0.5, 0.9, 0.6, 0.4])
    assert said._peaks_highest_and_ends_weak(adam, rising, flat, low) == 1
    assert said._peaks_highest_and_ends_weak(low, rising, flat, adam) == 0.5

    def imbalance(recall, specificity):
        return course(rounds={"test_recall": [recall] * 4, "test_specificity": specificity})

    keen, calm = imbalance(0.8, [1, 0.9, 0.8, 0.7]), imbalance(0.5, [0.5, 0.6, 0.7, 0.8])
    assert said._recall_and_specificity(keen, calm, calm) == 1
    assert said._recall_and_specificity(calm, keen, calm) == 0


def test_the_profiles_own_settings_are_recognised_among_the_candidates():
    """Else they would run in the final twice, under two names."""
    tried, first = two_levels(), {"loss": "cross_entropy", "fedprox_spsa": "calibrated"}
    three, nine = ({"baf": {**first, "clients": clients}} for clients in (3, 9))
    assert profile_candidate(load_profile("smoke", experiment=three), tried) == "100"
    assert profile_candidate(load_profile("smoke", experiment=nine), tried) == DEFAULTS
    outer = {**first, "outer_learning_rate": 3, "clients": 3}
    tried = two_levels(base={"outer_learning_rate": 1})
    assert profile_candidate(load_profile("smoke", experiment={"baf": outer}), tried) == "100"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"factor": {}}, "unknown key 'factor' .did you mean 'factors'"),
        ({"tracks": ["genome-clean"]}, "the paper prints no numbers for 'genome-clean'"),
        ({"seeds": []}, "seeds must name at least one"),
        ({"final_seeds": [1000, 1120]}, "seeds that screening does not use"),
        ({"refinement_seeds": [1100, 1200]}, "refinement_seeds must be at least two seeds that no other stage uses"),
        ({"parity": {"loss": ["client"]}}, "parity takes factors of two or four levels, got 'client'"),
        ({"parity": {"loss": [f"client{HALF}"]}}, "parity takes factors of two or four levels, got 'client / 2'"),
        ({"method_factors": {"adam": {}}}, "unknown method 'adam'"),
        ({"untrained": ["clint"]}, "unknown factor 'clint'"),
        ({"readings": {"A": {"clients": "7"}}}, "unknown level of 'clients' '7'"),
    ],
)
def test_a_wrong_plan_is_refused_with_the_reason(changes, message):
    with pytest.raises(ConfigError, match=message):
        two_levels(**changes)


def planted_search() -> Search:
    tried = plan()
    screening = planted_stage(tried, tried.candidates, 2, noise=0.05)
    chosen = finalists(tried, screening, "1021000100")
    return Search(tried, screening, planted_stage(tried, chosen, 20, noise=0.05), ("data: planted",), "1021000100")


def test_the_page_tells_winner_ties_and_misses_and_keeps_the_part_on_real_files():
    search = planted_search()
    text = page(search)
    for heading in ("The rule, fixed before", "What came out", "What decides", "What cannot", "What no reading"):
        assert f"\n## {heading}" in text
    assert text.index("The choice.") < text.index("**The winner**")
    assert "(marked)" in text
    assert "reading A" in text
    stage = search.final
    told = with_real(text, real_section(search.plan, stage, search.roles, ("data: local",)))
    assert told.count(REAL_HEADING) == 1
    assert "data: local" in told
    # "as written above" refers to a sentence right above the table, which has every level of the first row.
    for part, candidate in ((text, search.winner), (real_part(told), stage.ranked()[0])):
        assert part.index(f"{words(search.plan, candidate)}.") < part.index("as written above")
    assert page(search, real_part(told)) == told
    assert real_part("nothing") is None


def test_the_page_tells_both_distances_before_and_after():
    search = planted_search()
    table = search.best.table
    found = [table.loc[candidate] for candidate in (search.plan.reading("of the first edition"), search.winner)]
    told = "; ".join(
        f"{title} {' → '.join(f'{row[part]:.3f}' for row in found)}"
        for part, title in (("all", "numbers"), ("statements", "statements"), ("total", "total"))
    )
    assert f"Reading of the first edition → winner: {told}. The first edition's own search told 0.074" in page(search)


def test_the_documented_page_says_what_its_first_rows_are():
    text = (DOCS / "protocol-search.md").read_text(encoding="utf-8")
    for part in (text.partition(REAL_HEADING)[0], real_part(text)):
        lines = part.splitlines()
        (row,) = [place for place, line in enumerate(lines) if "| as written above |" in line]
        assert lines[row - 4].startswith(("**The winner**: ", "**The closest here**: "))


def test_the_documented_search_tells_the_distances_of_its_tables():
    text = (DOCS / "protocol-search.md").read_text(encoding="utf-8")
    tables = complete_search()
    final = tables.candidates[tables.candidates["stage"] == "final"]
    chosen = tables.refinement[tables.refinement["chosen"] & (tables.refinement["method"] == "duqfl-prox")]
    by_role = [final[final["role"].fillna("").str.contains(role)] for role in ("of the first edition", "winner")]
    for part, title in (("all", "numbers"), ("statements", "statements"), ("total", "total")):
        numbers = [f"{float(rows[part].iloc[0]):.3f}" for rows in (*by_role, chosen)]
        assert f"{title} {' → '.join(numbers)}" in text


def test_tables_are_read_back_as_they_were_written_and_older_ones_are_refused(tmp_path):
    tables = SearchTables.of(planted_search())
    tables.write(tmp_path)
    again = SearchTables.read(tmp_path)
    assert again.winner == tables.winner
    assert again.factors == tables.factors
    assert list(again.candidates["candidate"]) == list(tables.candidates["candidate"])
    assert list(again.candidates["role"]) == list(tables.candidates["role"])
    figure = figures.protocol_search(again).draw()
    assert len(figure.axes) == 3
    assert all(axis.get_title() and axis.get_xlabel() and axis.has_data() for axis in figure.axes)
    plt.close(figure)
    path = tmp_path / "protocol_candidates.csv"
    pd.read_csv(path, dtype=str).drop(columns="statements").to_csv(path, index=False)
    with pytest.raises(AnalysisError, match="no column 'statements'.*make protocol-search"):
        SearchTables.read(tmp_path)
    path.unlink()
    with pytest.raises(AnalysisError, match="make protocol-search writes it"):
        SearchTables.read(tmp_path)


@pytest.mark.outside
def test_a_search_runs_then_reads_back_the_same_and_trains_nothing(tmp_path):
    small = {
        "rounds": 3,
        "train_size": 200,
        "val_size": 60,
        "test_size": 60,
        "spsa_iterations": 1,
    }
    profile = load_profile("smoke", experiment={"common": small})
    tried = two_levels()
    with pytest.raises(RunError, match="8 runs of track"):
        protocol_search(profile, tried, tmp_path, train=False)
    ran = protocol_search(profile, tried, tmp_path)
    again = protocol_search(profile, tried, tmp_path, train=False)
    pd.testing.assert_frame_equal(ran.candidates, again.candidates)
    pd.testing.assert_frame_equal(ran.refinement, again.refinement)
    assert ran.winner == again.winner != ran.runner_up
    assert {DEFAULTS, "100"} <= set(ran.final.candidates)
    assert ran.candidates["stage"].value_counts().to_dict() == {"screening": 4, "final": len(ran.final.candidates)}
    assert ran.facts[0] == "data: stand-in"
    assert "4 candidates screened with 2 seeds" in ran.facts
    assert ran.refinement.groupby("method")["chosen"].sum().to_dict() == {"adam-qfl": 1, "duqfl-prox": 1}
    told = report(ran)
    for role in ("winner: total", "runner-up: total", "winner - runner-up", "duqfl-prox: rate"):
        assert role in told


def test_the_command_writes_page_tables_and_figure_or_says_why_not(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("QFL_DATA_DIR", raising=False)
    monkeypatch.setattr("qfl_core.runs.study.results_dir", lambda profile: tmp_path / "results" / profile)
    out = tmp_path / "out"
    assert main(["protocol", "--profile", "nonsense", "--out", str(out)]) == 2
    assert "unknown profile 'nonsense'" in capsys.readouterr().err
    assert not out.exists()
    with monkeypatch.context() as patch:
        patch.setenv("QFL_DATA_DIR", str(tmp_path))
        assert main(["protocol", "--profile", "smoke", "--out", str(out)]) == 1
        assert "run the command first without QFL_DATA_DIR" in capsys.readouterr().err
    with plt.rc_context():
        assert main(["protocol", "--profile", "smoke", "--out", str(out)]) == 0
    names = {path.name for path in (out / "protocol-search").iterdir()}
    tables = {f"protocol_{name}.csv" for name in ("candidates", "effects", "numbers", "statements", "refinement")}
    assert names == tables | {"protocol_search.pdf", "protocol_search.png"}
    before = (out / "protocol-search.md").read_text(encoding="utf-8")
    assert "Not run yet" in before
    # Where files are at hand, only the part on them changes; here the stand-in plays the files.
    monkeypatch.setenv("QFL_DATA_DIR", str(tmp_path))
    monkeypatch.setattr("qfl_core.studies.protocol.command.REAL", "stand-in")
    assert main(["protocol", "--profile", "smoke", "--out", str(out)]) == 0
    after = (out / "protocol-search.md").read_text(encoding="utf-8")
    assert after.partition(REAL_HEADING)[0] == before.partition(REAL_HEADING)[0]
    assert "The finalists again, 3 seeds" in after
    real = pd.read_csv(out / "protocol-search" / "protocol_real.csv")
    assert real["role"].str.contains("reading A").sum() == 1
    assert real["role"].str.contains("winner").sum() == 1
    # Where the profile has changed since, its candidate is the one of now.
    monkeypatch.setattr("qfl_core.studies.protocol.command.profile_candidate", lambda *_: "110")
    table = out / "protocol-search" / "protocol_candidates.csv"
    table.write_text(table.read_text(encoding="utf-8").replace("profile", "old"), encoding="utf-8")
    assert main(["protocol", "--profile", "smoke", "--out", str(out)]) == 0
    told = dict(pd.read_csv(out / "protocol-search" / "protocol_real.csv", dtype=str)[["candidate", "role"]].to_numpy())
    assert all(("profile" in str(role)) == (candidate == "110") for candidate, role in told.items())
