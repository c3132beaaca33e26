"""Claims: a world as the paper tells it makes each hold, its mirror fail, chance shows no effect, gaps are told."""

import dataclasses

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from planted_claims import TOLD, PlantedRun, device_table, planted_run, world
from scipy import stats

from qfl_core.analysis import CLAIMS, Claim, Part, claims_table, judge, parts_table, write_claims
from qfl_core.analysis import measures as m
from qfl_core.analysis.claim_tables import claims_markdown
from qfl_core.analysis.evidence import Evidence
from qfl_core.analysis.part_tests import supporting
from qfl_core.analysis.real_claims import read_real
from qfl_core.analysis.single_run import SingleRun, single_run
from qfl_core.base.errors import AnalysisError
from qfl_core.data import load_splits
from qfl_core.figures.claims import PAGES, VERDICT_STYLE, claim_sheets
from qfl_core.runs.prepare import make_federation
from qfl_core.studies.protocol.distance import paper_numbers
from qfl_core.studies.theory import SMALL, Theory, check_theory, proximal_gradient_error

SOUND = Theory(1e-10, (0.7, 0.8, 0.6, 0.9, 0.7, 0.8, 0.75))
MIRROR = {
    "duqfl-prox": "default-qfl",
    "default-qfl": "duqfl-prox",
    "adam-qfl": "fedprox-qfl",
    "fedprox-qfl": "adam-qfl",
    "duqfl-last": "duqfl-best",
    "duqfl-best": "duqfl-last",
}


def by_id(verdicts):
    return {verdict.claim.id: verdict for verdict in verdicts}


@pytest.fixture(scope="module")
def told_world():
    return world()


@pytest.fixture(scope="module")
def told(told_world):
    return by_id(judge(told_world, device_table(), SOUND))


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"claim {claim.id}")
def test_a_world_as_the_paper_tells_it_makes_the_claim_hold(told, claim):
    verdict = told[claim.id]
    assert verdict.verdict == "holds", [(r.part.text, r.verdict, r.estimate, r.p_corrected) for r in verdict.parts]
    for result in verdict.parts:
        if result.part.claimed != "always":
            assert result.low <= result.estimate <= result.high
            assert result.p <= result.p_corrected <= 0.05
            assert result.effect > 0
            assert not result.small


@pytest.fixture(scope="module")
def mirrored():
    broken = Theory(1e-2, tuple(-x for x in SOUND.descent))
    runs = world(MIRROR)
    for run in runs["baf"]:
        if run.config.method == "duqfl-drift":
            run.clients["displacement"] += 0.3
    return by_id(judge(runs, device_table("default-qfl", "duqfl-prox"), broken))


# The exchange of roles says nothing against three: Default-QFL is level (2), so is Adam-QFL (6), and validation stays
# noisier than test (8).
@pytest.mark.parametrize("number", [claim.id for claim in CLAIMS if claim.id not in ("2", "6", "8")])
def test_a_world_with_exchanged_roles_makes_the_claim_fail(mirrored, number):
    verdict = mirrored[number]
    assert verdict.verdict == "fails", [(r.part.text, r.verdict, r.estimate, r.p_corrected) for r in verdict.parts]
    assert verdict.deciding.verdict == "fails"


def test_methods_that_differ_by_chance_alone_neither_hold_nor_fail():
    same = {dataset: dict.fromkeys(values, (0.5, 0.5, 0.2, 0.1)) for dataset, values in TOLD.items()}
    runs = world(dict.fromkeys(MIRROR, "duqfl-drift"), same, seeds=6)
    parts = [r for verdict in judge(runs) for r in verdict.parts if r.part.track in runs]
    differences = [r for r in parts if len(r.part.methods) == 2 and r.part.bound == 0]
    assert len(differences) > 30
    assert {r.verdict for r in differences} <= {"undecided", "absent"}


