"""Algorithms 1 to 3 on Flower: ``flwr run`` finds the ServerApp and the ClientApp here.

The ServerApp runs the same rounds as :func:`qfl_core.run_experiment` with clients on nodes; the ClientApp is a batch of
one. Both run the package that is installed where they run: the bundle that Flower ships carries settings, no code.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from functools import lru_cache
from logging import ERROR
from typing import Any

import numpy as np
from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.supercore import log

from qfl_core.algorithm.client import train_locally, validate_locally
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.methods import method_named
from qfl_core.base.errors import ConfigError, FederationError
from qfl_core.config import ExperimentConfig, read_yaml
from qfl_core.network import wire
from qfl_core.network.nodes import DEPLOYMENT, SIMULATION, Nodes, Patience, require_no_memory
from qfl_core.network.site import open_site
from qfl_core.runs import code_digest, run_experiment

#: Settings of ``[tool.flwr.app.config]`` that are fields of the experiment; ``experiment`` holds all others.
FIELDS = ("dataset", "method", "clients", "rounds", "seed")

server_app = ServerApp()
client_app = ClientApp()


def experiment_of(run_config: dict[str, Any]) -> ExperimentConfig:
    """Return the experiment that a run config describes; what ``experiment`` (YAML or JSON) says wins."""
    text = str(run_config.get("experiment", "")).strip() or "{}"
    try:
        further = json.loads(text)  # first, as YAML takes JSON's 1e-05 for a word
    except json.JSONDecodeError:
        further = read_yaml(text, "experiment")
    if not isinstance(further, dict):
        raise ConfigError(f"experiment must map settings to values, got {text!r}")
    return ExperimentConfig.from_dict({name: run_config[name] for name in FIELDS if name in run_config} | further)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Run the experiment over the grid's nodes and write its results folder."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    settings = context.run_config
    config = experiment_of(settings)
    require_no_memory(method_named(config.method))
    patience = Patience(
        timeout=float(settings["timeout"]), wait=float(settings["wait"]), minimum=int(settings["min-clients"])
    )
    # Only the simulation's grid is not a connection.
    nodes = Nodes(grid, patience, SIMULATION if type(grid).__name__ == "InMemoryGrid" else DEPLOYMENT)
    folder = settings["data-dir"]
    federation = open_site(config, folder) if folder else Federation.create(config)
    nodes.gather(len(federation.participants(0)))
    run_experiment(
        config,
        settings["results-dir"],
        repeat=bool(settings["repeat"]),
        federation=replace(federation, clients=nodes),
    )


def _end_with(parent: int) -> None:
    """End this process soon after the one that started it, which ends with the SuperLink.

    Flower's own shutdown waits for a SuperLink that is gone, and would keep the run's lock; every complete round is on
    disk, so the next run resumes.
    """
    while os.getppid() == parent:
        time.sleep(1)
    time.sleep(3)
    os._exit(1)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Train this node's client as often as the message asks, and send up the selected weights with their summaries."""
    return _answer(message, context, _train)


@client_app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Score the new global models on this node's validation rows: one number a model."""
    return _answer(message, context, _evaluate)


def _train(federation: Federation, client: int, request: wire.Request):
    if client not in request.participants:
        return wire.pack_uploads(client, [], [])
    batch = federation.batch(request.t, np.array([client]))
    results = [train_locally(federation, request.models[0], b.phi, batch, b.adam_rate, b.purpose) for b in request.sent]
    return wire.pack_uploads(client, results, request.sent)


def _evaluate(federation: Federation, client: int, request: wire.Request):
    batch = federation.batch(request.t, np.array([client]))
    models = zip(request.models, request.sent, strict=True)
    return wire.pack_scores(client, [validate_locally(federation, theta, batch, b.purpose)[0] for theta, b in models])


def _answer(message: Message, context: Context, work) -> Message:
    """Do the work and reply; an error that may hold values of the data stays in this node's log."""
    try:
        federation, client = _own(context)
        request = wire.Request.unpack(message.content)
        if request.code != code_digest():
            raise FederationError("the node runs another version of the training code than the server")
        common = not context.node_config.get("data-dir")
        if common and request.data != federation.splits.provenance.sha256:
            raise FederationError("the node holds another copy of the data than the server")
        return Message(work(federation, client, request), reply_to=message)
    except FederationError as error:
        return Message(Error(code=0, reason=str(error)), reply_to=message)
    except Exception as error:
        log(ERROR, "this client cannot take part", exc_info=error)
        return Message(Error(code=0, reason=f"{type(error).__name__}; the node's log says more"), reply_to=message)


def _own(context: Context) -> tuple[Federation, int]:
    """Return the federation as this node sees it, and the client that it serves."""
    node = context.node_config
    if "partition-id" not in node:
        raise FederationError("the node config has no partition-id: it says which client the node serves")
    config, client = experiment_of(context.run_config), int(node["partition-id"])
    if not 0 <= client < config.clients:
        raise FederationError(f"partition-id={client}, but the clients are 0 to {config.clients - 1}")
    return _federation(config, str(node.get("data-dir", "")), client if node.get("data-dir") else None), client


@lru_cache(maxsize=4)
def _federation(config: ExperimentConfig, folder: str, client: int | None) -> Federation:
    """Build once what a process needs for all messages of a run; a simulation's processes serve many."""
    return open_site(config, folder, client) if folder else Federation.create(config)
