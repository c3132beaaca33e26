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
from collections.abc import Mapping
from functools import lru_cache
from logging import ERROR

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.supercore import log

from qfl_core.algorithm.client import Broadcast, LocalResult, train_locally, validate_locally
from qfl_core.algorithm.federation import Federation
from qfl_core.base.errors import ConfigError, FederationError
from qfl_core.config import ExperimentConfig, read_yaml
from qfl_core.network import wire
from qfl_core.network.asking import Nodes, Patience
from qfl_core.network.flower import ask_again_when_cut
from qfl_core.network.member import Member, check_demands, memory_of, noisy_upload, whole_numbers
from qfl_core.network.nodes import DEPLOYMENT, SIMULATION, NodeTrainer, refuse_foreign
from qfl_core.network.private import PrivateNodes
from qfl_core.network.site import open_site
from qfl_core.runs.identity import code_digest
from qfl_core.runs.prepare import Prepared, prepare
from qfl_core.runs.run import run_prepared

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
    refuse_foreign(config)
    return config


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Run the experiment over the grid's nodes and write its results folder."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    ask_again_when_cut()
    settings = context.run_config
    config = experiment_of(settings)
    patience = Patience(
        timeout=float(settings["timeout"]),
        wait=float(settings["wait"]),
        minimum=int(settings["min-clients"]),
        again=float(settings["ask-again"]),
    )
    folder = str(settings["data-dir"])
    prepared = open_site(config, folder) if folder else prepare(config)
    # Only the simulation's grid is not a connection.
    transport = SIMULATION if type(grid).__name__ == "InMemoryGrid" else DEPLOYMENT
    nodes = Nodes(grid, patience)
    nodes.gather(len(prepared.federation.participants(0)))
    kind = PrivateNodes if config.is_private else NodeTrainer
    trainer = kind(nodes, prepared.source.sha256, transport)
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
    return _answer(message, context)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Train this node's client once per broadcast, and send up the selected weights with their summaries."""
    return _answer(message, context)


@client_app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Score new global models on this node's validation rows: one number per model."""
    return _answer(message, context)


def _answer(message: Message, context: Context) -> Message:
    """Do what a message asks and reply; an error that may hold values of the data stays in this node's log."""
    try:
        prepared, client_id = _own(context)
        code, data = wire.digests(message.content)
        if code != code_digest():
            raise FederationError("the node runs another version of the training code than the server")
        common = not context.node_config.get("data-dir")
        if common and data != prepared.source.sha256:
            raise FederationError("the node holds another copy of the data than the server")
        check_demands(prepared.federation.config, context.node_config)
        request = wire.Request.unpack(message.content, prepared.federation, client_id)
        if prepared.federation.config.is_private:
            return Message(_private(prepared.federation, client_id, request, message, context), reply_to=message)
        return Message(_work(prepared.federation, client_id, request), reply_to=message)
    except FederationError as error:
        return Message(Error(code=0, reason=str(error)), reply_to=message)
    except Exception as error:
        log(ERROR, "this client cannot take part", exc_info=error)
        return Message(Error(code=0, reason=f"{type(error).__name__}; the node's log says more"), reply_to=message)


def _work(federation: Federation, client_id: int, request: wire.Request) -> RecordDict:
    """Train and score what is asked of one client, in the federation as its node sees it."""
    own, uploads, accuracies = np.array([client_id]), [], []
    if (training := request.training) and client_id in training.participants:
        batch = federation.batch(training.t, own)
        uploads = [(sent, train_locally(federation, sent, batch)) for sent in training.sent]
    if scoring := request.scoring:
        models = zip(scoring.models, scoring.purposes, strict=True)
        accuracies = [validate_locally(federation, theta, scoring.t, own, purpose)[0] for theta, purpose in models]
    return wire.pack_answer(client_id, uploads, accuracies)


def _private(
    federation: Federation, client_id: int, request: wire.Request, message: Message, context: Context
) -> RecordDict:
    """Answer in a private run: a step with noise, or one phase of a masked round. Scores are never told."""
    own, memory, training = np.array([client_id]), memory_of(context.state), request.training
    if request.scoring:
        raise FederationError("a private run has no scores of clients")

    def trained() -> tuple[Broadcast, LocalResult]:
        if training is None or client_id not in training.participants:
            raise FederationError("nothing to train")
        return training.sent[0], train_locally(federation, training.sent[0], federation.batch(training.t, own))

    if phase := wire.phase_asked(message.content):
        name, t, told = phase
        told |= {"theta": training.sent[0].theta.tobytes(), "phi": training.sent[0].phi.tobytes()} if training else {}
        found = Member(client_id, memory).answer(name, t, told, lambda: whole_numbers(federation, *trained()))
        return wire.pack_told(client_id, found)
    if training is None or client_id not in training.participants:
        return wire.pack_answer(client_id)
    if federation.config.uploads == "masked":
        raise FederationError("uploads are masked in this run: the server asked for a plain one")
    return wire.pack_noisy(client_id, noisy_upload(federation, *trained(), memory))


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