def one(values_a, values_b, claimed="above", bound=0.0, margin=0.02):
    """Judge one part on planted final accuracies of two methods."""
    runs = [
        planted(method, seed, value)
        for method, values in (("duqfl-prox", values_a), ("default-qfl", values_b))
        for seed, value in values.items()
    ]
    measure = m.minus(m.final("global_accuracy"))
    part = Part("a - b", "baf", ("duqfl-prox", "default-qfl"), measure, claimed, bound, margin=margin)
    return judge({"baf": runs}, claims=[Claim("1", "text", "rule", (part,))])[0].parts[0]


def planted(method: str, seed: int, value: float) -> PlantedRun:
    run = planted_run("baf", method, seed)
    return dataclasses.replace(run, rounds=run.rounds.assign(global_accuracy=value))


def level(value, n=8, spread=0.01):
    return {seed: value + spread * np.sin(seed) for seed in range(n)}


FLAT = dict.fromkeys(range(8), 0.0)


@pytest.mark.parametrize(
    ("difference", "claimed", "bound", "verdict"),
    [
        (level(0.1), "above", 0.0, "holds"),
        (level(-0.1), "above", 0.0, "fails"),
        (level(0.1), "above", 0.1, "absent"),  # nothing worth claiming beyond the bound
        (level(0.1, spread=0.1), "above", 0.1, "undecided"),
        (level(-0.1), "below", 0.0, "holds"),
        (level(0.1), "below", 0.0, "fails"),
        (level(0.0), "below", 0.0, "absent"),
        (level(0.0), "within", 0.05, "holds"),
        (level(0.1), "within", 0.05, "fails"),
        (level(-0.1), "within", 0.05, "fails"),
        (level(0.05), "within", 0.05, "undecided"),
        (level(0.0, spread=0.2), "within", 0.05, "undecided"),
        (FLAT, "above", 0.0, "absent"),
        (FLAT, "within", 0.05, "holds"),
        (level(0.1, n=3), "above", 0.0, "undecided"),
        (level(0.1, n=2), "above", 0.0, "undecided"),
    ],
)
def test_a_part_is_decided_by_the_side_of_its_bound_that_the_data_show(difference, claimed, bound, verdict):
    assert one(difference, dict.fromkeys(difference, 0.0), claimed, bound).verdict == verdict


def test_an_effect_is_absent_only_below_the_margin_and_holds_where_its_sign_is_shown():
    crossing = {seed: 0.012 * (-1) ** seed + 0.003 for seed in range(10)}
    flat = dict.fromkeys(crossing, 0.0)
    assert one(crossing, flat, margin=0.02).verdict == "absent"
    assert one(crossing, flat, margin=0.005).verdict == "undecided"
    assert one({seed: -value for seed, value in crossing.items()}, flat, "below", margin=0.02).verdict == "absent"
    # A sign that is shown is said first; that the effect is smaller than the margin is said with it.
    tiny = level(0.01, spread=0.001)
    assert (one(tiny, FLAT).verdict, one(tiny, FLAT).small) == ("holds", True)
    assert (one(tiny, FLAT, "below").verdict, one(tiny, FLAT, "below").small) == ("fails", True)
    assert (one(tiny, FLAT, margin=0.005).verdict, one(tiny, FLAT, margin=0.005).small) == ("holds", False)


def test_no_difference_seen_is_not_closeness():
    wide = {seed: 0.3 * (-1) ** seed for seed in range(8)}
    assert one(wide, FLAT, "within", 0.05).verdict == "undecided"


def claim_of(claim_id, *columns, n=8):
    """Return a claim whose parts read given numbers by seed; a part is ``above 0``."""
    parts = tuple(
        Part(f"{claim_id} {i}", "baf", ("duqfl-prox",), lambda run, values=values: float(values[run.config.seed]))
        for i, values in enumerate(columns)
    )
    return Claim(claim_id, "text", "rule", parts)


def judged(*claims, n=8):
    return by_id(judge({"baf": [planted_run("baf", "duqfl-prox", seed) for seed in range(n)]}, claims=claims))


