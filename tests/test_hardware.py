"""The hardware pipeline without a service: subsets, ledger, noise, mitigation, local mode, replay, command line."""

import json
import shutil

import matplotlib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import planted_splits, planted_study, small
from qiskit_aer.noise import NoiseModel
from qiskit_ibm_runtime.fake_provider import FakeManilaV2

from qfl_core.__main__ import main
from qfl_core.base.errors import ConfigError, HardwareError
from qfl_core.engines import make_engine
from qfl_core.engines.density import DensityEngine
from qfl_core.engines.noise import device_noise
from qfl_core.engines.qnn import QNN
from qfl_core.figures import apply_style
from qfl_core.figures import hardware as figures
from qfl_core.figures.hardware import CURVES
from qfl_core.hardware import HardwareConfig, dry_run, replay, validate
from qfl_core.hardware.checkpoints import load_checkpoints, stratified, subset
from qfl_core.hardware.curves import WORDS, scores, with_interval
from qfl_core.hardware.device import compile_for, fake_backend, fake_twin
from qfl_core.hardware.jobs import count_outcomes
from qfl_core.hardware.ledger import Ledger, LedgerNotice
from qfl_core.hardware.mitigation import correct, measured_confusion, model_confusion, odd_share
from qfl_core.hardware.store import folders
from qfl_core.runs import RunResult, run_experiment
from qfl_core.studies.mitigation import mitigation_table
from qfl_core.studies.noise import checkpoint_table, noise_grid, steadiness

