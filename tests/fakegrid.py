"""A grid without a network: every node is a call of the real ClientApp, and every message is kept for inspection."""

from __future__ import annotations

import itertools

from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from qfl_core.network.app import client_app

RUN_CONFIG = {"experiment": "", "results-dir": "", "data-dir": "", "timeout": 20.0, "wait": 1.0, "min-clients": 2}


class FakeGrid:
    """Nodes 100, 101, ... with the given node configs; ``down`` and ``up`` hold what crossed the wire."""

    def __init__(self, config, node_configs, app=client_app, silent=()):
        self.run_config = RUN_CONFIG | {"experiment": config.to_json()}
        self.nodes = {100 + i: node for i, node in enumerate(node_configs)}
        self.app, self.silent = app, set(silent)
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # as Flower sets them
        self.down, self.up, self._waiting, self._numbers = [], [], {}, itertools.count(1)

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        identifiers = []
        for message in messages:
            identifier = f"m{next(self._numbers)}"
            message.metadata.__dict__["_message_id"] = identifier
            self.down.append(message)
            self._waiting[identifier] = message
            identifiers.append(identifier)
        return identifiers

    def pull_messages(self, identifiers):
        replies = []
        for identifier in list(identifiers):
            message = self._waiting[identifier]
            node = message.metadata.dst_node_id
            if node in self.silent:
                continue
            context = Context(1, node, self.nodes[node], RecordDict(), self.run_config)
            reply: Message = self.app(message, context)
            self.up.append(reply)
            replies.append(reply)
        return replies
