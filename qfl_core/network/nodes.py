"""The clients of a round on Flower nodes: who is where, what was asked, who answered, and who is left out and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from logging import INFO, WARNING

import numpy as np
from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from qfl_core.algorithm.client import LocalResult
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.methods import Method
from qfl_core.algorithm.server import Broadcast
from qfl_core.base.errors import FederationError
from qfl_core.network import wire
from qfl_core.runs import code_digest

#: What a run's environment says about how its clients were reached.
DEPLOYMENT, SIMULATION = "flower-deployment", "flower-simulation"


@dataclass(frozen=True)
class Patience:
    """How long the server waits, in seconds, and for how many.

    ``timeout`` is for the answers of one phase, ``wait`` for enough nodes to be online before the first round,
    ``minimum`` the clients that must give a valid upload for a round to count; ``poll`` is the time between two looks.
    """

    timeout: float = 300.0
    wait: float = 120.0
    minimum: int = 2
    poll: float = 0.2


@dataclass(eq=False)
class Nodes:
    """Trains and scores clients by messages; a :class:`qfl_core.algorithm.server.Clients`.

    A node says which client it serves in its first answer; until then it is asked in every round, and so is a node
    that joins late. A client that fails in one round is asked again in the next.
    """

    grid: Grid
    patience: Patience = field(default_factory=Patience)
    transport: str = DEPLOYMENT
    client_of: dict[int, int] = field(default_factory=dict)
    node_of: dict[int, int] = field(default_factory=dict)

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

    def train(self, federation: Federation, theta: np.ndarray, t: int, sent: Sequence[Broadcast]) -> list[LocalResult]:
        """Send the round to the participants' nodes and return the valid uploads, for each broadcast."""
        require_no_memory(federation.method)
        participants = tuple(int(i) for i in federation.participants(t))
        request = _request(federation, t, theta[None], sent, participants)
        online = [n for n in self.grid.get_node_ids() if self.client_of.get(n, participants[0]) in participants]

        def read(client: int, content: RecordDict) -> list[LocalResult] | None:
            return wire.unpack_uploads(federation, request, content) if client in participants else None

        uploads, failures = self._ask(MessageType.TRAIN, request, online, read)
        uploads = {client: found for client, found in uploads.items() if found is not None}
        absent = tuple((i, _reason(i, failures)) for i in participants if i not in uploads)
        self._require(t, len(uploads), len(participants), absent)
        return [wire.together([found[b] for found in uploads.values()], absent) for b in range(len(sent))]

    def validate(
        self,
        federation: Federation,
        models: Sequence[np.ndarray],
        sent: Sequence[Broadcast],
        trained: Sequence[LocalResult],
    ) -> list[np.ndarray]:
        """Let the clients that trained score the new models, (clients,) each; NaN is a client that did not answer."""
        attendance = trained[0].attendance  # one message carries all broadcasts, so all have the same clients
        clients = [int(i) for i in attendance.clients]
        request = _request(federation, attendance.t, np.array(models), sent, tuple(clients))
        nodes = [self.node_of[client] for client in clients]
        scores, failures = self._ask(
            MessageType.EVALUATE,
            request,
            nodes,
            lambda _, content: wire.unpack_scores(request, content),
        )
        absent = tuple((i, _reason(i, failures)) for i in clients if i not in scores)
        self._require(attendance.t, len(scores), len(clients), absent)
        silent = np.full(len(sent), np.nan)
        return list(np.array([scores.get(i, silent) for i in clients]).T)

    def _ask(
        self, kind: str, request: wire.Request, nodes: Iterable[int], read: Callable
    ) -> tuple[dict[int, object], dict[int | None, str]]:
        """Send one request to the nodes; return what each client answered, and why others have no answer.

        A failure of a node that never said which client it serves is filed under None.
        """
        begun = time.monotonic()
        content, asked = request.pack(), {}
        messages = [
            Message(content, node, kind, ttl=self.patience.timeout + 60, group_id=str(request.t + 1)) for node in nodes
        ]
        answers: dict[int, object] = {}
        failures: dict[int | None, str] = {}
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
                    client = self._sender(node, reply, answers)
                    answers[client] = read(client, reply.content)
                    self.client_of[node], self.node_of[client] = client, node
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
        log(
            INFO,
            "[round %s] %s: %s answers, %s failures, %.1f s",
            request.t + 1,
            kind,
            len(answers),
            len(failures),
            time.monotonic() - begun,
        )
        for client, reason in failures.items():
            log(WARNING, "[round %s] client %s is left out: %s", request.t + 1, client, reason)
        return answers, failures

    def _sender(self, node: int, reply: Message, answers: Mapping[int, object]) -> int:
        """Return the client that a reply is from; a node cannot change its client, nor take another's."""
        if reply.has_error():
            raise FederationError(f"its node reports: {reply.error.reason}")
        client = wire.sender(reply.content)
        if self.client_of.get(node, client) != client:
            raise FederationError(f"the node of client {self.client_of[node]} claims to be client {client}")
        if client in answers:
            raise FederationError(f"a second node claims to be client {client}")
        return client

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


def require_no_memory(method: Method) -> None:
    """Refuse a method whose correction remembers something of each client: messages do not carry it."""
    if method.correction:
        raise FederationError(
            f"{method.label} keeps a state of each client from round to round, which does not travel: run it in one "
            "process (python -m qfl_core run)"
        )


def _request(
    federation: Federation, t: int, models: np.ndarray, sent: Sequence[Broadcast], participants: tuple[int, ...]
) -> wire.Request:
    return wire.Request(t, models, tuple(sent), participants, code_digest(), federation.splits.provenance.sha256)


def _reason(client: int, failures: dict[int | None, str]) -> str:
    return failures.get(client) or failures.get(None) or "no node serves this client"
