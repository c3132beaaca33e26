"""The second look: undecided claims are judged once more on fresh seeds alone, and only what they need is trained."""

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
from planted_claims import TOLD, device_table, planted_run, world

from qfl_core.__main__ import main
from qfl_core.algorithm.methods import METHODS
from qfl_core.analysis import CLAIMS, Theory, judge, parts_table, write_claims
from qfl_core.analysis.claim_tables import rewrite_page
from qfl_core.analysis.fresh_claims import read_fresh
from qfl_core.base.errors import AnalysisError, ConfigError
from qfl_core.config import load_profile
from qfl_core.studies.follow_up import FirstStage, follow_up, fresh_seeds, needed_methods
from qfl_core.studies.follow_up.tables import write_follow_up

SOUND = Theory(1e-10, (0.7, 0.8, 0.6, 0.9, 0.7, 0.8, 0.75))
FRESH = list(range(3000, 3010))


@pytest.fixture(scope="module")
def few():
    """The verdicts of three seeds, which can decide no claim on runs, because the smallest p value is 1/8."""
    return judge(world(seeds=3), device_table(), SOUND)


@pytest.fixture
def tables(few, tmp_path):
    """The first stage's tables, in which claims 1 and 9 are undecided."""
    write_claims(few, tmp_path)
    return undecided(tmp_path, "1", "9")


def undecided(folder, *claims):
    """Make these claims the only undecided ones of a folder's table."""
    path = folder / "claims.csv"
    table = pd.read_csv(path, dtype={"id": str})
    table["verdict"] = ["undecided" if claim in claims else "holds" for claim in table["id"]]
    table.to_csv(path, index=False)
    return folder


@pytest.fixture
def settings():
    smoke = load_profile("smoke")
    return replace(smoke, commands={"follow_up": {"seeds": FRESH}})


@pytest.fixture
def planted(monkeypatch):
    """Plant the runs of the fresh seeds; return what was asked for, and the world that is planted."""
    plan = SimpleNamespace(asked=[], told=TOLD)

    def study(settings, track, methods, seeds, folder):
        plan.asked.append((track, list(methods), list(seeds)))
        runs = tuple(planted_run(track, method, seed, plan.told) for method in methods for seed in seeds)
        return SimpleNamespace(runs=runs, facts=("data: stand-in", f"{len(seeds)} seeds"))

    monkeypatch.setattr("qfl_core.studies.follow_up.study.get_study", study)
    monkeypatch.setattr("qfl_core.studies.follow_up.study.kept", lambda study: study)
    return plan


def test_fresh_seeds_decide_what_the_first_stage_left_open(tables, settings, planted, tmp_path):
    before = (tables / "claims.csv").read_bytes()
    first = FirstStage.read(tables)
    found = follow_up(settings, first, tmp_path)
    assert {verdict.claim.id: verdict.verdict for verdict in found.verdicts} == {"1": "holds", "9": "holds"}
    assert all(result.seeds == tuple(FRESH) for verdict in found.verdicts for result in verdict.parts)
    write_follow_up(found, tables)
    table = pd.read_csv(tables / "follow_up.csv", dtype={"id": str}).set_index("part")
    assert list(table.index) == ["1a", "1b", "9a", "9b", "9c", "9d", "9e"]
    assert set(table["verdict"]) == set(table["claim_verdict"]) == {"holds"}
    assert set(table["verdict_first"]) == {"undecided"}
    assert (table["seeds"] == len(FRESH)).all()
    assert (table["seeds_first"] == 3).all()
    # Both stages' own numbers: one of them does not stand for the other.
    for label, row in first.parts.set_index("part").loc[table.index].iterrows():
        assert table.loc[label, "estimate_first"] == row["estimate"] != table.loc[label, "estimate"]
    told = "Of the 2 undecided claims, 10 fresh seeds decide 2 (2 holds); none remains undecided."
    text = (tables / "follow_up.md").read_text(encoding="utf-8")
    assert text.startswith(told)
    assert "data: stand-in" in text
    rewrite_page(tables)
    page = (tables / "claims.md").read_text(encoding="utf-8")
    assert told in page
    header, _, first_claim, second_claim, *_ = (line for line in page.splitlines() if line.startswith("|"))
    assert [cell.strip() for cell in header.split("|")][3:5] == ["verdict", "fresh seeds"]
    assert [cell.strip() for cell in first_claim.split("|")][3:5] == ["**undecided**†", "holds"]
    assert [cell.strip() for cell in second_claim.split("|")][3:5] == ["**holds**", ""]
    assert (tables / "claims.csv").read_bytes() == before