def test_other_claims_make_a_claim_harder_to_hold_and_its_own_parts_do_not():
    weak = 0.05 + 0.045 * np.cos(3 * np.arange(8))
    rng = np.random.default_rng(0)
    noise = [claim_of(str(k), rng.normal(0, 1, 8)) for k in range(2, 42)]
    sure = [1.0 + 0.01 * rng.normal(0, 1, 8) for _ in range(40)]
    alone = judged(claim_of("1", weak))["1"]
    crowded = judged(claim_of("1", weak), *noise)["1"]
    with_sure_parts = judged(claim_of("1", weak, *sure))["1"]
    assert (alone.verdict, crowded.verdict, with_sure_parts.verdict) == ("holds", "undecided", "holds")
    assert alone.p_corrected == pytest.approx(3 * alone.parts[0].p)  # three lists share the level
    assert with_sure_parts.p_corrected <= 2 * alone.p_corrected < crowded.p_corrected


def test_a_part_holds_by_itself_in_a_claim_that_does_not():
    rng = np.random.default_rng(1)
    found = judged(claim_of("1", 1 + 0.01 * rng.normal(0, 1, 10), 0.5 * rng.normal(0, 1, 10)), n=10)["1"]
    assert [result.verdict for result in found.parts] == ["holds", "undecided"]
    assert found.verdict == "undecided"
    assert found.p_corrected > 0.05


@pytest.mark.parametrize(
    ("second", "verdict"),
    [(-0.5, "fails"), (0.0, "absent"), (np.nan, "missing"), (0.5, "holds")],
)
def test_a_claim_is_as_good_as_its_worst_part(second, verdict):
    noise = 0.001 * np.random.default_rng(2).normal(0, 1, (2, 10))
    found = judged(claim_of("1", 0.5 + noise[0], second + noise[1]), n=10)["1"]
    assert found.verdict == verdict
    assert found.deciding.verdict == verdict


def test_a_claim_that_fails_in_one_part_and_is_absent_in_another_fails():
    noise = 0.001 * np.random.default_rng(2).normal(0, 1, (2, 10))
    found = judged(claim_of("1", -0.5 + noise[0], noise[1]), n=10)["1"]
    assert [result.verdict for result in found.parts] == ["fails", "absent"]
    assert found.verdict == "fails"


def test_within_is_not_corrected_for_its_own_two_ends():
    close = {seed: 0.02 + 0.01 * np.sin(seed) for seed in range(8)}
    result = one(close, FLAT, "within", 0.05)
    assert result.p_corrected == pytest.approx(3 * result.p)


# One run alone


def test_one_run_shows_a_claim_where_all_its_parts_lie_on_their_side_in_the_same_seed():
    above, also = np.array([1, 1, -1, -1, 1, 1, 1, 1.0]), np.array([1, -1, 1, -1, 1, 1, 1, 0.0])
    single = judged(claim_of("1", above, also))["1"].single
    assert (single.shown, single.seeds, single.share) == (4, 8, 0.5)  # 0 itself is not above 0
    also[0] = np.nan
    assert judged(claim_of("1", above, also))["1"].single == SingleRun(3, 7)


def test_one_run_is_read_with_each_part_s_own_bound():
    close = {0: 0.049, 1: -0.049, 2: 0.051, 3: -0.051}
    parts = {"1": Part("x", "baf", ("duqfl-prox",), m.final("global_accuracy"), "within", 0.05)}
    parts["2"] = dataclasses.replace(parts["1"], claimed="below", bound=0.0)
    parts["3"] = dataclasses.replace(parts["1"], claimed="always", bound=0.051)
    values = pd.Series(close)
    found = {key: single_run(Claim(key, "", "", (part,)), {key: values}) for key, part in parts.items()}
    assert {key: single.shown for key, single in found.items()} == {"1": 2, "2": 2, "3": 4}


def test_a_share_of_seeds_has_wilson_s_interval():
    for shown, n in ((0, 10), (5, 10), (10, 10), (37, 150)):
        reference = stats.binomtest(shown, n).proportion_ci(method="wilson")
        assert SingleRun(shown, n).interval == pytest.approx((reference.low, reference.high))
    assert np.isnan(SingleRun().share)
    assert np.isnan(SingleRun().interval).all()


