"""The clients of a round on Flower nodes: who is where, what was asked, who answered, and who is left out and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from logging import INFO, WARNING
from typing import TypeVar

import numpy as np
from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from qfl_core.algorithm import meta
from qfl_core.algorithm.client import Broadcast, LocalResult
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.samples import Attendance
from qfl_core.base.errors import FederationError
from qfl_core.config import ExperimentConfig
from qfl_core.network import wire
from qfl_core.runs.identity import code_digest
from qfl_core.runs.plugins import digests

#: What a run's environment says about how its clients were reached.
DEPLOYMENT, SIMULATION = "flower-deployment", "flower-simulation"

#: What one client answered.
Answer = TypeVar("Answer")
#: Why clients have no answer; a node that never said which client it serves stands under None.
Failures = dict[int | None, str]
#: What was asked, to the bit: round, purpose of the random streams, and the bytes of every array.
Question = tuple[int, str, bytes]


@dataclass(frozen=True)
class Patience:
    """How long the server waits, in seconds, and for how many clients.

    ``timeout`` is for the answers of one phase, ``wait`` for enough nodes to be online before the first round,
    ``minimum`` the clients that must give a valid upload for a round to count; ``poll`` is the time between two looks.
    """

    timeout: float = 300.0
    wait: float = 120.0
    minimum: int = 2
    poll: float = 0.2


@dataclass(eq=False)
class NodeTrainer:
    """Trains and scores clients by messages; a :class:`qfl_core.algorithm.server.Trainer`.

    A node says which client it serves in its first answer. Until then it is asked in every round, and so is a node
    that joins late. A client that fails in one round is asked again in the next. Where the local optimiser remembers
    something of each client, new nodes are first asked which client they serve, because a client's state goes to that
    client's node alone.

    The algorithms ask for one round at a time, but every message costs seconds, because Flower starts a process for it.
    So the trainer foresees what will be asked next, and sends it in the same message:

    - with a real round after which Algorithm 3 is due, the two virtual rounds (named random streams make the perturbed
      controllers known in advance);
    - with the new model of that round, the new models of the two virtual rounds.

    It keeps the answers to what it foresaw until they are asked for, or until something else is. A kept answer is given
    only to the same question (the same round, purpose and arrays, to the bit), and a node gives the same answer
    whenever it is asked. So a wrong guess costs time and changes no number.

    Parameters
    ----------
    grid : Flower's connection to the nodes.
    data_sha256 : digest of the server's data; nodes that load a common dataset compare it with theirs.
    """

    grid: Grid
    data_sha256: str
    patience: Patience = field(default_factory=Patience)
    transport: str = DEPLOYMENT
    client_of: dict[int, int] = field(default_factory=dict)
    node_of: dict[int, int] = field(default_factory=dict)
    _trained: dict[Question, tuple[Broadcast, LocalResult]] = field(default_factory=dict)
    _scored: dict[Question, np.ndarray] = field(default_factory=dict)

    def gather(self, wanted: int) -> None:
        """Wait until as many nodes as clients are online, or the waiting time is over and enough are."""
        deadline = time.monotonic() + self.patience.wait
        online = 0
        while time.monotonic() < deadline:
            online = len(list(self.grid.get_node_ids()))
            if online >= wanted:
                return
            time.sleep(self.patience.poll)
        least = min(self.patience.minimum, wanted)
        if online < least:
            raise FederationError(
                f"{online} of {wanted} nodes are online after {self.patience.wait:g} s, at least {least} are needed"
            )
        log(WARNING, "%s of %s nodes are online; starting without the others", online, wanted)

    def train(self, federation: Federation, sent: Broadcast) -> LocalResult:
        """Return the valid uploads of the participants' nodes for this round."""
        question = _training(sent)
        if question in self._trained:
            return self._trained[question][1]
        foreseen = virtual_rounds(federation, sent)
        result, *further = self._train(federation, (sent, *foreseen))
        pairs = zip(foreseen, further, strict=True)
        self._trained = {_training(broadcast): (broadcast, local) for broadcast, local in pairs}
        return result

    def _train(self, federation: Federation, sent: tuple[Broadcast, ...]) -> list[LocalResult]:
        """Send rounds that start alike to the participants' nodes; return the valid uploads of each round."""
        t = sent[0].t
        participants = tuple(int(i) for i in federation.participants(t))
        request = wire.TrainRequest(self._header(t, participants), sent)
        failures: Failures = {}
        if sent[0].state:
            failures = self._introduce(request.header)
            known = {node: self.client_of[node] for node in self.grid.get_node_ids() if node in self.client_of}
            contents = {node: request.pack(i) for node, i in known.items() if i in participants}
        else:
            content, online = request.pack(), self.grid.get_node_ids()
            contents = {n: content for n in online if self.client_of.get(n, participants[0]) in participants}

        def read(client_id: int, content: RecordDict) -> list[LocalResult] | None:
            return wire.unpack_uploads(federation, request, content) if client_id in participants else None

        answers, further = self._ask(MessageType.TRAIN, t, contents, read)
        failures |= further
        uploads = {client_id: found for client_id, found in answers.items() if found is not None}
        absent = tuple((i, _reason(i, failures)) for i in participants if i not in uploads)
        self._require(t, len(uploads), len(participants), absent)
        return [wire.together([found[b] for found in uploads.values()], absent) for b in range(len(sent))]

    def _introduce(self, header: wire.Header) -> Failures:
        """Ask the nodes that never answered which client they serve."""
        content = header.pack()
        new = {node: content for node in self.grid.get_node_ids() if node not in self.client_of}
        return self._ask(MessageType.QUERY, header.t, new, lambda *_: None)[1] if new else {}

    def validate(
        self, federation: Federation, theta: np.ndarray, attendance: Attendance, purpose: str = "round"
    ) -> np.ndarray:
        """Return the validation accuracy (clients,) of the clients that trained; NaN is a client without an answer."""
        question = _scoring(theta, attendance, purpose)
        if question in self._scored:
            return self._scored[question]
        foreseen = self._foreseen_models(federation, attendance) if purpose == "round" else []
        score, *further = self._validate(attendance, [(theta, purpose), *foreseen])
        pairs = zip(foreseen, further, strict=True)
        self._scored = {_scoring(model, attendance, name): scores for (model, name), scores in pairs}
        return score

    def _foreseen_models(self, federation: Federation, attendance: Attendance) -> list[tuple[np.ndarray, str]]:
        """Return the new models of the kept virtual rounds, where the uploads alone decide them.

        Learned aggregation weights and a server optimiser's memory are the server's, and are not known here.
        """
        method = federation.method
        if method.server is not None or method.aggregation.init(federation.config.clients):
            return []
        models = []
        for sent, local in self._trained.values():
            if sent.t == attendance.t:
                weights = method.aggregation(local.attendance, {"controller": sent.phi})
                models.append((method.aggregation.combine(local.theta, weights), sent.purpose))
        return models

    def _validate(self, attendance: Attendance, models: Sequence[tuple[np.ndarray, str]]) -> list[np.ndarray]:
        """Let the clients that trained score models; return (clients,) for each."""
        client_ids = [int(i) for i in attendance.client_ids]
        header = self._header(attendance.t, tuple(client_ids))
        request = wire.EvaluateRequest(header, np.array([m for m, _ in models]), tuple(name for _, name in models))
        content = request.pack()
        scores, failures = self._ask(
            MessageType.EVALUATE,
            attendance.t,
            {self.node_of[i]: content for i in client_ids},
            lambda _, answer: wire.unpack_scores(request, answer),
        )
        absent = tuple((i, _reason(i, failures)) for i in client_ids if i not in scores)
        self._require(attendance.t, len(scores), len(client_ids), absent)
        silent = np.full(len(models), np.nan)
        return list(np.array([scores.get(i, silent) for i in client_ids]).T)

    def _header(self, t: int, participants: tuple[int, ...]) -> wire.Header:
        return wire.Header(t, participants, code_digest(), self.data_sha256)

    def _ask(
        self, kind: str, t: int, contents: Mapping[int, RecordDict], read: Callable[[int, RecordDict], Answer]
    ) -> tuple[dict[int, Answer], Failures]:
        """Send each node its content; return what each client answered, and why others have no answer."""
        begun = time.monotonic()
        messages = [
            Message(content, node, kind, ttl=self.patience.timeout + 60, group_id=str(t + 1))
            for node, content in contents.items()
        ]
        asked: dict[str, int] = {}
        answers: dict[int, Answer] = {}
        failures: Failures = {}
        for message, identifier in zip(messages, self.grid.push_messages(messages), strict=True):
            node = message.metadata.dst_node_id
            if identifier:
                asked[identifier] = node
            else:
                failures[self.client_of.get(node)] = "the SuperLink did not take the message for its node"
        while asked:
            for reply in self.grid.pull_messages(list(asked)):
                node = asked.pop(reply.metadata.reply_to_message_id)
                try:
                    client_id = self._sender(node, reply, answers)
                    answers[client_id] = read(client_id, reply.content)
                    self.client_of[node], self.node_of[client_id] = client_id, node
                except FederationError as error:
                    failures[self._blamed(node, reply, answers)] = str(error)
                except Exception as error:  # whatever a node sends, it must not stop the others
                    unreadable = f"an answer that cannot be read ({type(error).__name__})"
                    failures[self._blamed(node, reply, answers)] = unreadable
            if asked and time.monotonic() > begun + self.patience.timeout:
                break
            time.sleep(self.patience.poll if asked else 0)
        for node in asked.values():
            failures[self.client_of.get(node)] = f"no answer within {self.patience.timeout:g} s"
        seconds = time.monotonic() - begun
        told = "[round %s] %s: %s answers, %s failures, %.1f s"
        log(INFO, told, t + 1, kind, len(answers), len(failures), seconds)
        for blamed, reason in failures.items():
            log(WARNING, "[round %s] client %s is left out: %s", t + 1, blamed, reason)
        return answers, failures

    def _sender(self, node: int, reply: Message, answers: Mapping[int, object]) -> int:
        """Return the client that a reply is from; a node cannot change its client, nor take another's."""
        if reply.has_error():
            raise FederationError(f"its node reports: {reply.error.reason}")
        client_id = wire.sender(reply.content)
        if self.client_of.get(node, client_id) != client_id:
            raise FederationError(f"the node of client {self.client_of[node]} claims to be client {client_id}")
        if client_id in answers:
            raise FederationError(f"a second node claims to be client {client_id}")
        return client_id

    def _blamed(self, node: int, reply: Message, answers: Mapping[int, object]) -> int | None:
        """Return the client that a useless reply stands for: the node's, else the one it claims if that is free."""
        if node in self.client_of or reply.has_error():
            return self.client_of.get(node)
        with suppress(Exception):
            claimed = wire.sender(reply.content)
            return None if claimed in answers else claimed
        return None

    def _require(self, t: int, valid: int, asked: int, absent: tuple[tuple[int, str], ...]) -> None:
        least = min(self.patience.minimum, asked)
        if valid < least:
            reasons = "; ".join(f"client {i}: {reason}" for i, reason in absent)
            raise FederationError(
                f"round {t + 1}: {valid} of {asked} clients gave a valid answer, {least} are needed ({reasons})"
            )


