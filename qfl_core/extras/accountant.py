"""What a run spends of its clients' privacy, as (epsilon, delta): an accountant by Renyi differential privacy.

A release adds Gaussian noise to a sum. Removing one client changes the sum by at most C, and the noise has the standard
deviation z C, where z is the noise multiplier. Its Renyi divergence of order a is

    RDP(a) = a rho,   rho = 1 / (2 z^2)                           (Mironov, CSF 2017, Corollary 3).

The divergences of several releases add up, and for every order a > 1 all of them together are (epsilon, delta) private:

    epsilon = RDP(a) + log(1 - 1/a) - log(a delta) / (a - 1)      (Canonne et al., NeurIPS 2020, Proposition 12).

The smallest epsilon over :data:`ORDERS` counts.
"""

from __future__ import annotations

import numpy as np

from qfl_core.algorithm.hooks import Memory
from qfl_core.config import ExperimentConfig

#: The orders that are tried: those of Google's dp-accounting, which is behind Flower's accountant.
ORDERS = np.array([*(1 + x / 10 for x in range(1, 100)), *range(11, 64), 128, 256, 512, 1024])
#: Points per standard deviation of an integral, and standard deviations on both sides of its peaks.
_POINTS, _TAILS = 8, 20


def gaussian_rho(noise: float) -> float:
    """Return rho = 1 / (2 z^2) of one release with the noise multiplier z; without noise nothing is private."""
    return 1 / (2 * noise**2) if noise > 0 else np.inf


def gaussian_rdp(noise: float, share: float = 1.0) -> np.ndarray:
    """Return RDP(a) of one release for every order, where each client takes part with probability ``share``.

    The client's coin must be secret: for a share q below 1 (Mironov, Talwar and Zhang, 2019, Section 3.3)

        RDP(a) = log( E[ (1 - q + q exp((2 x - 1) / (2 z^2)))^a ] ) / (a - 1),   x ~ N(0, z^2).

    A run of this package counts no such gain, because everybody can know who takes part. It is here to plan a
    federation whose coins are secret, and to compare the accountant with published numbers.
    """
    if noise <= 0:
        return np.full(len(ORDERS), np.inf)
    if share == 1:
        return ORDERS * gaussian_rho(noise)
    return np.array([_log_moment(a, noise, share) / (a - 1) for a in ORDERS])


def _log_moment(order: float, noise: float, share: float) -> float:
    """Return the logarithm of the expectation above, by the trapezoidal rule."""
    step = min(noise, noise**2) / _POINTS
    x = np.arange(-_TAILS * noise, order + _TAILS * noise, step)
    ratio = np.logaddexp(np.log1p(-share), np.log(share) + (2 * x - 1) / (2 * noise**2))
    logs = order * ratio - x**2 / (2 * noise**2)
    peak = logs.max()
    total = peak + np.log(np.exp(logs - peak).sum() * step)
    return float(max(total - np.log(noise * np.sqrt(2 * np.pi)), 0.0))


def epsilon(rdp: np.ndarray, delta: float) -> float:
    """Return the smallest epsilon over all orders, of divergences ``rdp`` (orders,) that were added up."""
    found = rdp + np.log1p(-1 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1)
    return float(max(found.min(), 0.0))


def nothing_spent(clients: int) -> Memory:
    """Return the account before round 0: rho of each client (N,), for two observers.

    ``models`` is for whoever sees the global models, ``server`` for whoever also sees what the server receives.
    """
    return {"models": np.zeros(clients), "server": np.zeros(clients)}


def charged(config: ExperimentConfig, spent: Memory, asked: np.ndarray, arrived: int) -> Memory:
    """Return the account after a round: every client that was asked pays, also one whose upload was lost.

    Each of the m clients that are asked adds noise of the standard deviation z C / sqrt(m). If only r uploads arrive,
    their sum has the noise multiplier z sqrt(r / m). A server that sees single uploads sees z / sqrt(m) in each; where
    uploads are masked, it sees the sum alone.
    """
    noise = config.dp_noise or 0.0
    of_sum = noise * np.sqrt(arrived / len(asked))
    of_one = of_sum if config.uploads == "masked" else noise / np.sqrt(len(asked))
    found = {}
    for observer, multiplier in (("models", of_sum), ("server", of_one)):
        found[observer] = spent[observer].copy()
        found[observer][asked] += gaussian_rho(float(multiplier))
    return found


def privacy_row(config: ExperimentConfig, done: int, spent: Memory) -> dict[str, float]:
    """Return what the table ``privacy`` says after round ``done``: the client that has spent most counts."""
    found = {
        observer: epsilon(ORDERS * rho.max(), config.dp_delta) if rho.max() else 0.0 for observer, rho in spent.items()
    }
    return {
        "round": done,
        "epsilon": found["models"],
        "epsilon_server": found["server"],
        "delta": config.dp_delta,
    }
