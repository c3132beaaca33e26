"""A private client on a node: it answers once per round, keeps its secrets, and demands what its site demands.

A masked round has four phases. The server asks every client

1. ``keys``: for two public keys, made anew in every round;
2. ``shares``: with the keys of all, for encrypted shares of its secret and of its private key;
3. ``sum``: with the shares that others encrypted for it, to train, and to send its masked step;
4. ``reveal``: for shares, of the secrets of those whose masked steps arrived and the private keys of the others.

A round with noise and without masks has one phase, ``noisy``. What a client needs later is in the state that Flower
keeps for it during a run (``context.state``), and never leaves the node.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from qfl_core.algorithm.client import Broadcast, LocalResult
from qfl_core.algorithm.federation import Federation
from qfl_core.base.errors import FederationError
from qfl_core.config import ExperimentConfig
from qfl_core.extras.masked_sum import to_integers
from qfl_core.extras.privacy import multiplicities, released_steps
from qfl_core.network import masks

KEYS, SHARES, SUM, REVEAL, NOISY = "keys", "shares", "sum", "reveal", "noisy"
#: The name of the record in a node's state.
MEMORY = "private"

Fields = dict[str, Any]


class SystemNoise:
    """Gaussian numbers from the entropy of the operating system: nobody can draw them again."""

    def normal(self, mean: float, scale: float, size: int) -> np.ndarray:
        """Return independent numbers (size,)."""
        source = random.SystemRandom()
        return np.array([source.gauss(mean, scale) for _ in range(size)])


def memory_of(state: RecordDict) -> MutableMapping[str, Any]:
    """Return what a node remembers of the private run that it takes part in."""
    if MEMORY not in state:
        state[MEMORY] = ConfigRecord({"t": -1})
    return state.config_records[MEMORY]


def check_demands(config: ExperimentConfig, node_config: Mapping[str, Any]) -> None:
    """Refuse a run that protects less than this site's node config demands: ``uploads`` and the least ``dp-noise``."""
    if node_config.get("uploads", config.uploads) != config.uploads:
        raise FederationError(f"the site demands uploads={node_config['uploads']!r}, the run has {config.uploads!r}")
    least = float(node_config.get("dp-noise", 0))
    if least > (config.dp_noise or 0):
        raise FederationError(f"the site demands dp_noise of at least {least:g}, the run has {config.dp_noise}")


def answered(memory: MutableMapping[str, Any], phase: str, t: int, asked: Fields, work: Callable[[], Fields]) -> Fields:
    """Return the answer to one phase of round t: work once, and give the same answer when asked the same again.

    Another question in the same phase, or one of an earlier round, is refused, because two answers of one round tell
    more than one: sums over different clients differ by one step, and two noises average out.
    """
    if t < memory["t"]:
        raise FederationError(f"round {t + 1} is over for this client")
    if t > memory["t"]:
        memory.clear()
        memory["t"] = t
    digest = hashlib.sha256(repr(sorted(asked.items())).encode()).hexdigest()
    if memory.get(f"{phase}.asked", digest) != digest:
        raise FederationError(f"a second question of the phase {phase!r} in round {t + 1}")
    if f"{phase}.asked" not in memory:
        found = work()
        for name, value in found.items():
            memory[f"{phase}.{name}"] = value
        memory[f"{phase}.asked"], memory[f"{phase}.told"] = digest, list(found)
    return {name: memory[f"{phase}.{name}"] for name in memory[f"{phase}.told"]}


def noisy_upload(
    federation: Federation, sent: Broadcast, local: LocalResult, memory: MutableMapping[str, Any]
) -> np.ndarray:
    """Return the one upload (P,) of this client in a round with noise."""

    def work() -> Fields:
        steps = released_steps(federation, sent, local, [SystemNoise()])
        return {"theta": (sent.theta + steps[0]).tolist()}

    asked = {"theta": sent.theta.tolist(), "phi": sent.phi.tolist(), "purpose": sent.purpose}
    return np.array(answered(memory, NOISY, sent.t, asked, work)["theta"])