matplotlib.use("Agg")
METHODS = ("duqfl-prox", "default-qfl")
LOCAL = HardwareConfig(
    backend="fake_manila", checkpoints=3, samples=16, local_samples=5, shots=512, noise_scales=(0.0, 1.0, 4.0)
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return runs of both methods and two seeds, two features, on planted data."""
    folder = tmp_path_factory.mktemp("runs")
    return [
        run_experiment(small(method=method, seed=seed, source="stand-in"), folder, splits=planted_splits())
        for seed in (0, 1)
        for method in METHODS
    ]


@pytest.fixture(autouse=True)
def planted(monkeypatch):
    for module in ("hardware.plan", "studies.noise"):
        monkeypatch.setattr(f"qfl_core.{module}.load_splits", lambda config: planted_splits())


@pytest.fixture(scope="module")
def local(runs, tmp_path_factory):
    """Return the results folder of a validation in local mode, and the validation."""
    root = tmp_path_factory.mktemp("local")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("qfl_core.hardware.plan.load_splits", lambda config: planted_splits())
        return root, validate(planted_study(runs[:2], root), LOCAL)


# Settings and inputs


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shot": 1}, "unknown hardware setting 'shot' .did you mean 'shots'"),
        ({"shots": 0}, "shots=0 is not valid"),
        ({"local_samples": 300}, "local_samples=300 is not valid: expected at most samples=200"),
        ({"mitigation": ["readuot"]}, "did you mean 'readout'"),
        ({"mitigation": "readout"}, "expected a list of readout"),
        ({"methods": ["duqfl-prox", "duqfl-prox"]}, "each once"),
        ({"backend": ""}, "expected a backend's name"),
        ({"max_seconds": -1}, "max_seconds=-1 is not valid"),
    ],
)
def test_bad_settings_are_refused_with_the_value_and_the_choices(given, message):
    with pytest.raises(ConfigError, match=message):
        HardwareConfig.from_dict(given)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 400), st.floats(0.0, 0.5), st.integers(0, 5), st.data())
def test_a_subset_keeps_the_label_mix_and_both_labels(size, share, seed, data):
    y = (np.arange(size) < max(1, int(share * size))).astype(int)
    count = data.draw(st.integers(2, size))
    rows = stratified(y, count, seed)
    assert len(np.unique(rows)) == len(rows) == count
    ones = y[rows].sum()
    assert 1 <= ones < count or size == 2
    assert abs(ones - count * y.mean()) <= 1
    assert np.array_equal(rows, stratified(y, count, seed))


def test_a_subset_is_named_by_its_seed_and_no_larger_than_the_part():
    part = planted_splits(test=30).test
    assert not np.array_equal(subset(part, 10, 0).origin, subset(part, 10, 1).origin)
    assert len(subset(part, 99, 0)) == 30


def test_checkpoints_are_spread_over_the_rounds_with_both_ends(runs):
    found = load_checkpoints(runs[0], 2)
    assert found.rounds.tolist() == [0, 2]
    assert np.array_equal(found.weights, runs[0].weights[[0, 2]])


@pytest.mark.filterwarnings("ignore::qfl_core.base.errors.ChangedResults")
def test_checkpoints_of_another_width_or_damaged_are_refused(runs, tmp_path):
    with pytest.raises(HardwareError, match=r"have shape \(3, 8\), but the circuit of 3 qubits takes 12 weights"):
        load_checkpoints(runs[0], 3, QNN(3))
    broken = RunResult(tmp_path / "run")
    shutil.copytree(runs[0].path, broken.path)
    (broken.path / "global_params.npz").write_bytes(b"not a zip file")
    with pytest.raises(HardwareError, match="the checkpoints of run run cannot be read"):
        load_checkpoints(broken, 3)


def test_a_backend_with_too_few_qubits_is_refused():
    with pytest.raises(HardwareError, match="fake_manila has 5 qubits, the circuit needs 6"):
        compile_for(QNN(6), fake_backend("fake_manila"))


# Ledger


@pytest.fixture
def ledger(tmp_path):
    book = Ledger(tmp_path / "ledger.jsonl")
    book.append("submitting", job="a", attempt=1)
    book.append("submitted", job="a", attempt=1, job_id="x1")
    book.append("failed", job="a", attempt=1, reason="warm")
    return book


def test_a_job_s_record_is_its_last_attempt(ledger):
    assert ledger.jobs()["a"].state == "failed"
    ledger.append("submitted", job="a", attempt=2, job_id="x2")
    record = ledger.jobs()["a"]
    assert (record.state, record.attempt, record.job_id) == ("submitted", 2, "x2")
    assert "reason" not in record.facts


def test_a_cut_off_last_line_is_set_aside_with_a_notice(ledger):
    text = ledger.path.read_bytes()
    ledger.path.write_bytes(text[:-20])
    with pytest.warns(LedgerNotice, match="was cut off and is now in ledger.cut"):
        assert len(ledger.events()) == 2
    assert len(ledger.events()) == 2
    assert b"warm" in ledger.path.with_suffix(".cut").read_bytes()
    ledger.append("submitted", job="a", attempt=2, job_id="x2")
    assert len(ledger.events()) == 3


@pytest.mark.parametrize("change", ["edit", "remove", "swap", "append", "garbage"])
def test_an_edited_ledger_is_refused(ledger, change):
    lines = ledger.path.read_text().splitlines(keepends=True)
    changed = {
        "edit": [lines[0], lines[1].replace("x1", "y1"), lines[2]],
        "remove": [lines[0], lines[2]],
        "swap": [lines[1], lines[0], lines[2]],
        "append": [*lines, json.dumps({"event": "finished", "kind": "hardware"}) + "\n"],
        "garbage": [lines[0], "???\n", *lines[1:]],
    }[change]
    ledger.path.write_text("".join(changed))
    with pytest.raises(HardwareError, match="was edited at line"):
        ledger.events()
    with pytest.raises(HardwareError, match="was edited at line"):
        ledger.append("finished", job="a", attempt=1)


# Noise


def test_the_noise_of_used_qubits_gives_what_the_whole_device_s_gives():
    backend, qnn = FakeManilaV2(), QNN(2)
    ours = DensityEngine(qnn, backend=backend)
    whole = DensityEngine(
        qnn, backend=backend, noise_model=NoiseModel.from_backend(backend), transpiled=ours.transpiled
    )
    X, theta = np.array([[0.3, 1.2], [2.0, 0.1]]), np.linspace(-2, 2, 8)
    expected = whole.probabilities(whole.encode(X), theta)
    assert np.allclose(ours.probabilities(ours.encode(X), theta), expected, rtol=0, atol=1e-12)


def test_noise_scales_from_a_perfect_device_towards_a_fair_coin():
    backend, qnn = FakeManilaV2(), QNN(2)
    X, theta = np.random.default_rng(0).uniform(0, np.pi, (20, 2)), np.linspace(-2, 2, 8)
    exact = make_engine("statevector", qnn)
    contrast = []
    for scale in (0.0, 0.5, 1.0, 4.0):
        engine = DensityEngine(qnn, backend=backend, noise_scale=scale)
        p = engine.probabilities(engine.encode(X), theta)
        contrast.append(float(np.abs(p - 0.5).mean()))
        if scale == 0:
            assert np.allclose(p, exact.probabilities(exact.encode(X), theta), atol=1e-9)
    assert contrast == sorted(contrast, reverse=True)
    assert contrast[-1] < 0.8 * contrast[0]


def test_encodings_of_different_noise_are_not_mixed_up():
    backend = FakeManilaV2()
    engines = [DensityEngine(QNN(2), backend=backend, noise_scale=scale) for scale in (1.0, 2.0)]
    encoded = engines[0].encode(np.zeros((1, 2)))
    with pytest.raises(ValueError, match="another model or engine"):
        engines[1].probabilities(encoded, np.zeros(8))


@pytest.mark.parametrize("scale", [-1, float("nan")])
def test_a_negative_noise_scale_is_refused(scale):
    with pytest.raises(ValueError, match="scale must be"):
        device_noise(FakeManilaV2(), (0,), scale)


# Readout correction


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(0, 10_000))
def test_readout_correction_undoes_planted_flips(qubits, seed):
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.ones(2**qubits), size=3)
    flips = rng.uniform(0, 0.2, (qubits, 2))
    confusion = np.array([[[1 - a, b], [a, 1 - b]] for a, b in flips])
    joint = np.ones((1, 1))
    for matrix in confusion:
        joint = np.kron(matrix, joint)
    measured = truth @ joint.T
    assert np.allclose(correct(measured, confusion), truth, atol=1e-9)
    prepared = np.eye(2**qubits)[[0, -1]] @ joint.T
    assert np.allclose(measured_confusion(*prepared), confusion)


def test_corrected_counts_are_a_distribution_although_the_inverse_is_negative():
    confusion = np.array([[[0.8, 0.2], [0.2, 0.8]]])
    assert np.allclose(correct(np.array([[100, 0]]), confusion), [[1, 0]])


def test_a_qubit_that_reads_at_random_cannot_be_corrected():
    with pytest.raises(HardwareError, match="qubit 0 is read out at random"):
        correct(np.array([1, 1]), np.full((1, 2, 2), 0.5))


def test_the_noise_model_s_confusion_is_that_of_the_measured_qubits_in_order():
    backend = FakeManilaV2()
    device = compile_for(QNN(2), backend)
    found = model_confusion(device.noise_model, device.layout)
    for matrix, qubit in zip(found, device.layout, strict=True):
        error = backend.target["measure"][(qubit,)].error
        assert np.allclose(matrix, [[1 - error, error], [error, 1 - error]])


def test_parity_is_read_from_counts():
    assert odd_share(np.array([[1, 2, 3, 4]])) == pytest.approx([0.5])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(0, 1000))
def test_packed_bits_are_counted_as_numbers(qubits, seed):
    outcomes = np.random.default_rng(seed).integers(0, 2**qubits, (2, 30))
    size = -(-qubits // 8)
    packed = np.array([[list(int(v).to_bytes(size, "big")) for v in row] for row in outcomes], dtype=np.uint8)
    counts = count_outcomes(packed, 2**qubits)
    assert np.array_equal(counts, [np.bincount(row, minlength=2**qubits) for row in outcomes])


# Scores


def test_scores_are_accuracy_roc_auc_and_mean_distance():
    y, p = np.array([0, 0, 1, 1]), np.array([0.2, 0.6, 0.5, 0.9])
    found = scores(y, p, np.full(4, 0.5))
    assert {k: round(float(v), 6) for k, v in found.items()} == {"accuracy": 0.75, "roc_auc": 0.75, "tvd": 0.2}
    assert np.isnan(scores(np.zeros(2), np.array([0.1, 0.2]), np.zeros(2))["roc_auc"])


def test_intervals_hold_the_score_and_shrink_with_shots():
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, 50), rng.uniform(0.3, 0.7, 50)
    widths = []
    for shots in (16, 4096):
        again = rng.binomial(shots, np.broadcast_to(p, (200, 50))) / shots
        row = with_interval(y, p, again, p)
        assert row["accuracy_low"] <= row["accuracy"] <= row["accuracy_high"]
        widths.append(row["accuracy_high"] - row["accuracy_low"])
    assert widths[1] < widths[0]


# Local mode of the real client


def test_local_mode_gives_all_curves_with_the_kind_that_ran(local):
    _, validation = local
    assert validation.kinds == {
        "all": "exact",
        "noiseless": "exact",
        "shots": "shots",
        "noise": "noisy",
        "execution": "fake",
        "corrected": "fake",
    }
    assert set(validation.workload["kind"]) == {"fake"}
    assert len(validation.curves) == 2 * 3 * 6
    samples = validation.curves.groupby("curve")["samples"].unique().map(list)
    assert samples.pop("all") == [16]
    assert all(found == [5] for found in samples)


def test_the_table_calls_curves_what_the_legend_calls_them(local):
    table = local[1].table()
    assert set(table["curve"]) == set(WORDS.values())
    assert all(WORDS[curve].startswith(label) for curve, (label, *_) in CURVES.items())


def test_local_mode_agrees_with_the_density_engine(runs, local):
    """Both simulate the same calibration on the same circuit: what differs is the draw of the shots."""
    root, _ = local
    folder = folders(root)[-1]
    inputs, plan = folder.inputs(), folder.plan()
    device = compile_for(QNN(2), fake_backend("fake_manila"))
    engine = device.density()
    assert list(device.layout) == plan["layout"]
    for method in METHODS:
        record = folder.ledger.jobs()[method]
        counts = folder.counts(record.facts["counts"], record.facts["counts_sha256"])
        measured = np.stack([odd_share(c) for c in counts])
        expected = engine.probabilities(engine.encode(inputs["X"]), inputs[f"{method}/weights"])
        z = (measured - expected) / np.sqrt(expected * (1 - expected) / LOCAL.shots)
        assert np.abs(z).max() < 5
        assert 0.4 < z.std() < 1.8


def test_replay_needs_no_account_no_network_and_no_engine(local, tmp_path, monkeypatch):
    root, validation = local
    shutil.copytree(root / "hardware", tmp_path / "hardware")

    def forbidden(*_, **__):
        raise AssertionError("replay must not run, connect or transpile")

    for name in ("hardware.service.connect", "hardware.device.transpile", "hardware.curves.make_engine"):
        monkeypatch.setattr(f"qfl_core.{name}", forbidden)
    again = replay(folders(tmp_path)[-1])
    pd.testing.assert_frame_equal(again.curves, validation.curves)
    pd.testing.assert_frame_equal(again.workload, validation.workload)


def test_a_second_run_executes_nothing(runs, local, monkeypatch):
    root, validation = local
    monkeypatch.setattr("qfl_core.hardware.jobs.runtime_sampler", None)
    again = validate(planted_study(runs[:2], root), LOCAL)
    pd.testing.assert_frame_equal(again.curves, validation.curves)


def test_a_dry_run_counts_only_what_is_not_in_the_ledger_unless_asked_afresh(runs, local):
    study = planted_study(runs[:2], local[0])
    assert "0 jobs" in dry_run(study, LOCAL)
    assert "3 jobs" in dry_run(study, LOCAL, fresh=True)


@pytest.mark.parametrize(
    ("name", "message"), [("counts/duqfl-prox-1.npz", "ledger names"), ("circuits.qpy", "plan names")]
)
def test_changed_files_are_refused(runs, local, tmp_path, name, message):
    shutil.copytree(local[0] / "hardware", tmp_path / "hardware")
    path = folders(tmp_path)[-1].path / name
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(HardwareError, match=message):
        validate(planted_study(runs[:2], tmp_path), LOCAL)


def test_runs_that_differ_in_more_than_the_method_are_not_compared(runs, tmp_path):
    with pytest.raises(HardwareError, match="differ in more than their method"):
        validate(planted_study(runs[1:3], tmp_path), LOCAL)


# Studies


def test_the_noise_grid_covers_scales_shots_methods_and_seeds(runs):
    table = noise_grid(runs, LOCAL)
    assert len(table) == 4 * 3 * (1 + len(LOCAL.study_shots))
    assert not table.duplicated(["method", "seed", "noise_scale", "shots"]).any()
    assert set(table.loc[table["noise_scale"] == 0, "kind"]) == {"exact", "shots"}
    assert set(table.loc[table["noise_scale"] > 0, "kind"]) == {"noisy"}


def test_the_checkpoint_table_is_what_claim_20_is_judged_on(runs):
    from qfl_core import analysis

    table = checkpoint_table(runs, LOCAL)
    claims = [claim for claim in analysis.CLAIMS if claim.id == "20"]
    (verdict,) = analysis.judge({}, hardware=table, claims=claims)
    assert verdict.verdict in ("holds", "fails", "absent", "undecided")
    assert verdict.deciding.source == "simulated device (noisy)"
    exact = table[table["kind"] == "exact"]
    assert (exact["tvd"] == 0).all()


def test_steadiness_measures_planted_jumps_and_distances():
    rows = [
        {"method": method, "seed": 0, "checkpoint": c, "kind": kind, "accuracy": accuracy, "tvd": 0.1}
        for method, noisy in (("duqfl-prox", [0.5, 0.6, 0.7]), ("default-qfl", [0.5, 0.9, 0.1]))
        for kind, values in (("exact", [0.5, 0.5, 0.5]), ("noisy", noisy))
        for c, accuracy in enumerate(values)
    ]
    found = steadiness(pd.DataFrame(rows)).set_index("method")
    assert found.loc["duqfl-prox", "unsteadiness"] == pytest.approx(0, abs=1e-12)
    assert found.loc["default-qfl", "unsteadiness"] > 0.5
    assert found["distance"].round(6).tolist() == [0.1, 0.266667]


def test_readout_correction_wins_on_the_noisy_simulator(runs):
    config = HardwareConfig(backend="fake_manila", checkpoints=2, samples=16, local_samples=8, shots=8192)
    table = mitigation_table(planted_study(runs[:2], runs[0].path), config, samples=6).set_index("mitigation")
    assert list(table.index) == ["none", "readout", "dynamical-decoupling", "twirling", "all"]
    assert table.loc["readout", "tvd"] < table.loc["none", "tvd"]
    assert abs(table.loc["dynamical-decoupling", "tvd_won"]) < 0.05


# Figures


def texts(figure) -> str:
    legend = [text.get_text() for one in figure.legends for text in one.get_texts()]
    cells = [
        cell.get_text().get_text()
        for axis in figure.axes
        for table in axis.tables
        for cell in table.get_celld().values()
    ]
    titles = [axis.get_title() for axis in figure.axes]
    return "\n".join([*legend, *cells, *titles, figure.get_supxlabel()])


def test_the_figures_say_what_ran_and_that_no_quantum_computer_did(local):
    _, validation = local
    shown = texts(figures.real_ibm_validation(validation).draw())
    for words in (
        "noiseless (exact, 16",
        "noiseless (exact, 5",
        "device noise (noisy, 5",
        "SamplerV2 (fake, 5 samples)",
        "stand-in",
    ):
        assert words in shown
    assert "nothing ran on a quantum computer" in shown
    assert "one run (seed 0)" in shown
    assert "one run per method (seed 0)" in shown
    assert "chance" in shown
    (axis,) = figures.ibm_workload_evidence(validation).draw().axes
    cells = {cell.get_text().get_text() for cell in axis.tables[0].get_celld().values()}
    assert {"DUQFL-Prox", "readout calibration"} <= cells
    ledger = texts(figures.ibm_workload_evidence(validation).draw())
    assert "nothing ran on a quantum computer" in ledger
    assert "fake_manila" in ledger
    assert "hardware" not in shown + ledger
    matplotlib.pyplot.close("all")


def test_the_figures_of_two_local_runs_are_the_same_files(runs, local, tmp_path):
    """Jobs of local mode have random ids and the time of day; a figure that the repository tracks shows neither."""
    again = validate(planted_study(runs[:2], tmp_path), LOCAL)
    ids = [[record.job_id for record in folders(root)[-1].ledger.jobs().values()] for root in (local[0], tmp_path)]
    assert not set(ids[0]) & set(ids[1])
    with matplotlib.rc_context():
        apply_style()
        for name, validation in (("one", local[1]), ("two", again)):
            for figure in (figures.ibm_workload_evidence, figures.real_ibm_validation):
                figure(validation).save(tmp_path / name, show=False)
    drawn = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(drawn) == 4
    for name in drawn:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    shown = texts(figures.ibm_workload_evidence(again).draw())
    assert "local-1" in shown
    assert "created" not in shown
    matplotlib.pyplot.close("all")


def test_the_noise_study_draws_its_three_panels(runs):
    grid, steady = noise_grid(runs, LOCAL), steadiness(checkpoint_table(runs, LOCAL))
    sheet = figures.noise_study(grid, steady, ("data: stand-in", "engine: statevector (shots)"), "genome")
    assert list(sheet.panels) == ["noise_scale", "noise_shots", "noise_steadiness"]
    shown = sheet.draw()
    assert "DUQFL-Prox" in texts(shown)
    assert "trained on statevector (shots)" in shown.get_supxlabel()  # another engine evaluates
    for axis in shown.axes[:2]:
        (line,) = (line for line in axis.lines if line.get_label() == "untrained")
        start = [run.rounds.query("round == 0")["global_accuracy"].iloc[0] for run in runs]
        assert line.get_ydata()[0] == pytest.approx(np.mean(start))
    matplotlib.pyplot.close("all")


# Command line


def test_the_command_line_replays_and_shows_the_ledger(local, tmp_path, capsys):
    root, _ = local
    assert main(["hardware", "replay", "--profile", "smoke", "--results", str(root), "--figures", str(tmp_path)]) == 0
    assert "kinds of the jobs: fake" in capsys.readouterr().out
    assert {p.name for p in tmp_path.glob("*.png")} == {"real_ibm_validation.png", "ibm_workload_evidence.png"}
    assert main(["hardware", "status", "planted", "--results", str(root)]) == 0
    assert "finished   kind fake" in capsys.readouterr().out


def test_the_command_line_tells_errors_in_a_line(local, tmp_path, capsys, monkeypatch):
    assert main(["hardware", "replay", "nothing", "--results", str(local[0])]) == 2
    assert "no validation begins with 'nothing'" in capsys.readouterr().err
    assert main(["hardware", "run", "--profile", "smoke", "--set", "shots"]) == 2
    assert "expected NAME=VALUE" in capsys.readouterr().err
    monkeypatch.delenv("QISKIT_IBM_TOKEN", raising=False)
    monkeypatch.setattr("qfl_core.runs.study.sweep", None)  # nothing is trained before the account is asked for
    assert main(["hardware", "run", "--profile", "smoke", "--backend", "ibm_fez", "--results", str(tmp_path)]) == 1
    assert "needs an account: set QISKIT_IBM_TOKEN" in capsys.readouterr().err


def test_without_an_account_a_device_without_a_snapshot_is_named():
    with pytest.raises(HardwareError, match="no snapshot of 'ibm_fezz' .did you mean 'ibm_fez'"):
        fake_twin("ibm_fezz")
