"""Bad clients, in simulation: what they upload instead of what they trained.

An attack is a row of pure functions. The clients train as Algorithm 1 says; then the bad ones change their uploads, or
they train on wrong labels, or they lie about their losses. ``attack`` and ``attackers`` of the config name the attack
and the share of bad clients, so both are part of a run's identity, and a run without them has none of this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from qfl_core.algorithm.client import Broadcast, LocalResult
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.samples import Attendance, Batch, Samples
from qfl_core.algorithm.server import Trainer
from qfl_core.base.registry import ATTACKS, resolve
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig
from qfl_core.extras.screening import rows

#: Standard deviation of the noise on every weight, in radians: an angle of 1 changes a rotation beyond use.
NOISE = 1.0
#: How many times as long as its own step the reversed step of a scaling client is.
SCALE = 20.0


@dataclass(frozen=True, eq=False)
class Scene:
    """What bad clients know when they upload: the federation, the broadcast, and their own honest results.

    ``real`` is the broadcast of the real round; in a virtual round it tells in which direction phi was moved.
    """

    federation: Federation
    sent: Broadcast
    real: Broadcast
    local: LocalResult

    @property
    def steps(self) -> np.ndarray:
        """theta_i - theta_t (bad clients, P)."""
        return self.local.theta - self.sent.theta


@dataclass(frozen=True)
class Attack:
    """``upload(scene)`` gives the weights (bad clients, P) that are sent up, ``flips`` trains on the other labels.

    ``lies`` tells the largest loss changes and an accuracy of 0 wherever phi would lower the learning rate, and no
    change where it would raise it. So Algorithm 3 raises the learning rate until training overshoots.
    """

    upload: Callable[[Scene], np.ndarray] | None = None
    flips: bool = False
    lies: bool = False


def _noise(scene: Scene) -> np.ndarray:
    t, client_ids = scene.sent.t, scene.local.attendance.client_ids
    rngs = scene.federation.generators(f"{scene.sent.purpose}-attack", t, client_ids)
    drawn = [rng.normal(0.0, NOISE, scene.local.theta.shape[1]) for rng in rngs]
    return scene.local.theta + np.array(drawn)


def _reversed(scene: Scene) -> np.ndarray:
    return scene.sent.theta - scene.steps


def _scaled(scene: Scene) -> np.ndarray:
    return scene.sent.theta - SCALE * scene.steps


def _together(scene: Scene) -> np.ndarray:
    common = scene.sent.theta - scene.steps.mean(axis=0)
    return np.repeat(common[None], len(scene.local.theta), axis=0)


#: Every weight gets Gaussian noise.
noise = Attack(upload=_noise)
#: The step goes back instead of forth, as long as it is.
sign_flip = Attack(upload=_reversed)
#: The step goes back, many times as long.
scaling = Attack(upload=_scaled)
#: All bad clients send the same model: their mean step, reversed. Rules that look for close uploads find them close.
collusion = Attack(upload=_together)
#: Training and validation labels are exchanged, and the rest of the client is honest.
label_flip = Attack(flips=True)
#: The weights are honest, the trace and the scores are not.
lying_trace = Attack(lies=True)


def bad_clients(config: ExperimentConfig) -> np.ndarray:
    """Return the ids of the bad clients in increasing order: the same in all rounds, others for another seed."""
    count = round(config.attackers * config.clients)
    return np.sort(stream(config.seed, "attackers").choice(config.clients, count, replace=False))


class Poisoned(Federation):
    """The same federation, where the bad clients hold the other label for each of their rows."""

    def batch(self, t: int, client_ids: np.ndarray | None = None) -> Batch:
        """Return the honest batch with exchanged labels at the bad clients; what they say of their mix stays true."""
        batch = super().batch(t, client_ids)
        bad = np.isin(batch.client_ids, bad_clients(self.config))
        return replace(batch, train=_flipped(batch.train, bad), val=_flipped(batch.val, bad))


def _flipped(samples: Samples, bad: np.ndarray) -> Samples:
    return replace(samples, y=np.where(np.repeat(bad, samples.sizes), 1 - samples.y, samples.y))


class Attacked:
    """Trains by another trainer, and lets the bad clients do what the attack says."""

    def __init__(self, trainer: Trainer, attack: Attack) -> None:
        self.trainer, self.attack, self.transport = trainer, attack, trainer.transport
        self._real: Broadcast | None = None
        self._last: Broadcast | None = None

    def train(self, federation: Federation, sent: Broadcast) -> LocalResult:
        """Train the participants of a round, and exchange what the bad ones upload."""
        self._last = sent
        if sent.is_real or self._real is None:
            self._real = sent
        if self.attack.flips:
            federation = Poisoned(**{name: getattr(federation, name) for name in federation.__dataclass_fields__})
        local = self.trainer.train(federation, sent)
        bad = np.isin(local.attendance.client_ids, bad_clients(federation.config))
        if not bad.any():
            return local
        scene = Scene(federation, sent, self._real, rows(local, bad))
        return uploaded(self.attack, scene, local, bad)

    def validate(
        self, federation: Federation, theta: np.ndarray, attendance: Attendance, purpose: str = "round"
    ) -> np.ndarray:
        """Return the validation accuracies (clients,); a lying client tells 0 where phi would lower the rate."""
        accuracy = self.trainer.validate(federation, theta, attendance, purpose)
        if self.attack.lies and self._last and self._real and lowers_rate(self._last, self._real):
            accuracy = np.where(np.isin(attendance.client_ids, bad_clients(federation.config)), 0.0, accuracy)
        return accuracy


def uploaded(attack: Attack, scene: Scene, local: LocalResult, bad: np.ndarray) -> LocalResult:
    """Return the results of all clients, with those of the bad ones (a mask) as the attack wants them."""
    if attack.upload:
        theta = local.theta.copy()
        theta[bad] = attack.upload(scene)
        local = replace(local, theta=theta)
    if attack.lies:
        told = {name: values.copy() for name, values in local.trace.items()}
        for name, values in lies(scene).items():
            told[name][bad] = values
        local = replace(local, trace=told)
    return local


def lowers_rate(sent: Broadcast, real: Broadcast) -> bool:
    """Tell whether a virtual round tries a lower learning rate than the real one."""
    return bool(sent.phi[0, 0] < real.phi[0, 0])


def lies(scene: Scene) -> dict[str, np.ndarray]:
    """Return the losses (bad clients, K) that a lying client tells; all are inside the range of honest ones."""
    shape = scene.local.trace["loss_before"].shape
    top = -np.log(scene.federation.model.margin) if lowers_rate(scene.sent, scene.real) else 0.0
    after = np.broadcast_to(top * (np.arange(shape[1]) % 2), shape)
    return {"loss_before": top - after, "loss_after": after}


def attacked(trainer: Trainer, config: ExperimentConfig) -> Trainer:
    """Return the trainer with the config's attack; the trainer itself where there is none."""
    attack: Attack | None = resolve(ATTACKS[config.attack]) if ATTACKS[config.attack] else None
    return trainer if attack is None else Attacked(trainer, attack)
