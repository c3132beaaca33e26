"""The clients of a round on Flower nodes: what is asked together, what is foreseen, and who is left out and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from flwr.app import MessageType, RecordDict

from qfl_core.algorithm import meta
from qfl_core.algorithm.client import Broadcast, LocalResult
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.samples import Attendance
from qfl_core.algorithm.server import State
from qfl_core.base.errors import FederationError
from qfl_core.config import ExperimentConfig
from qfl_core.extras.screening import screened
from qfl_core.network import wire
from qfl_core.network.asking import Failures, Nodes, reason_of
from qfl_core.runs.identity import code_digest
from qfl_core.runs.plugins import digests

#: What a run's environment says about how its clients were reached.
DEPLOYMENT, SIMULATION = "flower-deployment", "flower-simulation"

#: What was asked, to the bit: round, purpose of the random streams, and the bytes of every array.
Question = tuple[int, str, bytes]


class _Answers(NamedTuple):
    """What the clients answered to one message, by client, and why others have no answer."""

    uploads: dict[int, list[LocalResult]]
    scores: dict[int, np.ndarray]
    not_trained: Failures
    not_scored: Failures


@dataclass(eq=False)
class NodeTrainer:
    """Trains and scores clients by messages; a :class:`qfl_core.algorithm.server.Trainer`.

    A node says which client it serves in its first answer. Until then it is asked in every round, and so is a node
    that joins late. A client that fails in one round is asked again in the next. Where the local optimiser remembers
    something of each client, new nodes are first asked which client they serve, because a client's state goes to that
    client's node alone.

    The algorithms ask for one thing at a time, but a message takes much longer than the training of a round. So the
    trainer foresees what will be asked next, and sends it in the same message:

    - with a real round after which Algorithm 3 is due, the two virtual rounds (named random streams make the perturbed
      controllers known in advance);
    - with the new model of that round, the new models of the two virtual rounds;
    - with the new model of a round after which Algorithm 3 is not due, the training of the next round from it.

    It keeps the answers to what it foresaw until they are asked for, or until something else is. A kept answer is given
    only to the same question (the same round, purpose and arrays, to the bit), and a node gives the same answer
    whenever it is asked. So a wrong guess costs time and changes no number.

    Parameters
    ----------
    nodes : Flower's nodes.
    data_sha256 : digest of the server's data; nodes that load a common dataset compare it with theirs.
    """

    nodes: Nodes
    data_sha256: str
    transport: str = DEPLOYMENT
    _real: Broadcast | None = None
    _trained: dict[Question, tuple[Broadcast, LocalResult]] = field(default_factory=dict)
    _scored: dict[Question, np.ndarray] = field(default_factory=dict)

    def train(self, federation: Federation, sent: Broadcast) -> LocalResult:
        """Return the valid uploads of the participants' nodes for this round."""
        question = _training(sent)
        if question not in self._trained:
            training = _with_virtual_rounds(federation, sent)
            found = self._ask(federation, training, None, ())
            self._require(sent.t, found.uploads, training.participants, found.not_trained)
            self._keep(training, found)
        if sent.is_real:
            self._real = sent
        return self._trained[question][1]

    def validate(
        self, federation: Federation, theta: np.ndarray, attendance: Attendance, purpose: str = "round"
    ) -> np.ndarray:
        """Return the validation accuracy (clients,) of the clients that trained; NaN is a client without an answer."""
        question = _scoring(theta, attendance, purpose)
        if question not in self._scored:
            models = [(theta, purpose)]
            if purpose == "round":
                models += self._foreseen_models(federation, attendance)
            names = tuple(name for _, name in models)
            scoring = wire.Scoring(attendance.t, np.array([model for model, _ in models]), names)
            following = self._following(federation, theta, attendance) if purpose == "round" else None
            client_ids = tuple(int(i) for i in attendance.client_ids)
            found = self._ask(federation, following, scoring, client_ids)
            self._require(attendance.t, found.scores, client_ids, found.not_scored)
            silent = np.full(len(models), np.nan)
            accuracies = np.array([found.scores.get(i, silent) for i in client_ids]).T
            pairs = zip(models, accuracies, strict=True)
            self._scored = {_scoring(model, attendance, name): scores for (model, name), scores in pairs}
            # A round that too few clients trained is asked for again when it is due, and stops the run then.
            if following and len(found.uploads) >= self._least(following.participants):
                self._keep(following, found)
        return self._scored[question]

    def _foreseen_models(self, federation: Federation, attendance: Attendance) -> list[tuple[np.ndarray, str]]:
        """Return the new models of the kept virtual rounds, where the uploads alone decide them.

        Learned aggregation weights and a server optimiser's memory are the server's, and are not known here.
        """
        method = federation.method
        if method.server is not None or method.aggregation.init(federation.config.clients):
            return []
        models = []
        for sent, local in self._trained.values():
            if sent.t == attendance.t and not sent.is_real:
                local = screened(federation.config, sent, local)
                weights = method.aggregation(local.attendance, {"controller": sent.phi})
                models.append((method.aggregation.combine(local.theta, weights), sent.purpose))
        return models

    def _following(self, federation: Federation, theta: np.ndarray, attendance: Attendance) -> wire.Training | None:
        """Return the training of the next round, where its start is known: model, controller, and no state.

        What the local optimiser remembers is the server's, and is not known here.
        """
        real, t = self._real, attendance.t + 1
        is_known = real is not None and real.t == attendance.t and not real.state
        if real is None or not is_known or meta.is_due(federation, attendance.t) or t == federation.config.rounds:
            return None
        return _with_virtual_rounds(federation, Broadcast(t, theta, real.phi))

    def _keep(self, training: wire.Training, found: _Answers) -> None:
        """Keep the uploads of every round of a message until they are asked for."""
        missing = absent(training.participants, found.uploads, found.not_trained)
        self._trained = {
            _training(sent): (sent, wire.together([uploads[b] for uploads in found.uploads.values()], missing))
            for b, sent in enumerate(training.sent)
        }

    def _ask(
        self,
        federation: Federation,
        training: wire.Training | None,
        scoring: wire.Scoring | None,
        scorers: tuple[int, ...],
    ) -> _Answers:
        """Let participants train and ``scorers`` score, by one message to each node."""
        t = training.t if training else scoring.t if scoring else 0
        request = wire.Request(code_digest(), self.data_sha256, training, scoring)
        failures: Failures = {}
        if training and training.sent[0].state:
            failures = self._introduce(request, t)
        found = _Answers({}, {}, {}, {})

        def read(client_id: int, content: RecordDict) -> None:
            wire.check_fields(request, content)
            if training and client_id in training.participants:
                try:
                    found.uploads[client_id] = wire.unpack_uploads(federation, training, content)
                except FederationError as error:
                    found.not_trained[client_id] = str(error)
            if scoring and client_id in scorers:
                try:
                    found.scores[client_id] = wire.unpack_scores(scoring, content)
                except FederationError as error:
                    found.not_scored[client_id] = str(error)

        kind = MessageType.TRAIN if training else MessageType.EVALUATE
        failures |= self.nodes.ask(kind, t, self._contents(request, scorers), read)[1]
        return found._replace(not_trained=failures | found.not_trained, not_scored=failures | found.not_scored)

    def _contents(self, request: wire.Request, scorers: tuple[int, ...]) -> dict[int, RecordDict]:
        """Return what every node is sent; nodes that are asked the same share one content."""
        training, scoring = request.training, request.scoring
        has_state = training is not None and bool(training.sent[0].state)
        targets = dict.fromkeys([*self.nodes.online(), *(self.nodes.node_of[i] for i in scorers)])
        packed: dict[tuple[bool, bool, int | None], RecordDict] = {}
        contents = {}
        for node in targets:
            client_id = self.nodes.client_of.get(node)
            is_new = client_id is None and not has_state
            trains = training is not None and (is_new or client_id in training.participants)
            scores = scoring is not None and client_id in scorers
            if trains or scores:
                key = (trains, scores, client_id if has_state else None)
                if key not in packed:
                    asked = replace(request, training=training if trains else None, scoring=scoring if scores else None)
                    packed[key] = asked.pack(client_id)
                contents[node] = packed[key]
        return contents

    def _introduce(self, request: wire.Request, t: int) -> Failures:
        """Ask the nodes that never answered which client they serve."""
        content = replace(request, training=None, scoring=None).pack()
        new = {node: content for node in self.nodes.online() if node not in self.nodes.client_of}
        return self.nodes.ask(MessageType.QUERY, t, new, lambda *_: None)[1] if new else {}

    def _least(self, asked: Sequence[int]) -> int:
        return min(self.nodes.patience.minimum, len(asked))

    def _require(self, t: int, valid: Mapping[int, object], asked: tuple[int, ...], failures: Failures) -> None:
        """Stop the run where fewer clients than the minimum gave a valid answer."""
        if len(valid) < self._least(asked):
            reasons = "; ".join(f"client {i}: {reason}" for i, reason in absent(asked, valid, failures))
            raise FederationError(
                f"round {t + 1}: {len(valid)} of {len(asked)} clients gave a valid answer, "
                f"{self._least(asked)} are needed ({reasons})"
            )