def test_theory_points_have_no_single_run_and_told_claims_are_shown_by_most(told):
    assert told["T2"].single.seeds == told["T3"].single.seeds == 0
    assert told["T1"].single == SingleRun(8, 8)
    assert all(verdict.single.share > 0.5 for key, verdict in told.items() if key not in ("T2", "T3"))


# One number, two claims


def test_a_part_that_repeats_a_number_and_its_question_is_marked_and_no_other_part_is_one():
    """Random runs show which parts always have the same evidence: every such pair must be marked."""
    runs = world(dict.fromkeys(MIRROR, "duqfl-drift"), seeds=3)
    evidence = Evidence.gather(runs, device_table(), SOUND)
    parts = {label: part for claim in CLAIMS for label, part in zip(claim.labels, claim.parts, strict=True)}
    seen, repeated = {}, {}
    for label, part in parts.items():
        columns = [column.round(12).tolist() for column in supporting(part, evidence.numbers(part).values.to_numpy())]
        key = (str(columns), part.margin, part.claimed == "within")
        if key in seen:
            repeated[label] = seen[key]
        seen.setdefault(key, label)
    assert repeated == {label: part.same_as for label, part in parts.items() if part.same_as} == {"14e": "9c"}


def test_a_repetition_has_the_same_evidence_to_the_last_digit(mirrored):
    first, again = mirrored["9"].parts[2], mirrored["14"].parts[4]
    assert again.part.same_as == "9c"
    assert (again.verdict, again.p, again.p_corrected) == (first.verdict, first.p, first.p_corrected)
    assert (again.estimate, again.low, again.high) == (-first.estimate, -first.high, -first.low)


def test_a_missing_method_is_named_and_the_other_claims_are_judged(told_world):
    without = [run for run in told_world["genome"] if run.config.method != "adam-qfl"]
    found = by_id(judge({"genome": without}))
    assert found["10"].verdict == "missing"
    assert found["10"].deciding.note == "missing: no run of adam-qfl on genome, seeds 0, 1, 2, 3, 4, 5, 6, 7"
    assert [r.verdict for r in found["10"].parts] == ["holds", "holds", "missing"]
    assert found["20"].deciding.note == "missing: no results of track hardware"
    assert found["1"].deciding.note == "missing: no results of track baf"
    assert found["16"].verdict == "holds"


def test_with_no_results_at_all_every_claim_is_missing(tmp_path):
    found = judge({})
    assert {v.verdict for v in found} == {"missing"}
    assert len(claims_table(found)) == 23
    assert write_claims(found, tmp_path)


def test_missing_and_undefined_seeds_are_left_out_and_told():
    a, b = level(0.1, n=8), dict.fromkeys(range(1, 9), 0.0)
    a[3] = np.nan
    result = one(a, b)
    assert result.seeds == (1, 2, 4, 5, 6, 7)
    assert result.note == (
        "no run of duqfl-prox on baf for seeds 8; no run of default-qfl on baf for seeds 0; not defined for seeds 3"
    )


def test_one_paired_seed_is_missing_not_a_verdict():
    result = one({0: 0.5, 1: 0.5}, {1: 0.4, 2: 0.4})
    assert result.verdict == "missing"
    assert result.note.startswith("missing: 1 paired seeds of at least 2")


def test_mixtures_are_refused():
    stand_in, real = planted("duqfl-prox", 0, 0.5), planted("duqfl-prox", 1, 0.5)
    real.environment["data"]["source"] = "official"
    with pytest.raises(AnalysisError, match="different data source cannot be compared: 'stand-in' and 'official'"):
        judge({"baf": [stand_in, real]})
    with pytest.raises(AnalysisError, match="two runs of duqfl-prox with seed 0"):
        judge({"baf": [stand_in, stand_in]})
    with pytest.raises(AnalysisError, match="track 'genome' are of dataset 'baf'"):
        judge({"genome": [stand_in]})
    with pytest.raises(AnalysisError, match="unknown track 'genom' .did you mean 'genome'"):
        judge({"genom": [stand_in]})


