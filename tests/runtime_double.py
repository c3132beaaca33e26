"""An in-process stand-in for IBM's service: the client's own classes over an API that answers from memory.

``QiskitRuntimeService``, ``IBMBackend``, ``Batch``, ``SamplerV2`` and ``RuntimeJobV2`` are the real ones; only the
network client below them is replaced. Jobs pass through the states a test asks for, and run on Aer when they are done.
"""

import itertools
import json
import types

from qiskit.providers.exceptions import QiskitBackendNotFoundError
from qiskit_aer.primitives import SamplerV2 as AerSampler
from qiskit_ibm_runtime import IBMBackend, QiskitRuntimeService
from qiskit_ibm_runtime.api.client import RuntimeClient
from qiskit_ibm_runtime.api.exceptions import RequestsApiError
from qiskit_ibm_runtime.fake_provider import FakeManilaV2
from qiskit_ibm_runtime.json import RuntimeEncoder

CRN = "crn:v1:double"


class ApiDouble:
    """What the service does behind its network client; a test writes its plans into the attributes.

    ``states`` maps a job's number to the statuses it goes through; the last one stays. ``refuse`` maps a method's name
    to an error that it raises once. ``answer`` replaces a finished job's result.
    """

    _instance = CRN

    def __init__(self, remaining: int = 600):
        self.jobs: dict[str, dict] = {}
        self.states: dict[int, list[str]] = {}
        self.refuse: dict[str, Exception] = {}
        self.lost_answers = 0  # submissions that the service takes and never confirms
        self.answer = None
        self.remaining = remaining
        self.sessions: list[str] = []
        self.submissions: list[dict] = []
        self._numbers = itertools.count()

    def _maybe_refuse(self, name):
        if name in self.refuse:
            raise self.refuse.pop(name)

    def create_session(self, backend, instance, max_time, mode):
        self._maybe_refuse("create_session")
        self.sessions.append(mode)
        return {"id": f"batch-{len(self.sessions)}"}

    def close_session(self, session_id):
        self.sessions.append("closed")

    def cloud_usage(self):
        self._maybe_refuse("cloud_usage")
        return {"usage_limit_seconds": 600, "usage_consumed_seconds": 600 - self.remaining}

    def backend_status(self, name):
        return {
            "backend_name": name,
            "backend_version": "1",
            "operational": True,
            "status_msg": "active",
            "pending_jobs": 0,
        }

    def backend_properties(self, *_, **__):
        return FakeManilaV2().properties().to_dict()

    def program_run(self, **asked):
        self._maybe_refuse("program_run")
        number = next(self._numbers)
        name = f"job{number}"
        self.submissions.append(asked)
        self.jobs[name] = {"number": number, "asked": asked, "polls": 0}
        if self.lost_answers:
            self.lost_answers -= 1
            raise TimeoutError("the service did not answer in time")
        return {"id": name, "backend": asked["backend_name"]}

    def _status(self, job_id):
        job = self.jobs[job_id]
        plan = self.states.get(job["number"], ["Completed"])
        status = plan[min(job["polls"], len(plan) - 1)]
        job["polls"] += 1
        return status

    def job_get(self, job_id, exclude_params=True):
        self._maybe_refuse("job_get")
        if job_id not in self.jobs:
            raise RequestsApiError("no such job", status_code=404)
        asked = self.jobs[job_id]["asked"]
        return {
            "id": job_id,
            "backend": asked["backend_name"],
            "created": "2026-01-02T03:04:05.678Z",
            "tags": asked["job_tags"],
            "program": {"id": "sampler"},
            "state": {"status": self._status(job_id), "reason": "the cryostat is warm"},
        }

    def jobs_get(self, job_tags=None, **_):
        self._maybe_refuse("jobs_get")
        found = [name for name, job in self.jobs.items() if set(job_tags or ()) <= set(job["asked"]["job_tags"] or ())]
        return {"jobs": [self.job_get(name) for name in found[::-1]], "count": len(found)}

    def job_results(self, job_id):
        self._maybe_refuse("job_results")
        if self.answer is not None:
            return self.answer
        job = self.jobs[job_id]
        if "result" not in job:
            sampler = AerSampler(seed=7 + job["number"])
            job["result"] = json.dumps(sampler.run(job["asked"]["params"]["pubs"]).result(), cls=RuntimeEncoder)
        return job["result"]

    def job_metadata(self, job_id):
        created = {"created": "2026-01-02T03:04:05.678Z"}
        return {"timestamps": created, "usage": {"qpu_charge_time_seconds": 3, "status": "complete"}}


def service_over(api, name: str = "ibm_double", is_mock: bool = False) -> QiskitRuntimeService:
    """Return IBM's service object over the double, without its constructor, which needs the network."""
    service = object.__new__(QiskitRuntimeService)
    service._active_api_client = api
    service._api_clients = {CRN: api}
    service._backend_instance_groups = []
    service._channel = "ibm_quantum_platform"
    configuration = FakeManilaV2().configuration()
    configuration.backend_name = name
    configuration.simulator = False
    backend = IBMBackend(configuration, service, api, instance=CRN, is_mock=is_mock)

    def find(wanted=None, **_):
        if wanted not in (None, name):
            raise QiskitBackendNotFoundError("No backend matches the criteria.")
        return backend

    service.backend = find
    service.backends = lambda **_: [backend]
    service._create_backend_obj = lambda *_, **__: backend
    return service


def genuine_client(api) -> RuntimeClient:
    """Return IBM's own network client with the double's answers: all that the label of hardware can be tested with."""
    client = object.__new__(RuntimeClient)
    client._instance = CRN
    for method in ("create_session", "close_session", "cloud_usage", "backend_status", "backend_properties"):
        setattr(client, method, getattr(api, method))
    for method in ("program_run", "job_get", "jobs_get", "job_results", "job_metadata"):
        setattr(client, method, getattr(api, method))
    return client


def renamed(backend, name: str):
    """Return a fake backend that calls itself a device and claims to be none of the simulators."""
    backend.name = name
    backend.simulator = False
    backend.configuration = types.MethodType(lambda self: types.SimpleNamespace(simulator=False), backend)
    return backend
