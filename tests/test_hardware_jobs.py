"""Jobs: knowing the cost, submitting once, losing nothing, against a double of IBM's service."""

import logging
import traceback

import pytest
from planted import planted_splits, planted_study, small
from runtime_double import ApiDouble, genuine_client, renamed, service_over

from qfl_core.base.errors import HardwareError
from qfl_core.engines.kinds import UnknownClientVersion, kind_of, kind_of_job
from qfl_core.hardware import HardwareConfig, replay, validate
from qfl_core.hardware import service as client
from qfl_core.hardware.jobs import Execution
from qfl_core.hardware.ledger import Ledger, LedgerNotice
from qfl_core.hardware.pipeline import dry_run
from qfl_core.hardware.store import folders
from qfl_core.runs import run_experiment

SMALL = {"checkpoints": 2, "samples": 8, "local_samples": 3, "shots": 64, "optimization_level": 1}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return trained runs of both methods, two features, on planted data."""
    folder = tmp_path_factory.mktemp("runs")
    splits = planted_splits()
    return [
        run_experiment(small(method=method, source="stand-in"), folder, splits=splits)
        for method in ("duqfl-prox", "default-qfl")
    ]


@pytest.fixture(autouse=True)
def planted(monkeypatch):
    """Let plans find the planted data."""
    monkeypatch.setattr("qfl_core.hardware.plan.load_splits", lambda config: planted_splits())


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch):
    monkeypatch.setattr("qfl_core.hardware.jobs.POLL_SECONDS", 0.001)


@pytest.fixture
def api():
    return ApiDouble()


def go(runs, root, api, *, service=None, retry=False, confirmed=False, **settings):
    """Run the validation on the double's device; warnings of the client about the device are its own affair."""
    config = HardwareConfig(**(SMALL | {"backend": "ibm_double", "wait_seconds": 5} | settings))
    return validate(
        planted_study(runs, root),
        config,
        service=service or service_over(api),
        retry=retry,
        confirmed=confirmed,
        say=lambda text: None,
    )


def ledger(root) -> Ledger:
    return folders(root)[-1].ledger


def states(root) -> dict[str, str]:
    return {key: record.state for key, record in ledger(root).jobs().items()}


DONE = {"readout-calibration": "finished", "duqfl-prox": "finished", "default-qfl": "finished"}


def test_one_batch_holds_one_broadcast_pub_a_checkpoint_and_never_a_session(runs, tmp_path, api):
    validation = go(runs, tmp_path, api)
    assert api.sessions == ["batch", "closed"]
    assert [len(asked["params"]["pubs"]) for asked in api.submissions] == [2, 2, 2]
    shapes = [pub.parameter_values.shape for asked in api.submissions[1:] for pub in asked["params"]["pubs"]]
    assert shapes == [(1, 3)] * 4
    assert {asked["params"]["pubs"][0].shots for asked in api.submissions} == {64}
    assert states(tmp_path) == DONE
    assert set(validation.curves["curve"]) == {"all", "noiseless", "shots", "noise", "execution", "corrected"}
    assert validation.workload["qpu_seconds"].tolist() == [3.0, 3.0, 3.0]


def test_a_job_is_in_the_ledger_with_all_that_finds_it_before_anything_waits(runs, tmp_path, api):
    api.states = {0: ["Queued"], 1: ["Queued"], 2: ["Queued"]}
    with pytest.raises(HardwareError, match="is QUEUED: nothing is lost, run again to fetch it"):
        go(runs, tmp_path, api, wait_seconds=0)
    written = [line for line in ledger(tmp_path).events() if line["event"] == "submitted"]
    assert [line["job_id"] for line in written] == ["job0", "job1", "job2"]
    for line in written:
        assert line["backend"] == "ibm_double"
        assert len(line["calibration"]) == len(line["circuits_sha256"]) == 64
        assert len(line["layout"]) == 2
        assert (folders(tmp_path)[-1].path / line["circuits_file"]).is_file()


