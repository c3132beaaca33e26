"""A grid without a network: every node is a call of the real ClientApp, and every message is kept for inspection."""

from __future__ import annotations

import itertools

from flwr.app import Context, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from qfl_core.network.app import client_app

RUN_CONFIG = {"experiment": "", "results-dir": "", "data-dir": "", "timeout": 20.0, "wait": 1.0, "min-clients": 2}


def through_bytes(message: Message) -> Message:
    """Return the message with a content that was written to bytes and read back, as on a network."""
    if message.has_content():
        written = {name: part.deflate() for name, part in get_all_nested_objects(message.content).items()}
        message.content = inflate_object_from_contents(message.content.object_id, written)
    return message


class FakeGrid:
    """Nodes 100, 101, ... with the given node configs; ``down`` and ``up`` hold what crossed the wire.

    A node in ``silent`` never answers; ``loses(message, copies)`` may answer a message, of which so many went to its
    node before, instead of the node: with an error, or with None, which loses it.
    """

    def __init__(self, config, node_configs, app=client_app, silent=(), loses=None):
        self.loses, self._copies = loses, {}
        self.run_config = RUN_CONFIG | {"experiment": config.to_json()}
        self.nodes = {100 + i: node for i, node in enumerate(node_configs)}
        self.app, self.silent = app, set(silent)
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # as Flower sets them
        self.contexts = {n: Context(1, n, node, RecordDict(), self.run_config) for n, node in self.nodes.items()}
        self.down, self.up, self._waiting, self._numbers = [], [], {}, itertools.count(1)

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        identifiers = []
        for message in messages:
            identifier = f"m{next(self._numbers)}"
            message.metadata.__dict__["_message_id"] = identifier
            self.down.append(through_bytes(message))
            self._waiting[identifier] = message
            identifiers.append(identifier)
        return identifiers

    def pull_messages(self, identifiers):
        replies = []
        for identifier in list(identifiers):
            message = self._waiting[identifier]
            if message is None or (node := message.metadata.dst_node_id) in self.silent:
                continue
            reply = self._reply(node, message)
            self._waiting[identifier] = None  # what is lost is lost, and nothing is answered twice
            if reply is not None:
                self.up.append(through_bytes(reply))
                replies.append(reply)
        return replies

    def _reply(self, node, message) -> Message | None:
        key = (node, message.metadata.message_type, message.content.object_id)
        copies = self._copies[key] = self._copies.get(key, -1) + 1
        if self.loses and (lost := self.loses(message, copies)) is not False:
            return lost
        if node not in self.contexts:
            self.contexts[node] = Context(1, node, self.nodes[node], RecordDict(), self.run_config)
        return self.app(message, self.contexts[node])
