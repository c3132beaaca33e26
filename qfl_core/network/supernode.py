"""A SuperNode that answers many messages in one process: ``python -m qfl_core.network.supernode``.

It speaks to the SuperLink through Flower's own connection, and takes the options of ``flower-supernode``. It differs in
four ways:

- It imports the package once and keeps the federation in memory. ``flower-supernode`` starts a process per message.
- It runs the ClientApp of the installed package, whatever code the bundle of a run may carry; it opens no port.
- It sends again what a busy SuperLink did not take, and keeps its last answer: being asked again costs no training.
- It ends when the SuperLink refuses it. ``flower-supernode`` stays, without a connection.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from logging import ERROR, INFO
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Context, Error, Message, RecordDict
from flwr.common.args import try_obtain_root_certificates
from flwr.common.config import get_fused_config_from_fab, parse_config_args
from flwr.common.constant import ErrorCode
from flwr.supercore import log
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    inflate_object_from_contents,
    pull_objects,
    push_objects,
)
from flwr.supercore.run import RunNotRunningException
from flwr.supernode.fleet_http_connection import http_request_response

from qfl_core.network.flower import ask_again_when_cut

APP = "qfl_core.network.app:client_app"
#: Seconds between two looks for a message: few after a message, because the next one is near, and ever more without.
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.1, 3.0, 1.5

#: Answers a message in the context of its run.
App = Callable[[Message, Context], Message]


@dataclass(frozen=True, eq=False)
class Link:
    """Flower's connection to a SuperLink: what a node can ask of it."""

    node_id: int
    receive: Callable[[], Any]
    send: Callable[..., Any]
    get_run: Callable[[int], Any]
    get_fab: Callable[[str, int], Any]
    pull_object: Callable[[int, str], bytes]
    push_object: Callable[[int, str, str, bytes], None]
    confirm: Callable[[int, str], None]


@dataclass(eq=False)
class Node:
    """Answers the messages of a SuperLink, one after the other.

    The last answer is kept: a server that did not get it asks the same question again.
    """

    link: Link
    node_config: dict[str, Any]
    app: App
    _contexts: dict[int, Context] = field(default_factory=dict)
    _question: str = ""
    _answer: RecordDict | None = None

    def serve(self) -> None:
        """Answer messages until the connection is lost, which Flower's connection tells by an exception."""
        pauses = _pauses()
        while True:
            try:
                received = self.link.receive()
                if received is None:
                    time.sleep(next(pauses))
                    continue
                pauses = _pauses()
                self._reply(*received)
            except RunNotRunningException:
                log(INFO, "the run of a message is over: it is not answered")
            except (ObjectPullError, ObjectPushError) as error:
                log(ERROR, "a message or its answer got lost; the server asks again: %s", error)

    def _reply(self, head: Message, tree: Any) -> None:
        """Pull a message, answer it, and push the answer."""
        run_id, began = head.metadata.run_id, time.monotonic()
        identifiers = [part.object_id for part in iterate_object_tree(tree)]
        contents = pull_objects(identifiers, partial(self.link.pull_object, run_id))
        self.link.confirm(run_id, head.metadata.message_id)
        message = inflate_object_from_contents(tree.object_id, contents)
        message.metadata.__dict__["_message_id"] = tree.object_id
        log(INFO, "[round %s] %s", message.metadata.group_id, message.metadata.message_type)
        reply = self._answered(message)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with no_object_id_recompute():
            wanted, session = self.link.send(reply, get_object_tree(reply), time.monotonic() - began)
            push = partial(self.link.push_object, run_id, session)
            push_objects(get_all_nested_objects(reply), push, object_ids_to_push=wanted)

    def _answered(self, message: Message) -> Message:
        """Let the app answer a message; the same question as before gets the same answer without new work."""
        question = f"{message.metadata.run_id} {message.content.object_id}"
        if question == self._question and self._answer is not None:
            return Message(self._answer, reply_to=message)
        context = self._context(message.metadata.run_id)
        try:
            reply = self.app(message, context)
        except Exception as error:
            log(ERROR, "the ClientApp failed", exc_info=error)
            failed = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"{type(error).__name__}; the node's log says more")
            return Message(failed, reply_to=message)
        self._question, self._answer = question, reply.content if reply.has_content() else None
        return reply

    def _context(self, run_id: int) -> Context:
        """Return the settings of a run, as its bundle and its command line give them."""
        if run_id not in self._contexts:
            run = self.link.get_run(run_id)
            settings = get_fused_config_from_fab(self.link.get_fab(run.fab_hash, run_id).content, run)
            context = Context(run_id, self.link.node_id, self.node_config, RecordDict(), settings, run.series_id)
            self._contexts = {run_id: context}  # those of a run before are not needed any more
        return self._contexts[run_id]


def _pauses() -> Iterator[float]:
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(pause * GROWTH, LONGEST_PAUSE)


def _connection(asked: argparse.Namespace) -> AbstractContextManager[tuple[Any, ...]]:
    certificates = try_obtain_root_certificates(asked, asked.superlink)
    keys = _keys(Path(asked.auth_supernode_private_key)) if asked.auth_supernode_private_key else None
    if asked.insecure and keys:
        raise SystemExit("--auth-supernode-private-key needs TLS: leave out --insecure")
    return http_request_response(
        asked.superlink, asked.insecure, certificates, keys, asked.max_retries, asked.max_wait_time
    )


def _keys(path: Path) -> tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]:
    try:
        key = load_ssh_private_key(path.expanduser().read_bytes(), None)
    except (OSError, ValueError) as error:
        raise SystemExit(f"--auth-supernode-private-key {path} cannot be read: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SystemExit(f"--auth-supernode-private-key {path} is not a key of an elliptic curve")
    return key, key.public_key()


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m qfl_core.network.supernode", description=__doc__.split("\n")[0])
    parser.add_argument("--superlink", default="127.0.0.1:8000", help="address of the SuperLink, host:port")
    parser.add_argument("--root-certificates", help="certificate of the authority that signed the SuperLink's")
    parser.add_argument("--insecure", action="store_true", help="no TLS")
    parser.add_argument("--auth-supernode-private-key", help="this node's key; its .pub is on the SuperLink's list")
    parser.add_argument("--node-config", help="such as 'partition-id=0 data-dir=\"/srv/qfl/client-0\"'")
    parser.add_argument("--max-retries", type=int, help="how often to try again to connect; without it, for ever")
    parser.add_argument("--max-wait-time", type=float, help="seconds of trying to connect; without it, for ever")
    parser.add_argument("--app", default=APP, help=f"the ClientApp to run, module:name ({APP})")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Connect and answer messages; end with 1 when the connection is lost."""
    asked = _options().parse_args(arguments)
    module, _, name = asked.app.partition(":")
    app: App = getattr(import_module(module), name)
    ask_again_when_cut()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that Flower's connection can take its leave
    config = parse_config_args([asked.node_config] if asked.node_config else None)
    try:
        with _connection(asked) as connection:
            link = Link(*connection)
            log(INFO, "SuperNode ID: %s", link.node_id)
            Node(link, config, app).serve()
    except KeyboardInterrupt:  # Flower's connection sends this signal where the SuperLink does not know the node
        log(INFO, "interrupted")
        return 130
    log(ERROR, "the connection to the SuperLink is lost: this node ends")
    return 1


if __name__ == "__main__":
    sys.exit(main())
