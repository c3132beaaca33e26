"""Training the controller offline: varied tasks, ranks, leave-one-dataset-out, and the same bytes after a kill."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from planted import federation, small

from qfl_core.algorithm.controller import FEATURES, initial_phi
from qfl_core.base.errors import ConfigError
from qfl_core.config import load_profile
from qfl_core.extras import pretrained
from qfl_core.runs.experiment import train
from qfl_core.runs.identity import run_identity
from qfl_core.runs.journal import Journal
from qfl_core.studies.metatrain.command import file_text, starting_losses, trained
from qfl_core.studies.metatrain.curve import balanced, curve_means
from qfl_core.studies.metatrain.search import Plan, mean_ranks, search
from qfl_core.studies.metatrain.tasks import FAMILIES, Task, tasks_of

PROFILE = load_profile("smoke")
CLUSTERS = next(family for family in FAMILIES if family.name == "clusters-z")
BEST = np.vstack([[np.log(0.4), -0.5, 0, 0, 0, 0, 0], [np.log(0.08), 0, 0, 0, 0, 0, 0]])


def bowl(tasks, controllers):
    """Return losses with their minimum at BEST; their size and level differ from task to task."""
    return [
        [(1 + task.seed % 7) * float(((phi - BEST) ** 2).sum()) + task.seed % 5 for phi in controllers]
        for task in tasks
    ]


# The search


def test_the_search_finds_the_best_controller_from_the_papers_rates(tmp_path):
    plan = Plan(generations=120, tasks=2)
    phi = search([CLUSTERS], plan, bowl, Journal(tmp_path / "a.jsonl", "origin"))
    assert np.abs(phi - BEST).max() < 0.05
    assert np.abs(initial_phi(0.13, 0.13) - BEST).max() > 1


def test_a_search_that_was_killed_ends_in_the_same_numbers(tmp_path):
    plan, whole = Plan(generations=8, tasks=2), Journal(tmp_path / "whole.jsonl", "origin")
    expected = search([CLUSTERS], plan, bowl, whole)

    def dying(tasks, controllers):
        if tasks == tasks_of([CLUSTERS], plan.seed, 5, plan.tasks):
            raise KeyboardInterrupt
        return bowl(tasks, controllers)

    killed = tmp_path / "killed.jsonl"
    with pytest.raises(KeyboardInterrupt):
        search([CLUSTERS], plan, dying, Journal(killed, "origin"))
    with killed.open("ab") as file:
        file.write(b'{"half a line')
    journal = Journal(killed, "origin")
    assert journal.mend()
    asked = []

    def counted(tasks, controllers):
        asked.append(len(tasks))
        return bowl(tasks, controllers)

    assert np.array_equal(search([CLUSTERS], plan, counted, journal), expected)
    assert len(asked) == 3  # generations 5, 6 and 7
    assert killed.read_bytes() == whole.path.read_bytes()


def test_a_search_shows_how_far_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("QFL_PROGRESS", "on")
    search([CLUSTERS], Plan(generations=3, tasks=1), bowl, Journal(tmp_path / "all.jsonl", "origin"))
    assert "all: 100%" in capsys.readouterr().err


def test_the_search_leaves_numpys_global_generator_alone(tmp_path):
    np.random.seed(3)  # noqa: NPY002
    expected = np.random.get_state()[1].copy()  # noqa: NPY002
    search([CLUSTERS], Plan(generations=2, tasks=1), bowl, Journal(tmp_path / "a.jsonl", "origin"))
    assert np.array_equal(np.random.get_state()[1], expected)  # noqa: NPY002


def test_all_processors_judge_the_same_controllers(tmp_path, monkeypatch):
    """Linear algebra that differs in the last digits, as on another processor, changes nothing."""
    plan, eigh, judged = Plan(generations=30, tasks=2), np.linalg.eigh, {"here": [], "there": []}

    def noisy(matrix):
        values, vectors = eigh(matrix)
        return values * (1 + 1e-14), vectors * (1 - 1e-14)

    for where in judged:

        def evaluate(tasks, controllers, where=where):
            judged[where].append(np.array(controllers))
            return bowl(tasks, controllers)

        search([CLUSTERS], plan, evaluate, Journal(tmp_path / f"{where}.jsonl", "origin"))
        monkeypatch.setattr(np.linalg, "eigh", noisy)
    assert np.array_equal(judged["here"], judged["there"])


def test_ranks_count_every_task_alike_and_ties_share():
    losses = np.array([[3.0, 1.0, 2.0], [3000.0, 1000.0, np.inf], [0.5, 0.5, 0.1]])
    assert np.allclose(mean_ranks(losses), [(2 + 1 + 1.5) / 3, (0 + 0 + 1.5) / 3, (1 + 2 + 0) / 3])


# The tasks


def test_every_generation_has_federations_of_its_own_and_all_families_take_turns():
    tasks = [task for generation in range(5) for task in tasks_of(FAMILIES, 0, generation, 8)]
    assert len({task.seed for task in tasks}) == 40
    counts = {family.name: sum(task.family is family for task in tasks) for family in FAMILIES}
    assert set(counts.values()) == {4}
    assert min(task.seed for task in tasks) > 10_000  # none is a seed of a figure or a study


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_task_is_decided_by_its_seed_and_has_data_that_fit(family):
    configs = [Task(family, seed).config(PROFILE, rounds=2) for seed in range(1_000_000, 1_000_012)]
    assert configs[0] == Task(family, 1_000_000).config(PROFILE, rounds=2)
    for name in ("clients", "skew_ratio", "shots", "loss"):
        assert len({getattr(config, name) for config in configs}) > 1
    if family.track is None:
        assert {config.features for config in configs} <= set(range(2, family.most_features + 1))
        splits = Task(family, 1_000_000).splits(configs[0])
        assert splits.train.X.shape == (configs[0].train_size, configs[0].features)
        assert set(np.unique(splits.val.y)) == {0, 1}
        assert splits.digest == Task(family, 1_000_000).splits(configs[0]).digest


def test_one_family_trains_with_the_noise_of_a_device():
    """Its losses are those of the noisy engine, and it stays at sizes where that engine is fast."""
    (noisy,) = (family for family in FAMILIES if "engine" in family.settings)
    task, rates = Task(noisy, 1_000_000), [initial_phi(0.3, 0.1)]
    assert noisy.most_features == 4
    quiet = replace(noisy, settings={**noisy.settings, "engine": "statevector"})
    assert curve_means(task, rates, "smoke", 1) != curve_means(Task(quiet, task.seed), rates, "smoke", 1)


def test_a_controller_is_judged_by_the_mean_of_its_balanced_validation_losses_alone(monkeypatch):
    task = Task(CLUSTERS, 1_000_003)
    controllers = [initial_phi(1e-3, 0.1), initial_phi(0.3, 0.1)]
    losses = curve_means(task, controllers, "smoke", rounds=3)
    assert losses[1] < losses[0]  # who hardly moves learns nothing
    assert curve_means(task, controllers[1:], "smoke", rounds=3) == losses[1:]
    monkeypatch.setattr("qfl_core.algorithm.client._test", None)  # test rows are never measured
    assert curve_means(task, controllers, "smoke", rounds=3) == losses
    assert balanced(np.array([1.0, 2.0, 3.0, 10.0]), np.array([0, 0, 0, 1])) == 6.0


# The file


def test_the_file_holds_a_controller_that_has_never_seen_each_dataset(tmp_path, monkeypatch):
    seen = {}

    def spied(families, plan, evaluate, journal):
        phi = np.full((2, len(FEATURES)), len(seen) + 0.12345)
        seen[len(seen)] = {family.data for family in families}
        return phi

    monkeypatch.setattr("qfl_core.studies.metatrain.command.search", spied)
    found = trained(Plan(generations=1), "smoke", tmp_path)
    names = ["all", "without genome", "without baf", "without breast-cancer"]
    assert list(found) == names
    everything = {family.data for family in FAMILIES}
    assert list(seen.values()) == [everything, *(everything - {name.removeprefix("without ")} for name in names[1:])]
    content = json.loads(file_text(found, Plan(generations=1), "smoke", [CLUSTERS]))
    assert content["columns"] == list(FEATURES)
    assert content["phi"]["without baf"] == np.full((2, 7), 2.123).tolist()
    assert content["provenance"]["plan"]["generations"] == 1


def test_a_journal_of_another_search_is_not_continued(tmp_path, monkeypatch):
    def asked(family=CLUSTERS):
        plan = Plan(generations=1, tasks=1, rounds=1)
        trained(plan, "smoke", tmp_path, families=[family])
        return len(list(tmp_path.iterdir()))

    assert asked() == 1
    assert asked() == 1  # the same search reads its journal
    assert asked(replace(CLUSTERS, settings={**CLUSTERS.settings, "chunk": 31})) == 2
    monkeypatch.setattr("qfl_core.studies.metatrain.search.importlib.metadata.version", lambda name: "another library")
    assert asked() == 3
    monkeypatch.setattr("qfl_core.studies.metatrain.search.package_digest", lambda parts: "another search")
    assert asked() == 4


@pytest.mark.outside
def test_training_again_writes_the_same_bytes_with_one_process_or_two(tmp_path):
    plan = Plan(generations=2, tasks=2, rounds=1)
    families = [family for family in FAMILIES if family.data in ("wine", "breast-cancer")]
    texts = [
        file_text(trained(plan, "smoke", tmp_path / name, jobs, families), plan, "smoke", families)
        for name, jobs in (("one", 1), ("again", 1), ("two", 2))
    ]
    assert len(set(texts)) == 1
    moved = np.array(json.loads(texts[0])["phi"]["all"]) - np.round(initial_phi(0.13, 0.13), 3)
    assert np.abs(moved).max() > 0.01  # something was learnt


def test_the_shipped_controller_was_trained_on_what_the_package_trains_on_today():
    """After a change of a track or of the training, `make metatrain` has to run again."""
    provenance = pretrained.read()["provenance"]
    assert provenance["plan"] == asdict(Plan())
    assert provenance["families"] == {family.name: family.data for family in FAMILIES}
    assert provenance["starting_losses"] == starting_losses(Plan(), provenance["profile"])


@pytest.fixture
def file(monkeypatch):
    phi = {name: np.full((2, 7), level).tolist() for name, level in (("all", -1.0), ("without baf", -2.0))}
    monkeypatch.setattr(pretrained, "content", lambda: json.dumps({"phi": phi}).encode())
    return phi


def test_a_run_starts_from_the_controller_that_has_never_seen_its_dataset(file):
    settings = {"controller": "pretrained", "controller_features": "standardised", "outer_period": 0}
    records = list(train(federation(**settings)))  # the planted federation is called baf
    assert all(record["state"]["phi"]["controller"] == file["without baf"] for record in records)
    other = small(dataset="breast-cancer", train_size=160, val_size=40, test_size=30, **settings)
    assert pretrained.pretrained_phi(other).tolist() == file["all"]


def test_the_file_is_part_of_the_identity_of_runs_that_start_from_it(file, monkeypatch):
    mine = small(controller="pretrained", controller_features="standardised")
    plain = small(controller_features="standardised")
    before = run_identity(mine, "data"), run_identity(plain, "data")
    monkeypatch.setattr(pretrained, "content", lambda: b"other")
    assert run_identity(mine, "data") != before[0]
    assert run_identity(plain, "data") == before[1]


def test_features_as_they_are_do_not_fit():
    with pytest.raises(ConfigError, match="'standardised' for controller='pretrained'"):
        small(controller="pretrained")


def test_a_package_without_a_trained_controller_says_so(monkeypatch):
    monkeypatch.setattr(pretrained, "FILE", "nothing.json")
    pretrained.content.cache_clear()
    with pytest.raises(ConfigError, match="no trained controller yet; make metatrain trains one"):
        pretrained.content()
    pretrained.content.cache_clear()