def test_a_rerun_fetches_known_jobs_instead_of_submitting(runs, tmp_path, api):
    api.states = {0: ["Queued"], 1: ["Queued"], 2: ["Queued"]}
    with pytest.raises(HardwareError):
        go(runs, tmp_path, api, wait_seconds=0)
    api.states = {}
    go(runs, tmp_path, api)
    assert len(api.submissions) == 3
    assert states(tmp_path) == DONE
    go(runs, tmp_path, api)
    assert len(api.submissions) == 3


def test_a_submission_without_an_answer_is_found_by_its_tag_and_not_repeated(runs, tmp_path, api):
    api.lost_answers = 1
    with pytest.raises(HardwareError, match="was not confirmed by the service") as caught:
        go(runs, tmp_path, api)
    assert "looks for it by its tag" in str(caught.value)
    with pytest.warns(LedgerNotice, match="found at the service by its tag"):
        go(runs, tmp_path, api)
    assert len(api.submissions) == 3
    assert states(tmp_path) == DONE


def test_a_ledger_that_lost_its_last_lines_pays_nothing_twice(runs, tmp_path, api):
    go(runs, tmp_path, api)
    path = ledger(tmp_path).path
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    with pytest.warns(LedgerNotice, match="by its tag"):
        go(runs, tmp_path, api)
    assert len(api.submissions) == 3
    assert states(tmp_path) == DONE


def test_where_the_service_cannot_say_what_it_has_nothing_is_submitted(runs, tmp_path, api):
    api.refuse = {"jobs_get": ConnectionError("no route")}
    with pytest.raises(HardwareError, match="did not list its jobs: ConnectionError: no route"):
        go(runs, tmp_path, api)
    assert api.submissions == []


@pytest.mark.parametrize(("status", "state"), [("Failed", "failed"), ("Cancelled", "cancelled")])
def test_a_failed_job_is_reported_kept_and_retried_alone(runs, tmp_path, api, status, state):
    api.states = {1: ["Queued", "Running", status]}
    api.answer = None
    with pytest.raises(HardwareError, match=f"(?s)job 'duqfl-prox' .job1. {state}.*retry it alone"):
        go(runs, tmp_path, api)
    assert states(tmp_path) == DONE | {"duqfl-prox": state}
    with pytest.raises(HardwareError, match="retry it alone"):
        go(runs, tmp_path, api)
    assert len(api.submissions) == 3
    go(runs, tmp_path, api, retry=True)
    assert len(api.submissions) == 4
    assert states(tmp_path) == DONE
    assert ledger(tmp_path).jobs()["duqfl-prox"].attempt == 2


def test_what_did_not_fail_can_be_replayed_while_a_job_is_missing(runs, tmp_path, api):
    api.states = {1: ["Failed"]}
    with pytest.raises(HardwareError):
        go(runs, tmp_path, api)
    found = replay(folders(tmp_path)[-1])
    assert set(found.curves.loc[found.curves["curve"] == "execution", "method"]) == {"default-qfl"}


@pytest.mark.parametrize("answer", ['"nonsense"', "[1, 2]", '{"a": 1}'])
def test_an_answer_that_is_no_result_is_refused_and_asked_again_without_resubmitting(runs, tmp_path, api, answer):
    api.answer = answer
    with pytest.raises(HardwareError, match="answered what cannot be read"):
        go(runs, tmp_path, api)
    assert set(states(tmp_path).values()) == {"unreadable"}
    assert not list(folders(tmp_path)[-1].path.glob("counts/*"))
    api.answer = None
    go(runs, tmp_path, api)
    assert len(api.submissions) == 3
    assert states(tmp_path) == DONE


def test_a_result_with_other_shots_is_not_taken_for_the_answer(runs, tmp_path, api):
    go(runs, tmp_path / "other", api, shots=32)
    api.answer = api.jobs["job1"]["result"]
    with pytest.raises(HardwareError, match=r"\[32\] shots .*expected 2 of \(1, 3\), 64"):
        go(runs, tmp_path, api)


