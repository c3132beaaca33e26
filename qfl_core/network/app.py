"""Algorithms 1 to 3 on Flower: ``flwr run`` finds the ServerApp and the ClientApp here.

The ServerApp runs the same rounds as :func:`qfl_core.run_experiment`, with clients on nodes. The ClientApp trains a
batch of one. Both run the package that is installed where they run: the bundle that Flower ships carries settings, no
code.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from logging import ERROR

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.supercore import log

from qfl_core.algorithm.client import train_locally, validate_locally
from qfl_core.algorithm.federation import Federation
from qfl_core.base.errors import ConfigError, FederationError
from qfl_core.config import ExperimentConfig, read_yaml
from qfl_core.network import wire
from qfl_core.network.nodes import DEPLOYMENT, SIMULATION, NodeTrainer, Patience, refuse_plugins
from qfl_core.network.site import open_site
from qfl_core.runs.identity import code_digest
from qfl_core.runs.prepare import Prepared, prepare
from qfl_core.runs.run import run_prepared

#: Does what a message asks of one client: (the federation as its node sees it, client id, message) -> answer.
Work = Callable[[Federation, int, RecordDict], RecordDict]

#: Settings of ``[tool.flwr.app.config]`` that are fields of the experiment; ``experiment`` holds all others.
FIELDS = ("dataset", "method", "clients", "rounds", "seed")

server_app = ServerApp()
client_app = ClientApp()


def experiment_of(run_config: Mapping[str, object]) -> ExperimentConfig:
    """Return the experiment that a run config describes; what ``experiment`` (YAML or JSON) says wins."""
    text = str(run_config.get("experiment", "")).strip() or "{}"
    try:
        further = json.loads(text)  # first, because YAML takes JSON's 1e-05 for a word
    except json.JSONDecodeError:
        further = read_yaml(text, "experiment")
    if not isinstance(further, dict):
        raise ConfigError(f"experiment must map settings to values, got {text!r}")
    config = ExperimentConfig.from_dict({name: run_config[name] for name in FIELDS if name in run_config} | further)
    refuse_plugins(config)
    return config


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Run the experiment over the grid's nodes and write its results folder."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    settings = context.run_config
    config = experiment_of(settings)
    patience = Patience(
        timeout=float(settings["timeout"]), wait=float(settings["wait"]), minimum=int(settings["min-clients"])
    )
    folder = str(settings["data-dir"])
    prepared = open_site(config, folder) if folder else prepare(config)
    # Only the simulation's grid is not a connection.
    transport = SIMULATION if type(grid).__name__ == "InMemoryGrid" else DEPLOYMENT
    trainer = NodeTrainer(grid, prepared.source.sha256, patience, transport)
    trainer.gather(len(prepared.federation.participants(0)))
    run_prepared(prepared, str(settings["results-dir"]), trainer, repeat=bool(settings["repeat"]))


def _end_with(parent: int) -> None:
    """End this process soon after the one that started it, which ends with the SuperLink.

    Flower's own shutdown waits for a SuperLink that is gone, and would keep the run's lock; every complete round is on
    disk, so the next run resumes.
    """
    while os.getppid() == parent:
        time.sleep(1)
    time.sleep(3)
    os._exit(1)


@client_app.query()
def query(message: Message, context: Context) -> Message:
    """Say which client this node serves."""
    return _answer(message, context, lambda _, client_id, __: wire.pack_sender(client_id))


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Train this node's client once per broadcast, and send up the selected weights with their summaries."""
    return _answer(message, context, _train)


@client_app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Score the new global models on this node's validation rows: one number per model."""
    return _answer(message, context, _evaluate)


def _train(federation: Federation, client_id: int, content: RecordDict) -> RecordDict:
    request = wire.TrainRequest.unpack(content)
    if client_id not in request.header.participants:
        return wire.pack_sender(client_id)
    batch = federation.batch(request.header.t, np.array([client_id]))
    results = [train_locally(federation, sent, batch) for sent in request.sent]
    return wire.pack_uploads(client_id, request.sent, results)


def _evaluate(federation: Federation, client_id: int, content: RecordDict) -> RecordDict:
    request = wire.EvaluateRequest.unpack(content)
    t, own = request.header.t, np.array([client_id])
    models = zip(request.models, request.purposes, strict=True)
    scores = [validate_locally(federation, theta, t, own, purpose)[0] for theta, purpose in models]
    return wire.pack_scores(client_id, scores)


def _answer(message: Message, context: Context, work: Work) -> Message:
    """Do the work and reply; an error that may hold values of the data stays in this node's log."""
    try:
        prepared, client_id = _own(context)
        header = wire.Header.unpack(message.content)
        if header.code != code_digest():
            raise FederationError("the node runs another version of the training code than the server")
        common = not context.node_config.get("data-dir")
        if common and header.data != prepared.source.sha256:
            raise FederationError("the node holds another copy of the data than the server")
        return Message(work(prepared.federation, client_id, message.content), reply_to=message)
    except FederationError as error:
        return Message(Error(code=0, reason=str(error)), reply_to=message)
    except Exception as error:
        log(ERROR, "this client cannot take part", exc_info=error)
        return Message(Error(code=0, reason=f"{type(error).__name__}; the node's log says more"), reply_to=message)


def _own(context: Context) -> tuple[Prepared, int]:
    """Return the federation as this node sees it, and the client that it serves."""
    node = context.node_config
    if "partition-id" not in node:
        raise FederationError("the node config has no partition-id: it says which client the node serves")
    config, client_id = experiment_of(context.run_config), int(node["partition-id"])
    if not 0 <= client_id < config.clients:
        raise FederationError(f"partition-id={client_id}, but the clients are 0 to {config.clients - 1}")
    return _prepared(config, str(node.get("data-dir", "")), client_id if node.get("data-dir") else None), client_id


@lru_cache(maxsize=4)
def _prepared(config: ExperimentConfig, folder: str, client_id: int | None) -> Prepared:
    """Build once what a process needs for all messages of a run; a simulation's processes serve many."""
    return open_site(config, folder, client_id) if folder else prepare(config)
