"""A ClientApp for tests: the real one, with faults that a plan file names for a client and round."""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, Context, Message
from flwr.clientapp import ClientApp

from qfl_core.network import app as flower_app

client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Train, then do what the plan says: {"<client>": {"<round>": "<fault>"}}."""
    folder, client = Path(context.node_config["plan-dir"]), context.node_config["partition-id"]
    plan = json.loads((folder / "plan.json").read_text())
    fault = plan.get(str(client), {}).get(str(message.content["round"]["t"] + 1))
    (folder / f"asked-{client}-{message.content['round']['t'] + 1}").touch()
    if fault and fault.startswith("late"):
        time.sleep(float(fault.split()[1]))
    reply = flower_app.client_app(message, context)
    if fault == "nan":
        reply.content["upload-0"]["theta"] = Array(np.full(16, np.nan))
    if fault == "shape":
        reply.content["upload-0"]["theta"] = Array(np.zeros(3))
    if fault == "size":
        reply.content["summary-0"]["samples"] = 10**6
    return reply


@client_app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Score honestly."""
    return flower_app.client_app(message, context)