def test_an_unknown_status_is_told_and_the_job_kept(runs, tmp_path, api):
    api.states = {2: ["Daydreaming"]}
    with pytest.raises(HardwareError, match="is DAYDREAMING"):
        go(runs, tmp_path, api)
    assert states(tmp_path) == DONE | {"default-qfl": "submitted"}


def test_a_service_that_times_out_while_waiting_loses_nothing(runs, tmp_path, api):
    api.states = {0: ["Running", "Completed"]}
    api.refuse = {"job_results": TimeoutError("too slow")}
    with pytest.raises(HardwareError, match="TimeoutError: too slow"):
        go(runs, tmp_path, api)
    go(runs, tmp_path, api)
    assert len(api.submissions) == 3
    assert states(tmp_path) == DONE


# Money


def test_past_the_limit_nothing_is_submitted_unless_confirmed(runs, tmp_path, api):
    with pytest.raises(HardwareError, match=r"estimated QPU seconds pass the limit of 3: nothing was submitted.*--yes"):
        go(runs, tmp_path, api, max_seconds=3)
    assert api.submissions == []
    go(runs, tmp_path, api, max_seconds=3, confirmed=True)
    assert len(api.submissions) == 3


def test_past_the_account_s_seconds_nothing_is_submitted(runs, tmp_path, api):
    api.remaining = 1
    with pytest.raises(HardwareError, match="pass the 1 that the account has left"):
        go(runs, tmp_path, api)
    assert api.submissions == []


def test_the_limit_also_bounds_each_job_at_the_service(runs, tmp_path, api):
    go(runs, tmp_path, api, max_seconds=77)
    assert {asked["max_execution_time"] for asked in api.submissions} == {77}


def test_a_dry_run_prints_the_cost_and_submits_nothing(runs, tmp_path, api):
    config = HardwareConfig(**SMALL, backend="ibm_double")
    text = dry_run(planted_study(runs, tmp_path), config, service=service_over(api))
    assert api.submissions == api.sessions == []
    assert "14 circuits x 64 shots" in text
    assert "remaining seconds: 600" in text
    assert text.endswith("dry run: nothing was submitted")


def test_without_an_account_a_dry_run_plans_on_the_snapshot_and_says_so(runs, tmp_path, monkeypatch):
    monkeypatch.delenv(client.TOKEN, raising=False)
    config = HardwareConfig(**SMALL, backend="ibm_manila")
    text = dry_run(planted_study(runs, tmp_path), config)
    assert "no account: planned on fake_manila" in text
    assert "unknown without an account" in text


def test_the_estimate_is_the_formula_it_prints(runs, tmp_path, api):
    config = HardwareConfig(**SMALL, backend="ibm_double")
    text = dry_run(planted_study(runs, tmp_path), config, service=service_over(api))
    backend = service_over(api).backend()
    per_shot = backend.default_rep_delay if hasattr(backend, "default_rep_delay") else 250e-6
    seconds = float(text.split("QPU seconds: ")[1].split(" ")[0])
    assert seconds == pytest.approx(3 * 2 + 14 * 64 * per_shot, abs=0.6)


def test_mitigation_reaches_the_device_as_options(runs, tmp_path, api):
    go(runs, tmp_path, api, mitigation=["dynamical-decoupling", "twirling"])
    assert len(api.submissions) == 2
    options = api.submissions[0]["params"]["options"]
    assert options["dynamical_decoupling"]["enable"] is True
    assert options["twirling"]["enable_gates"] is True


# Labels


def test_the_double_is_never_labelled_hardware(runs, tmp_path, api):
    validation = go(runs, tmp_path, api)
    assert set(validation.workload["kind"]) == {"fake"}
    assert "hardware" not in set(validation.curves["kind"])