def test_fresh_seeds_may_show_the_opposite_or_nothing(tables, settings, planted, tmp_path):
    baf = TOLD["baf"] | {"fedprox-qfl": (0.40, *TOLD["baf"]["fedprox-qfl"][1:])}  # below Default-QFL
    genome = TOLD["genome"] | {"fedprox-qfl": (0.826, *TOLD["genome"]["fedprox-qfl"][1:])}  # as good as DUQFL-Prox
    planted.told = {"baf": baf, "genome": genome}
    first = FirstStage.read(tables)
    found = follow_up(settings, first, tmp_path)
    assert {verdict.claim.id: verdict.verdict for verdict in found.verdicts} == {"1": "fails", "9": "absent"}
    few = replace(settings, commands={"follow_up": {"seeds": FRESH[:2]}})
    write_follow_up(follow_up(few, first, tmp_path), tables)
    assert read_fresh(tables).remaining(first.verdicts) == ["1", "9"]
    assert "2 fresh seeds decide 0; 2 remain undecided (1, 9)." in (tables / "follow_up.md").read_text("utf-8")


def test_the_family_is_the_open_claims_alone_judged_as_in_the_first_stage(tables, settings, planted, tmp_path):
    found = follow_up(settings, FirstStage.read(tables), tmp_path)
    runs = {t: [planted_run(t, m, s) for m in METHODS for s in FRESH] for t in ("baf", "genome")}
    claims = [claim for claim in CLAIMS if claim.id in ("1", "9")]
    columns = ["part", "verdict", "estimate", "low", "high", "p", "p_corrected", "margin", "bound"]
    expected = parts_table(judge(runs, claims=claims))[columns]
    pd.testing.assert_frame_equal(parts_table(found.verdicts)[columns], expected)


def test_only_what_the_open_claims_need_is_trained(tables, settings, planted, tmp_path):
    follow_up(settings, FirstStage.read(tables), tmp_path)
    assert planted.asked == [
        ("baf", ["default-qfl", "fedprox-qfl", "duqfl-prox"], FRESH),
        ("genome", ["default-qfl", "adam-qfl", "fedprox-qfl", "duqfl-prox"], FRESH),
    ]
    planted.asked.clear()
    follow_up(settings, FirstStage.read(undecided(tables, "16")), tmp_path)
    assert planted.asked == [("genome", ["duqfl-last", "duqfl-best", "duqfl-drift", "duqfl-prox"], FRESH)]
    assert needed_methods([claim for claim in CLAIMS if claim.id == "19"]) == {"baf": ["duqfl-prox"]}


def test_devices_and_theory_points_are_never_open(tables):
    assert [claim.id for claim in FirstStage.read(undecided(tables, "2", "20", "T1", "T2", "T3")).open_claims] == ["2"]


@pytest.mark.parametrize(
    ("seeds", "reason"),
    [
        ([3000, 0], r"1 seed of follow_up \(0\) would not be fresh"),  # the profile's own
        ([3000, 7], r"\(7\) would not be fresh"),  # the first stage's, which SEEDS= may choose
        ([1100, 1101, 2300], r"3 seeds of follow_up \(1100, 1101, 2300\)"),  # of a search and of another command
        ([3000, 3000], "names a seed twice"),
        ([3000], "at least two seeds"),
        (None, "at least two seeds"),
        ([3000, -1], "seeds"),
    ],
)
def test_seeds_that_are_not_fresh_are_refused(seeds, reason):
    smoke = load_profile("smoke")
    named = replace(smoke, commands={**smoke.commands, "follow_up": {"seeds": seeds} if seeds else {}})
    with pytest.raises(ConfigError, match=reason):
        fresh_seeds(named, frozenset({7, 8}))


