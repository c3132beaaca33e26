"""Private clients on Flower nodes: the server's side of a round with noise, and of the four phases of a masked one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import MessageType, RecordDict

from qfl_core.algorithm.client import Broadcast, LocalResult
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.samples import Attendance
from qfl_core.base.errors import FederationError
from qfl_core.extras.privacy import summed
from qfl_core.network import masks, wire
from qfl_core.network.asking import Failures
from qfl_core.network.member import KEYS, REVEAL, SHARES, SUM, Fields
from qfl_core.network.nodes import NodeTrainer, absent
from qfl_core.runs.identity import code_digest


class PrivateNodes(NodeTrainer):
    """Trains private clients by messages. Nobody scores a model, and nothing is foreseen."""

    def train(self, federation: Federation, sent: Broadcast) -> LocalResult:
        """Return what the server learns of a round: noisy uploads, or the sum of masked ones."""
        if federation.config.uploads == "masked":
            return self._summed(federation, sent)
        return super().train(federation, sent)

    def validate(
        self, federation: Federation, theta: np.ndarray, attendance: Attendance, purpose: str = "round"
    ) -> np.ndarray:
        """Return zeros (clients,): nobody is asked for a score."""
        return np.zeros(len(attendance.client_ids))

    def _summed(self, federation: Federation, sent: Broadcast) -> LocalResult:
        """Run the four phases; a client that fails in one of them is left out of those that follow."""
        asked = tuple(int(i) for i in federation.participants(sent.t))
        needed, t = masks.threshold(len(asked)), sent.t
        request = wire.Request(code_digest(), self.data_sha256)
        failures = self._introduce(request, t)
        known = [i for i in asked if i in self.nodes.node_of]

        def phase(name: str, contents: Mapping[int, Fields], shape: Mapping[str, Any]) -> dict[int, Fields]:
            """Ask clients for one phase; stop the run where too few of them answer."""
            training = wire.Training(asked, (sent,)) if name == SUM else None
            packed = {
                self.nodes.node_of[i]: wire.pack_phase(
                    wire.Request(request.code, request.data, training), name, t, told
                )
                for i, told in contents.items()
            }

            def read(client_id: int, content: RecordDict) -> Fields:
                return wire.unpack_phase(content, shape)

            kind = MessageType.TRAIN if name == SUM else MessageType.QUERY
            answers, lost = self.nodes.ask(kind, t, packed, read)
            failures.update(lost)
            self._need(t, name, needed, asked, answers, failures)
            return {i: answers[i] for i in sorted(answers)}

        two_keys = {"mask_key": bytes, "cipher_key": bytes}
        keys = phase(KEYS, {i: {"participants": len(asked)} for i in known}, two_keys)
        told = {
            "participants": len(asked),
            "clients": list(keys),
            "mask_keys": [found["mask_key"] for found in keys.values()],
            "cipher_keys": [found["cipher_key"] for found in keys.values()],
        }
        dealt = phase(SHARES, dict.fromkeys(keys, told), {"receivers": int, "texts": bytes})
        texts = {i: dict(zip(found["receivers"], found["texts"], strict=True)) for i, found in dealt.items()}
        for_each = {i: {"dealers": list(dealt), "texts": [texts[j].get(i, b"") for j in dealt]} for i in dealt}
        uploads = phase(SUM, for_each, {"masked": bytes})
        vectors = {i: wire.numbers(found["masked"], federation.num_weights) for i, found in uploads.items()}
        told = {"arrived": list(vectors)}
        revealed = phase(REVEAL, dict.fromkeys(vectors, told), {"dealers": int, "shares": bytes})
        shares: dict[int, list[bytes]] = {i: [] for i in dealt}
        for found in revealed.values():
            for dealer, share in zip(found["dealers"], found["shares"], strict=True):
                shares[dealer].append(share)
        publics = {i: keys[i]["mask_key"] for i in dealt}
        total = masks.unmasked(vectors, publics, shares, needed)
        return summed(federation, sent, total, list(vectors), absent(asked, vectors, failures))

    def _need(
        self, t: int, phase: str, needed: int, asked: tuple[int, ...], answers: Mapping[int, Any], failures: Failures
    ) -> None:
        least = max(needed, self._least(asked))
        if len(answers) < least:
            reasons = "; ".join(f"client {i}: {reason}" for i, reason in absent(asked, answers, failures))
            raise FederationError(
                f"round {t + 1}: {len(answers)} of {len(asked)} clients are left in the phase {phase!r}, "
                f"{least} are needed for a masked sum ({reasons})"
            )