def test_the_device_is_the_most_real_one_and_never_called_more():
    noisy, real = device_table(kind="noisy"), device_table(kind="hardware")
    both = pd.concat([noisy, real[real["kind"] == "hardware"]])
    for table, source in (
        (noisy, "simulated device (noisy)"),
        (device_table(), "simulated device (fake)"),
        (both, "real device"),
    ):
        assert by_id(judge({}, table))["20"].parts[0].source == source
    # One method alone on the real device: the comparison stays on the one that both have.
    partly = both[(both["kind"] != "hardware") | (both["method"] == "duqfl-prox")]
    assert by_id(judge({}, partly))["20"].parts[0].source == "simulated device (noisy)"
    with pytest.raises(AnalysisError, match="every method needs the kind exact"):
        judge({}, noisy[noisy["kind"] == "exact"])
    with pytest.raises(AnalysisError, match="lacks accuracy"):
        judge({}, noisy.drop(columns="accuracy"))


def test_a_claim_cannot_name_what_does_not_exist():
    with pytest.raises(AnalysisError, match="unknown metric 'global_acuracy' .did you mean 'global_accuracy'"):
        m.final("global_acuracy")
    for build in (m.peak, m.mean_of_rounds, m.late_unsteadiness, m.share_of_rounds_above, m.log_variation):
        with pytest.raises(AnalysisError, match="unknown metric 'nothing'"):
            build("nothing")
    measure = m.final("global_accuracy")
    with pytest.raises(AnalysisError, match="names 'duqfl-proxy' .did you mean 'duqfl-prox'"):
        Part("x", "baf", ("duqfl-proxy",), measure)
    with pytest.raises(AnalysisError, match="names 'bafs'"):
        Part("x", "bafs", ("duqfl-prox",), measure)
    with pytest.raises(AnalysisError, match="names 'over'"):
        Part("x", "baf", ("duqfl-prox",), measure, "over")


def test_the_paper_s_numbers_stand_beside_ours(told):
    paper = {r.part.text: r.part.paper for v in told.values() for r in v.parts}
    assert paper["DUQFL-Prox − FedProx-QFL, final global accuracy"] == pytest.approx(-0.025)  # genome, read last
    assert [r.part.paper for r in told["1"].parts] == pytest.approx([0.6504 - 0.5344, 0.5344 - 0.4592])
    assert [r.part.paper for r in told["5"].parts] == pytest.approx([0.0193 - 0.0958, 0.0193 - 0.1910])


def test_a_claim_is_conditional_where_the_protocol_search_used_its_numbers():
    """The search's numbers are last-round values by track, metric and method; a claim that tests one is marked."""
    marked = {claim.id for claim in CLAIMS if claim.conditional}
    assert marked == {"1", "3", "4", "5", "9", "10", "11", "14", "16"}
    used = set(paper_numbers(("baf", "genome")).index)
    for claim in CLAIMS:
        for part in claim.parts:
            assert part.conditional == any((part.track, part.column, method) in used for method in part.methods)
    parts = {label: part for claim in CLAIMS for label, part in zip(claim.labels, claim.parts, strict=True)}
    assert not any(parts[label].conditional for label in ("14a", "16g", "13a", "2a", "12a"))
    assert [label for label, part in parts.items() if label.startswith("14") and part.conditional] == ["14d", "14e"]


def test_a_steady_trend_is_steady():
    assert m.unsteadiness(np.linspace(0.2, 0.9, 8)) == pytest.approx(0, abs=1e-12)
    assert m.unsteadiness(np.array([0.5, 0.6, 0.5, 0.6])) == pytest.approx(np.std([0.1, -0.1, 0.1], ddof=1))
    assert np.isnan(m.unsteadiness(np.array([0.5, 0.6])))


