"""The shared controller: optimisation-state features Psi and the clipped log-linear map Gamma.

log eta = phi_eta . z,   log delta = phi_delta . z,   both exponentiated and clipped to their bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: z, in order; the first is constant, so that phi starts at the initial rates and nothing else.
FEATURES = ("constant", "unfold", "round", "loss_change", "displacement", "data_fraction", "heterogeneity")


@dataclass(frozen=True, eq=False)
class Summary:
    """s_{i,k}, what client i remembers of its previous unfold: Summarize(L_before, L_after, L_val, Delta theta).

    ``before``, ``after`` and ``val_loss`` are (clients,); ``step`` is Delta theta (clients, P).
    """

    before: np.ndarray
    after: np.ndarray
    val_loss: np.ndarray
    step: np.ndarray

    @classmethod
    def before_training(cls, clients: int, num_weights: int) -> Summary:
        """Return s_{i,0}: nothing has changed yet (Algorithm 1, line 2)."""
        one = np.ones(clients)
        return cls(one, one, np.full(clients, np.inf), np.zeros((clients, num_weights)))

    @property
    def loss_change(self) -> np.ndarray:
        """The relative fall of the proximal loss, (clients,): the previous loss information among the features."""
        return (self.before - self.after) / np.maximum(np.abs(self.before), 1e-12)

    @property
    def displacement(self) -> np.ndarray:
        """|Delta theta|, (clients,), Eq. (local update norm)."""
        return np.sqrt((self.step**2).sum(axis=1))


def initial_phi(learning_rate: float, perturbation: float) -> np.ndarray:
    """Return phi (2, 7), rows for eta and delta, that gives the initial rates whatever the features are."""
    phi = np.zeros((2, len(FEATURES)))
    phi[:, 0] = np.log([learning_rate, perturbation])
    return phi


def psi(
    unfold: float, round_: float, summary: Summary, data_fraction: np.ndarray, heterogeneity: np.ndarray
) -> np.ndarray:
    """Return the features z (clients, 7) of one unfold (Algorithm 1, line 5).

    Parameters
    ----------
    unfold : progress k / K within the round.
    round_ : progress t / T within the run.
    summary : s_{i,k}, what the previous unfold did.
    data_fraction : (clients,) n_i / sum of n over the round.
    heterogeneity : (clients,) distance of the client's label mix from the federation's.
    """
    one = np.ones(len(data_fraction))
    moved = summary.displacement / np.sqrt(summary.step.shape[1])
    columns = (one, one * unfold, one * round_, summary.loss_change, moved, data_fraction, heterogeneity)
    return np.stack(columns, axis=1)


def standardised(z: np.ndarray, participants: int) -> np.ndarray:
    """Return features of mean about 0 and size about 1, so that a step of phi moves log eta through each alike.

    Centres and scales are fixed numbers, because a client that trains alone knows no other client's features: progress
    in k and in t is uniform in [0, 1]; a fall of the loss by 5 % and a step of 0.1 per weight count as 1; a client's
    share of the data is measured against the mean share; label mixes differ from the federation's by 0.3 on average.
    """
    share = 1.0 / participants
    centre = np.array([0.0, 0.5, 0.5, 0.0, 0.0, share, 0.3])
    scale = np.array([1.0, 0.3, 0.3, 0.05, 0.1, 0.3 * share, 0.1])
    return (z - centre) / scale


def gamma(
    z: np.ndarray, phi: np.ndarray, eta_bounds: tuple[float, float], delta_bounds: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Map features z (clients, 7) to (eta, delta), each (clients,), inside their bounds (Algorithm 1, line 6).

    The logarithm is clipped first, because that gives the same values and cannot overflow for any phi; entries of phi
    beyond +-1e100, whose products would overflow, count as +-1e100.
    """
    rates = []
    for row, (low, high) in zip(np.clip(phi, -1e100, 1e100), (eta_bounds, delta_bounds), strict=True):
        # Added feature by feature: a client's bits do not depend on how many clients share the call.
        log_rate = sum((z[:, j] * row[j] for j in range(1, z.shape[1])), z[:, 0] * row[0])
        rates.append(np.clip(np.exp(np.clip(log_rate, np.log(low), np.log(high))), low, high))
    return rates[0], rates[1]
