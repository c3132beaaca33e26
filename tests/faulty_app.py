"""A ClientApp for tests: the real one, with faults and gates that a plan file names for a client, phase and round."""

import json
import time
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from qfl_core.network import app as flower_app

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
    """Answer, then do what the plan says: {"<client>": {"<phase>-<round>": "<fault>"}}.

    The fault "hold" makes the client say that it is asked, and wait until the test opens its gate.
    """
    folder, client = Path(context.node_config["plan-dir"]), context.node_config["partition-id"]
    phase = f"{message.metadata.message_type}-{message.metadata.group_id}"
    fault = json.loads((folder / "plan.json").read_text()).get(str(client), {}).get(phase)
    (folder / f"asked-{client}-{phase}").touch()
    while fault == "hold" and not (folder / f"open-{client}-{phase}").exists():
        time.sleep(0.05)
    reply = flower_app.client_app(message, context)
    if fault in FAULTS:
        reply.content["answer"].update(FAULTS[fault])
    return reply


client_app.query()(answer)
client_app.train()(answer)
client_app.evaluate()(answer)