def test_only_the_client_s_own_chain_of_objects_is_labelled_hardware(runs, tmp_path, api):
    network = genuine_client(api)
    validation = go(runs, tmp_path, api, service=service_over(network))
    assert set(validation.workload["kind"]) == {"hardware"}
    assert not any(name.startswith("local") for name in validation.workload["job_id"])  # the ids are the evidence
    assert validation.workload["created"].all()
    assert validation.kinds == {
        "all": "exact",
        "noiseless": "exact",
        "shots": "shots",
        "noise": "noisy",
        "execution": "hardware",
        "corrected": "hardware",
    }
    assert replay(folders(tmp_path)[-1]).kinds == validation.kinds


def test_a_mock_device_of_the_service_is_not_hardware(runs, tmp_path, api):
    network = genuine_client(api)
    validation = go(runs, tmp_path, api, service=service_over(network, is_mock=True))
    assert set(validation.workload["kind"]) == {"fake"}


def test_a_fake_backend_under_a_device_s_name_stays_fake():
    from qiskit_aer import AerSimulator
    from qiskit_ibm_runtime.fake_provider import FakeFez, FakeManilaV2

    assert kind_of(renamed(FakeFez(), "ibm_fez")) == "fake"
    assert kind_of(renamed(FakeManilaV2(), "ibm_fez")) == "fake"
    assert kind_of(AerSimulator()) == "shots"


def test_an_object_that_only_claims_to_be_a_device_or_a_job_is_fake(api):
    from qiskit_ibm_runtime import IBMBackend, RuntimeJobV2

    class Impostor(IBMBackend):
        """Overrides what executes."""

    class ImpostorJob(RuntimeJobV2):
        """Overrides what answers."""

    network = genuine_client(api)
    real = service_over(network).backend()
    assert kind_of(real) == "hardware"
    assert kind_of(Impostor(real.configuration(), real.service, network, instance="x")) == "fake"
    assert kind_of(type("Device", (), {"name": "ibm_fez", "simulator": False, "kind": "hardware"})()) == "fake"
    job = ImpostorJob(real, network, "job0", "sampler", real.service)
    assert kind_of_job(job) == "fake"
    assert kind_of_job(type("Job", (), {"backend": lambda self: real, "status": lambda self: "DONE"})()) == "fake"


def test_a_client_that_hides_its_network_client_is_labelled_fake_and_says_so(api):
    from qiskit_ibm_runtime import RuntimeJobV2

    network = genuine_client(api)
    real = service_over(network).backend()
    job = RuntimeJobV2(real, network, "job0", "sampler", real.service)
    for owner, label in ((real, kind_of), (job, kind_of_job)):
        del owner._api_client
        with pytest.warns(UnknownClientVersion, match=f"{type(owner).__name__} .* has no attribute _api_client"):
            assert label(owner) == "fake"


def test_no_parameter_sets_the_kind():
    from qiskit_ibm_runtime.fake_provider import FakeManilaV2

    from qfl_core.engines import make_engine
    from qfl_core.engines.qnn import QNN

    engine = make_engine("primitives", QNN(2), shots=8, sampler="ibm", backend=renamed(FakeManilaV2(), "ibm_fez"))
    assert engine.kind == engine.describe()["kind"] == "fake"
    with pytest.raises(Exception, match="unknown hardware setting 'kind'"):
        HardwareConfig.from_dict({"kind": "hardware"})


def test_one_line_of_the_package_can_produce_the_label(request):
    """Everything else compares with it, lists it or documents it."""
    import ast

    package = request.config.rootpath / "qfl_core"
    found = []
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            values = []
            if isinstance(node, ast.Return):
                values = [node.value]
            elif isinstance(node, ast.Dict):
                values = [v for k, v in zip(node.keys, node.values, strict=True) if getattr(k, "value", "") == "kind"]
            elif isinstance(node, (ast.Assign, ast.AnnAssign)) or getattr(node, "arg", None) == "kind":
                values = [getattr(node, "value", None)]
            found += [path.name for v in values if isinstance(v, ast.Constant) and v.value == "hardware"]
    assert found == ["kinds.py"]


# Credentials

SECRET, CRN = "tok_3kZplantedSECRETplanted9Qx", "crn:v1:planted:public:quantum-computing:region:a/secret:instance::"