def test_measures_read_the_rounds_they_name():
    values = [np.nan, 0.1, 0.2, 0.9, 0.8, 0.4, 0.3]  # round 0 is not training's result
    table = pd.DataFrame({"round": range(7), "global_accuracy": values})
    run = dataclasses.replace(planted_run("baf", "duqfl-prox", 0), rounds=table.sample(frac=1, random_state=0))
    assert m.final("global_accuracy")(run) == 0.3
    assert m.peak("global_accuracy")(run) == 0.9
    assert m.mean_of_rounds("global_accuracy")(run) == pytest.approx(0.45)
    assert m.third_minus_third("global_accuracy", m.MIDDLE, m.LATE)(run) == pytest.approx(0.85 - 0.35)
    assert m.third_minus_third("global_accuracy", m.MIDDLE, m.EARLY)(run) == pytest.approx(0.85 - 0.15)
    assert m.late_unsteadiness("global_accuracy")(run) == pytest.approx(np.std([-0.1, -0.4, -0.1], ddof=1))


def test_a_rate_held_at_its_bound_is_not_inside():
    run = planted_run("baf", "duqfl-prox", 0)
    run.clients.loc[run.clients["unfold"] == 1, "eta"] = run.config.eta_bounds[1]
    assert m.share_inside_bounds(run) == pytest.approx(0.8)


def test_tables_and_files_tell_the_same(told, tmp_path):
    verdicts = list(told.values())
    table, parts = claims_table(verdicts), parts_table(verdicts)
    assert list(table["id"]) == [*map(str, range(1, 21)), "T1", "T2", "T3"]
    assert list(parts.loc[parts["id"] == "1", "part"]) == ["1a", "1b"]
    assert table.loc[0, "seeds"] == 8
    assert table.loc[0, "source"] == "baf pca: stand-in data, exact"
    csv, parts_csv, _, markdown = write_claims(verdicts, tmp_path / "new")
    assert list(pd.read_csv(csv)["verdict"]) == list(table["verdict"])
    assert len(pd.read_csv(parts_csv)) == len(parts) == sum(len(claim.parts) for claim in CLAIMS)
    text = markdown.read_text(encoding="utf-8")
    assert text.startswith("23 holds. ")
    summary, every = (
        [line.replace("\\|", "") for line in half.splitlines() if line.startswith("| ")][2:]
        for half in text.split("## All parts")
    )
    assert (len(summary), len(every)) == (23, len(parts))
    assert {line.count("|") for line in summary} == {15}
    assert {line.count("|") for line in every} == {11}


def test_the_same_seed_gives_the_same_verdicts(told_world):
    runs = {"baf": [run for run in told_world["baf"] if run.config.seed < 4]}
    one, two = (parts_table(judge(runs, seed=7)) for _ in range(2))
    pd.testing.assert_frame_equal(one, two)


def test_the_forest_plot_has_every_part_once_with_its_verdict(mirrored):
    parts = parts_table(mirrored.values())
    drawn = [part for page in PAGES.values() for rows in page.values() for part in rows.of(parts)["part"]]
    assert sorted(drawn) == sorted(parts["part"])
    labels, words = [], []
    for sheet in claim_sheets(parts, ("data: planted", "engine: one (shots)", "8 seeds")):
        figure = sheet.draw()
        figure.draw_without_rendering()
        labels += [label.get_text().split()[0] for axis in figure.axes for label in axis.get_yticklabels()]
        words += [text.get_text().split(",")[0].removesuffix(" (small)") for axis in figure.axes for text in axis.texts]
        assert figure.get_figwidth() <= 8.3
        assert "one (shots)" not in figure.get_supxlabel()  # the devices and the theory have other engines and seeds
        for axis in figure.axes:
            rows = [label.get_text() for label in axis.get_yticklabels()]
            differ = all("−" in row or "gap" in row for row in rows)
            assert axis.get_xlabel().startswith("difference") == differ, axis.get_xlabel()
            assert not any(row.endswith(", baf") for row in rows)
        titles = [axis.get_title(loc="left") for axis in figure.axes]
        assert len(set(titles)) == len(titles)
        assert all(title.startswith(("BAF", "Genome")) for title in titles)
        for title, rows in zip(titles, sheet.panels.values(), strict=True):
            for count in set(rows.keywords["rows"]["seeds"]) - {0, 1}:
                assert f"{count:.0f} seeds" in title
    assert labels == drawn
    assert sorted(words) == sorted(parts["verdict"])
    shown = [style for name, style in VERDICT_STYLE.items() if name != "missing"]
    assert len({colour for colour, _ in shown}) == len({marker for _, marker in shown}) == 4