def virtual_rounds(federation: Federation, sent: Broadcast) -> tuple[Broadcast, ...]:
    """Return what Algorithm 3 will ask for after this round: two virtual rounds, or nothing."""
    if not sent.is_real or not meta.is_due(federation, sent.t):
        return ()
    config, phi = federation.config, {"controller": sent.phi}
    direction = meta.outer_direction(phi, config.seed, sent.t)
    steps = (config.outer_perturbation, -config.outer_perturbation)
    controllers = [meta.moved(phi, step, direction)["controller"] for step in steps]
    return tuple(replace(sent, phi=controller, purpose="virtual") for controller in controllers)


def refuse_plugins(config: ExperimentConfig) -> None:
    """Refuse a config that names a plugin: a node has the package, but not the file that registers the plugin."""
    for kind in digests(config):
        raise FederationError(
            f"{kind} {getattr(config, kind)!r} is a plugin: nodes run the package's own methods, datasets, losses and "
            "circuits, because they do not have your file; run it in one process (python -m qfl_core run)"
        )


def _training(sent: Broadcast) -> Question:
    state = b"".join(sent.state[name].tobytes() for name in sorted(sent.state))
    return sent.t, sent.purpose, sent.theta.tobytes() + sent.phi.tobytes() + state


def _scoring(theta: np.ndarray, attendance: Attendance, purpose: str) -> Question:
    return attendance.t, purpose, theta.tobytes() + attendance.client_ids.tobytes()


def _reason(client_id: int, failures: Failures) -> str:
    return failures.get(client_id) or failures.get(None) or "no node serves this client"