def test_no_credentials_is_an_error_that_names_the_variables(monkeypatch):
    monkeypatch.delenv(client.TOKEN, raising=False)
    monkeypatch.setenv(client.INSTANCE, CRN)
    with pytest.raises(HardwareError, match="set QISKIT_IBM_TOKEN in the environment"):
        client.connect()


@pytest.mark.parametrize("instance", ["crn:v1:x", "crn:", "two words", "two\nlines", "bell\a"])
def test_a_malformed_instance_is_one_line_that_does_not_repeat_it(instance, monkeypatch):
    monkeypatch.setenv(client.TOKEN, SECRET)
    monkeypatch.setenv(client.INSTANCE, instance)
    monkeypatch.setattr("qiskit_ibm_runtime.QiskitRuntimeService", None)  # is not asked
    with pytest.raises(HardwareError, match="^QISKIT_IBM_INSTANCE is malformed: expected the name.*$") as told:
        client.connect()
    assert SECRET not in str(told.value)
    assert instance == "crn:" or instance not in str(told.value)


def test_a_planted_token_reaches_no_file_log_output_or_exception(runs, tmp_path, api, monkeypatch, caplog, capfd):
    monkeypatch.setenv(client.TOKEN, SECRET)
    monkeypatch.setenv(client.INSTANCE, CRN)
    caplog.set_level(logging.DEBUG)
    texts = []

    def leaky(**given):
        raise RuntimeError(f"401 for {given['token']} at {given['instance']}") from ValueError(given["token"])

    monkeypatch.setattr("qiskit_ibm_runtime.QiskitRuntimeService", leaky)
    attempts = [client.connect]
    for name in ("cloud_usage", "jobs_get", "create_session", "program_run", "job_results"):
        attempts.append(lambda name=name: _refused(name))

    def _refused(name):
        api.refuse = {name: RuntimeError(f"header Authorization: {SECRET} ({CRN})")}
        go(runs, tmp_path, api)

    api.states = {0: ["Failed"]}
    for attempt in attempts:
        with pytest.raises(HardwareError) as caught:
            attempt()
        error = caught.value
        texts += traceback.format_exception(error)
        while error is not None:
            texts += [str(error), repr(error), repr(error.args)]
            assert error.__cause__ is None
            error = error.__context__
    assert any("<QISKIT_IBM_TOKEN>" in text for text in texts)
    captured = capfd.readouterr()
    texts += [captured.out, captured.err, caplog.text]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "ledger.jsonl" for path in files)
    for secret in (SECRET, CRN):
        assert not [text for text in texts if secret in text]
        assert not [path for path in files if secret.encode() in path.read_bytes()]


def test_an_unknown_backend_is_an_error_with_the_names_there_are(runs, tmp_path, api):
    with pytest.raises(HardwareError, match="unknown backend 'ibm_doubel' .did you mean 'ibm_double'"):
        go(runs, tmp_path, api, backend="ibm_doubel")
    with pytest.raises(HardwareError, match="unknown fake backend 'fake_fes' .did you mean 'fake_fez'"):
        go(runs, tmp_path, api, backend="fake_fes")


def test_two_processes_do_not_both_submit(runs, tmp_path, api):
    """The folder's lock is held from the look into the ledger to the last event."""
    config = HardwareConfig(**SMALL, backend="ibm_double")
    seen = []

    class Watched(Execution):
        def _submit(self, jobs):
            import fcntl

            lock = self.folder.path.parent / f".{self.folder.path.name}.lock"
            with lock.open("w") as other, pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            seen.append(len(jobs))
            super()._submit(jobs)

    from qfl_core.hardware.pipeline import _store
    from qfl_core.hardware.plan import make_plan

    service = service_over(api)
    plan, folder = make_plan(planted_study(runs, tmp_path), config, service.backend())
    _store(plan, folder)
    Watched(plan, folder, service, lambda text: None).run()
    assert seen == [3]