def test_the_theory_checks_pass_on_the_method_and_fail_on_a_wrong_penalty(monkeypatch):
    found = check_theory(seeds=1, draws=8)
    assert found.gradient_error < 1e-6
    assert min(found.descent) > 0
    federation = make_federation(SMALL, load_splits(SMALL))
    # A penalty without its half: the gradient no longer belongs to the objective.
    monkeypatch.setattr(
        "qfl_core.algorithm.client.Objective.penalty",
        lambda self, theta: 0.1 * ((theta - self.anchor) ** 2).sum(axis=2),
    )
    assert proximal_gradient_error(federation) > 1e-2


def real_tables(verdicts, folder):
    """Write the tables of claims as those of real samples."""
    write_claims(list(verdicts), folder / "real")
    (folder / "real" / "claims.md").unlink()


def test_real_samples_stand_beside_the_stand_ins(told, mirrored, tmp_path):
    assert read_real(tmp_path) is None
    real_tables(mirrored.values(), tmp_path)
    write_claims(list(told.values()), tmp_path)
    text = (tmp_path / "claims.md").read_text(encoding="utf-8")
    first = next(line for line in text.splitlines() if line.startswith("| 1 |"))
    assert [cell.strip() for cell in first.split("|")][3:5] == ["**holds**†", "fails"]
    row = parts_table(list(mirrored.values())).set_index("part").loc["1a"]
    line = next(line for line in text.splitlines() if line.startswith("| 1a |"))
    assert f"{row['estimate']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}] | fails |" in line
    assert "On the real samples: " in text
    real = read_real(tmp_path)
    assert real.verdict("1") == "fails"
    assert (real.verdict("99"), real.part_verdict("99a"), real.shown("99a")) == ("", "", "")
    plain, sheet = (claim_sheets(parts_table(list(told.values())), ("planted",), known)[0] for known in (None, real))
    note = "thin lines: real samples"
    assert note in sheet.draw().get_supxlabel()
    assert note not in plain.draw().get_supxlabel()
    lines = [line.get_xdata() for axis in sheet.draw().axes for line in axis.lines]
    assert any(np.allclose(x, [row["low"], row["high"]], atol=1e-6) for x in lines if len(x) == 2)
    plt.close("all")


def test_a_damaged_table_of_real_samples_is_told(told, tmp_path):
    real_tables(told.values(), tmp_path)
    path = tmp_path / "real" / "claim_parts.csv"
    pd.read_csv(path).drop(columns="low").to_csv(path, index=False)
    with pytest.raises(AnalysisError, match="real/claim_parts.csv lacks low; it has id, part"):
        read_real(tmp_path)


def test_the_numbers_behind_the_verdicts_are_written(told, tmp_path):
    write_claims(list(told.values()), tmp_path)
    values = pd.read_csv(tmp_path / "claim_values.csv", index_col="seed")
    parts = parts_table(list(told.values())).set_index("part")
    tested = parts[(parts["track"] != "theory") & (parts["claimed"] != "always")]
    assert list(values.columns) == list(tested.index)
    for label in values:
        assert values[label].mean() == pytest.approx(parts.loc[label, "estimate"], rel=1e-4, abs=1e-6)


def test_a_sentence_tells_what_one_run_alone_would_show(told, mirrored):
    def said(verdicts):
        return claims_markdown(list(verdicts.values())).splitlines()[0]

    holding = [v for v in told.values() if v.single.seeds and v.verdict == "holds"]
    steady = sum(v.single.share > 0.8 for v in holding)
    assert f"more than 80% of the seeds for {steady} of the {len(holding)} claims on runs that hold" in said(told)
    lucky = sum(v.single.share for v in mirrored.values() if v.single.seeds and v.verdict != "holds")
    assert f"one run shows {lucky:.1f} on average by luck" in said(mirrored)