def test_nothing_is_trained_with_seeds_of_the_first_stage(tables, settings, planted, tmp_path):
    values = pd.read_csv(tables / "claim_values.csv")
    values["seed"] += 3000
    values.to_csv(tables / "claim_values.csv", index=False)
    with pytest.raises(ConfigError, match=r"8 seeds of follow_up \(3000, 3001, 3002, 3003, ...\) would not"):
        follow_up(settings, FirstStage.read(tables), tmp_path)
    assert planted.asked == []


@pytest.mark.parametrize("profile", ["paper", "quick", "smoke"])
def test_the_seeds_of_every_profile_are_fresh(profile):
    seeds = fresh_seeds(load_profile(profile), frozenset(load_profile("paper").seeds))
    assert min(seeds) >= 3000  # the page on fidelity takes seeds from 2000 on, 1,000 at most
    if profile == "paper":
        assert seeds == list(range(3000, 3400))


def test_other_data_than_the_first_stages_are_refused(tables, settings, planted, tmp_path):
    path = tables / "claim_parts.csv"
    path.write_text(path.read_text("utf-8").replace("stand-in data", "local data"), "utf-8")
    with pytest.raises(AnalysisError, match="the first stage was judged on other data .* now baf has stand-in data"):
        follow_up(settings, FirstStage.read(tables), tmp_path)
    assert planted.asked == []


def test_a_verdict_of_fresh_seeds_stands_beside_undecided_claims_alone(few, tables, settings, planted, tmp_path):
    write_follow_up(follow_up(settings, FirstStage.read(tables), tmp_path), tables)
    write_claims(judge(world(), device_table(), SOUND), tables)  # as if the first stage had been repeated, and decided
    page = (tables / "claims.md").read_text(encoding="utf-8")
    line = next(line for line in page.splitlines() if line.startswith("| 1 |"))
    assert [cell.strip() for cell in line.split("|")][3:5] == ["**holds**†", ""]
    assert "Of the 0 undecided claims" in page


def test_a_damaged_table_of_fresh_seeds_is_told(tables):
    (tables / "follow_up.csv").write_text("id,part,verdict\n1,1a,holds\n", "utf-8")
    with pytest.raises(AnalysisError, match=r"follow_up.csv lacks claim_verdict, estimate, low, high, seeds"):
        rewrite_page(tables)


def test_the_command_trains_judges_and_writes_or_says_why_not(few, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("qfl_core.base.paths.results_dir", lambda profile: tmp_path / "results" / profile)
    monkeypatch.setattr("qfl_core.base.paths.figures_dir", lambda profile: tmp_path / "figures")
    tables = tmp_path / "figures" / "tables"
    asked = ["follow-up", "--profile", "smoke"]
    assert main(asked) == 1
    told = capsys.readouterr().err
    assert "claims.csv is not there; `make reproduce` writes it" in told
    assert told.count("\n") == 1
    write_claims(few, tables)
    undecided(tables)
    assert main(asked) == 0
    assert "nothing to judge once more" in capsys.readouterr().out
    assert not (tables / "follow_up.csv").exists()
    undecided(tables, "4")
    assert main(asked) == 0
    assert "Of the 1 undecided claims, 2 fresh seeds decide 0; 1 remains undecided (4)." in capsys.readouterr().out
    runs = {path.relative_to(tmp_path / "results"): path.stat().st_mtime_ns for path in tmp_path.rglob("DONE")}
    assert {path.parts[:2] for path in runs} == {
        ("smoke-follow-up", method) for method in ("duqfl-prox", "fedprox-qfl", "default-qfl")
    }
    assert {seed for path in runs for seed in path.parts if seed.startswith("seed-")} == {"seed-3000", "seed-3001"}
    written = (tables / "follow_up.csv").read_bytes()
    assert main(asked) == 0  # what is finished is not trained again
    assert runs == {path.relative_to(tmp_path / "results"): path.stat().st_mtime_ns for path in tmp_path.rglob("DONE")}
    assert (tables / "follow_up.csv").read_bytes() == written
