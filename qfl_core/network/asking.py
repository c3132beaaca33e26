"""Questions to Flower nodes: who is where, what was asked, who answered, and why others have no answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from logging import INFO, WARNING
from typing import TypeVar

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore import log

from qfl_core.base.errors import FederationError
from qfl_core.network import wire

#: What one client answered.
Answer = TypeVar("Answer")
#: Why clients have no answer; a node that never said which client it serves stands under None.
Failures = dict[int | None, str]
#: Flower's words for a message, an answer or a process of a node that got lost on the way: asking again may help.
LOST = (
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
    ErrorCode.CLIENT_APP_CRASHED,
)


@dataclass(frozen=True)
class Patience:
    """How long the server waits, in seconds, and for how many clients.

    ``timeout`` is for the answers of one phase, ``wait`` for enough nodes to be online before the first round,
    ``minimum`` the clients that must give a valid upload for a round to count; ``poll`` is the time between two looks.
    A node that has not answered after ``again`` seconds is asked again, then after twice as long, and so on.
    """

    timeout: float = 300.0
    wait: float = 120.0
    minimum: int = 2
    poll: float = 0.2
    again: float = 30.0


@dataclass(eq=False)
class _Asked:
    """A node that has not answered yet: what it is asked, how often it was, and when it is asked again.

    ``loss`` is what Flower said of the last question or answer that got lost.
    """

    content: RecordDict
    tries: int = 0
    due: float = float("-inf")
    loss: str = ""


@dataclass(eq=False)
class Nodes:
    """The nodes behind a grid. A node says which client it serves in its first answer, and cannot change it.

    The network may lose a message or an answer: a SuperLink that is started again, a connection that is cut. So a node
    that does not answer is asked again. Its answer has the same bits whenever it is asked, because all random numbers
    come from named streams.
    """

    grid: Grid
    patience: Patience = field(default_factory=Patience)
    client_of: dict[int, int] = field(default_factory=dict)
    node_of: dict[int, int] = field(default_factory=dict)

    def online(self) -> list[int]:
        """Return the nodes that the SuperLink sees."""
        return list(self.grid.get_node_ids())

    def gather(self, wanted: int) -> None:
        """Wait until as many nodes as clients are online, or the waiting time is over and enough are."""
        deadline = time.monotonic() + self.patience.wait
        while (online := len(self.online())) < wanted and time.monotonic() < deadline:
            time.sleep(self.patience.poll)
        least = min(self.patience.minimum, wanted)
        if online < least:
            raise FederationError(
                f"{online} of {wanted} nodes are online after {self.patience.wait:g} s, at least {least} are needed"
            )
        if online < wanted:
            log(WARNING, "%s of %s nodes are online; starting without the others", online, wanted)

    def ask(
        self, kind: str, t: int, contents: Mapping[int, RecordDict], read: Callable[[int, RecordDict], Answer]
    ) -> tuple[dict[int, Answer], Failures]:
        """Send each node its content; return what each client answered, and why others have no answer."""
        begun = time.monotonic()
        waiting = {node: _Asked(content) for node, content in contents.items()}
        sent: dict[str, int] = {}
        answers: dict[int, Answer] = {}
        failures: Failures = {}
        while waiting:
            self._send(kind, t, waiting, sent, failures)
            open_questions = [identifier for identifier, node in sent.items() if node in waiting]
            for reply in self.grid.pull_messages(open_questions) if open_questions else ():
                node = sent.pop(reply.metadata.reply_to_message_id)
                if node not in waiting or self._is_lost(waiting[node], reply):
                    continue
                del waiting[node]
                try:
                    client_id = self._sender(node, reply, answers)
                    answers[client_id] = read(client_id, reply.content)
                    self.client_of[node], self.node_of[client_id] = client_id, node
                except FederationError as error:
                    failures[self._blamed(node, reply, answers)] = str(error)
                except Exception as error:  # whatever a node sends, it must not stop the others
                    unreadable = f"an answer that cannot be read ({type(error).__name__})"
                    failures[self._blamed(node, reply, answers)] = unreadable
            if waiting and time.monotonic() > begun + self.patience.timeout:
                break
            time.sleep(self.patience.poll if waiting else 0)
        for node, asked in waiting.items():
            failures[self.client_of.get(node)] = f"no answer within {self.patience.timeout:g} s{asked.loss}"
        _tell(kind, t, len(answers), failures, time.monotonic() - begun)
        return answers, failures

    def _send(self, kind: str, t: int, waiting: dict[int, _Asked], sent: dict[str, int], failures: Failures) -> None:
        """Send every question that is due; note when it is due again."""
        now, lifetime = time.monotonic(), self.patience.timeout + 60
        due = {node: asked for node, asked in waiting.items() if asked.due <= now}
        if not due:
            return
        messages = [Message(a.content, node, kind, ttl=lifetime, group_id=str(t + 1)) for node, a in due.items()]
        identifiers: Iterable[str | None] = self.grid.push_messages(messages)
        for (node, asked), identifier in zip(due.items(), identifiers, strict=True):
            if asked.tries:
                log(INFO, "[round %s] client %s is asked again", t + 1, self.client_of.get(node))
            if identifier:
                sent[identifier] = node
                asked.due = now + self.patience.again * 2**asked.tries
                asked.tries += 1
            else:
                del waiting[node]
                failures[self.client_of.get(node)] = "the SuperLink did not take the message for its node"

    def _is_lost(self, asked: _Asked, reply: Message) -> bool:
        """Tell whether a reply only says that something got lost, and let the node be asked again soon."""
        if not reply.has_error() or reply.error.code not in LOST:
            return False
        asked.loss = f" ({reply.error.reason})"
        asked.due = time.monotonic() + min(self.patience.again, self.patience.poll * 2**asked.tries)
        return True

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


def _tell(kind: str, t: int, answered: int, failures: Failures, seconds: float) -> None:
    told = "[round %s] %s: %s answers, %s failures, %.1f s"
    log(INFO, told, t + 1, kind, answered, len(failures), seconds)
    for blamed, reason in failures.items():
        log(WARNING, "[round %s] client %s is left out: %s", t + 1, blamed, reason)


def reason_of(client_id: int, failures: Failures) -> str:
    """Return why a client has no answer; a node that never said which client it serves may be the client's."""
    unknown = f"; of a node that did not say which client it serves: {failures[None]}" if None in failures else ""
    return failures.get(client_id) or f"no node serves this client{unknown}"