class Member:
    """One client in the four phases of a masked round."""

    def __init__(self, client: int, memory: MutableMapping[str, Any]) -> None:
        self.client, self.memory = client, memory

    def keys(self, asked: Fields) -> Fields:
        """Make two pairs of keys: one for masks, one for the encryption of shares."""
        of_masks, of_shares = masks.KeyPair.make(), masks.KeyPair.make()
        self.memory["mask_key"], self.memory["cipher_key"] = of_masks.private, of_shares.private
        return {"mask_key": of_masks.public, "cipher_key": of_shares.public}

    def shares(self, asked: Fields) -> Fields:
        """Deal shares of a new secret and of the private mask key to all clients that sent keys."""
        clients, needed = list(asked["clients"]), masks.threshold(int(asked["participants"]))
        of_masks, of_shares = (dict(zip(clients, asked[name], strict=True)) for name in ("mask_keys", "cipher_keys"))
        own = (of_masks.get(self.client), of_shares.get(self.client))
        if own != (self.memory[f"{KEYS}.mask_key"], self.memory[f"{KEYS}.cipher_key"]):
            raise FederationError("the keys of this client are not those that it made")
        if len({*of_masks.values(), *of_shares.values()}) != 2 * len(clients) or len(clients) < needed:
            raise FederationError(f"{len(clients)} clients with keys of their own, {needed} are needed")
        secret = masks.new_secret()
        dealt = masks.dealt(self.client, secret, self.memory["mask_key"], self.memory["cipher_key"], of_shares, needed)
        self.memory["secret"], self.memory["needed"] = secret, needed
        self.memory["clients"] = clients
        self.memory["mask_keys"], self.memory["cipher_keys"] = list(of_masks.values()), list(of_shares.values())
        return {"receivers": list(dealt), "texts": list(dealt.values())}

    def sum(self, asked: Fields, train: Callable[[], np.ndarray]) -> Fields:
        """Open the shares of the others, train, and mask the step: ``train`` gives whole numbers (P,)."""
        dealers, clients = list(asked["dealers"]), self.memory["clients"]
        if not {self.client} <= set(dealers) <= set(clients) or len(dealers) < self.memory["needed"]:
            raise FederationError(f"shares of {len(dealers)} clients, {self.memory['needed']} are needed")
        publics = dict(zip(clients, self.memory["cipher_keys"], strict=True))
        opened = [
            masks.opened(self.client, dealer, self.memory["cipher_key"], publics[dealer], text)
            for dealer, text in zip(dealers, asked["texts"], strict=True)
        ]
        self.memory["dealers"] = dealers
        self.memory["of_secrets"], self.memory["of_keys"] = [s for s, _ in opened], [k for _, k in opened]
        keys = dict(zip(clients, self.memory["mask_keys"], strict=True))
        among = {dealer: keys[dealer] for dealer in dealers}
        total = masks.masked(self.client, train(), self.memory["secret"], self.memory["mask_key"], among)
        return {"masked": total.astype("<u8").tobytes()}

    def reveal(self, asked: Fields) -> Fields:
        """Reveal a share of the secret of every client whose step arrived, and of the private key of the others."""
        arrived, dealers, needed = list(asked["arrived"]), self.memory["dealers"], self.memory["needed"]
        if not {self.client} <= set(arrived) <= set(dealers) or len(set(arrived)) < needed:
            raise FederationError(f"a sum over {len(arrived)} clients, {needed} are needed")
        shares = zip(dealers, self.memory["of_secrets"], self.memory["of_keys"], strict=True)
        told = {dealer: of_secret if dealer in arrived else of_key for dealer, of_secret, of_key in shares}
        return {"dealers": list(told), "shares": list(told.values())}

    def answer(self, phase: str, t: int, asked: Fields, train: Callable[[], np.ndarray]) -> Fields:
        """Return the answer to one phase; phases come in their order."""
        if phase != KEYS and (t != self.memory["t"] or f"{_before(phase)}.asked" not in self.memory):
            raise FederationError(f"the phase {phase!r} of round {t + 1} before the phase {_before(phase)!r}")
        work = {
            KEYS: lambda: self.keys(asked),
            SHARES: lambda: self.shares(asked),
            SUM: lambda: self.sum(asked, train),
            REVEAL: lambda: self.reveal(asked),
        }
        return answered(self.memory, phase, t, asked, work[phase])


def _before(phase: str) -> str:
    order = (KEYS, SHARES, SUM, REVEAL)
    if phase not in order[1:]:
        raise FederationError(f"a question of the phase {phase!r}, which nobody knows")
    return order[order.index(phase) - 1]


def whole_numbers(federation: Federation, sent: Broadcast, local: LocalResult) -> np.ndarray:
    """Return what one client puts into the sum (P,): its step, with noise where the config asks for it."""
    steps = released_steps(federation, sent, local, [SystemNoise()])
    return to_integers(steps, multiplicities(federation, sent.t, local.attendance.client_ids))[0]
