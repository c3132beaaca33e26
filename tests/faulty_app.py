"""A ClientApp for tests: the real one, with faults, attacks and gates that a plan names for a client and phase."""

import json
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from qfl_core.algorithm.client import train_locally, validate_locally
from qfl_core.algorithm.samples import Attendance
from qfl_core.base.registry import ATTACKS, resolve
from qfl_core.extras.attacks import Attacked
from qfl_core.network import app as flower_app
from qfl_core.network import wire

client_app = ClientApp()
#: What a fault writes over the first upload of an answer.
FAULTS = {
    "nan": {"0.theta": [float("nan")] * 16},
    "length": {"0.theta": [0.0] * 3},
    "size": {"0.samples": 10**6},
    "loss": {"0.loss_after": [1e300] * 2},
    "weights": {"0.theta": [1e6] * 16},
}


def answer(message: Message, context: Context) -> Message:
    """Answer, then do what the plan says: {"<client>": {"<phase>-<round>": "<fault>"}}; "*" is every phase.

    The fault "hold" makes the client say that it is asked, and wait until the test opens its gate.
    """
    folder, client = Path(context.node_config["plan-dir"]), context.node_config["partition-id"]
    phase = f"{message.metadata.message_type}-{message.metadata.group_id}"
    faults = json.loads((folder / "plan.json").read_text()).get(str(client), {})
    fault = faults.get(phase, faults.get("*"))
    (folder / f"asked-{client}-{phase}").touch()
    while fault == "hold" and not (folder / f"open-{client}-{phase}").exists():
        time.sleep(0.05)
    if fault == "fail":
        raise RuntimeError("this client fails")
    if fault in ATTACKS:
        return attacking(fault, message, context)
    reply = flower_app.client_app(message, context)
    if fault in FAULTS:
        reply.content["answer"].update(FAULTS[fault])
    return reply


class Alone:
    """Trains and scores the client of this node."""

    transport = "alone"

    def __init__(self, client: int):
        self.own = np.array([client])

    def train(self, federation, sent):
        return train_locally(federation, sent, federation.batch(sent.t, self.own))

    def validate(self, federation, theta, attendance, purpose="round"):
        return validate_locally(federation, theta, attendance.t, self.own, purpose)


@lru_cache(maxsize=1)
def memory(run: int, attack: str, client: int) -> tuple[Attacked, dict]:
    """Return the bad client of a run, and the broadcasts that it got last, by round."""
    return Attacked(Alone(client), resolve(ATTACKS[attack])), {}


def attacking(attack: str, message: Message, context: Context) -> Message:
    """Answer as a node of its own making: it knows what its messages say, and may send what it likes."""
    prepared, client = flower_app._own(context)
    federation = prepared.federation
    request = wire.Request.unpack(message.content, federation, client)
    bad, got = memory(context.run_id, attack, client)
    uploads, accuracies = [], []
    if request.training:
        got[request.training.t] = request.training.sent
        uploads = [(sent, bad.train(federation, sent)) for sent in request.training.sent]
    if request.scoring:
        nothing, asked = np.zeros(1), request.scoring
        attendance = Attendance(asked.t, np.array([client]), nothing, nothing, nothing)
        bad._real = got[asked.t][0]
        for theta, purpose, sent in zip(asked.models, asked.purposes, got[asked.t], strict=True):
            bad._last = sent
            accuracies.append(bad.validate(federation, theta, attendance, purpose)[0])
    return Message(wire.pack_answer(client, uploads, accuracies), reply_to=message)


client_app.query()(answer)
client_app.train()(answer)
client_app.evaluate()(answer)