def _with_virtual_rounds(federation: Federation, sent: Broadcast) -> wire.Training:
    """Return a round as it is asked for: together with the two virtual rounds of Algorithm 3, where one is due."""
    asked = federation.participants(sent.t) if sent.client_ids is None else sent.client_ids
    return wire.Training(tuple(int(i) for i in asked), (sent, *virtual_rounds(federation, sent)))


def virtual_rounds(federation: Federation, sent: Broadcast) -> tuple[Broadcast, ...]:
    """Return what Algorithm 3 will ask for after this round: two virtual rounds, or nothing.

    Another outer optimiser than the paper's asks by itself, because what it remembers is the server's.
    """
    config = federation.config
    if not sent.is_real or not meta.is_due(federation, sent.t) or config.outer_optimizer != "spsa":
        return ()
    probes = meta.OUTER_SPSA.probes(State(sent.t, sent.theta, {"controller": sent.phi}), config)
    return tuple(replace(sent, phi=phi["controller"], purpose="virtual") for phi in probes)


def refuse_foreign(config: ExperimentConfig) -> None:
    """Refuse a config that names a plugin or an attack.

    A node has the package, but not the file that registers the plugin. An attack is simulated, in one process only.
    """
    if config.attack != "none":
        raise FederationError(f"attack={config.attack!r} is simulated in one process: python -m qfl_core run")
    for kind in digests(config):
        raise FederationError(
            f"{kind} {getattr(config, kind)!r} is a plugin: nodes run the package's own methods, datasets, losses and "
            "circuits, because they do not have your file; run it in one process (python -m qfl_core run)"
        )


def _training(sent: Broadcast) -> Question:
    state = b"".join(sent.state[name].tobytes() for name in sorted(sent.state))
    asked = b"" if sent.client_ids is None else sent.client_ids.tobytes()
    return sent.t, sent.purpose, sent.theta.tobytes() + sent.phi.tobytes() + state + asked


def _scoring(theta: np.ndarray, attendance: Attendance, purpose: str) -> Question:
    return attendance.t, purpose, theta.tobytes() + attendance.client_ids.tobytes()


def absent(asked: Sequence[int], valid: Mapping[int, object], failures: Failures) -> tuple[tuple[int, str], ...]:
    """Return the clients without a valid answer, each with the reason."""
    return tuple((i, reason_of(i, failures)) for i in asked if i not in valid)
