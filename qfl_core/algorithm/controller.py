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
    """s_{i,k}: what client i remembers of its previous unfold; arrays are (clients,).

    ``loss_change`` is the relative fall of the proximal loss, ``displacement`` the length of the step / sqrt(P).
    """

    loss_change: np.ndarray
    displacement: np.ndarray

    @classmethod
    def before_training(cls, clients: int) -> Summary:
        """Return s_{i,0}: nothing has changed yet (Algorithm 1, line 2)."""
        return cls(np.zeros(clients), np.zeros(clients))


def summarize(before: np.ndarray, after: np.ndarray, displacement: np.ndarray, num_weights: int) -> Summary:
    """Return s_{i,k+1} from the proximal losses around an unfold and its displacement (Algorithm 1, line 16)."""
    return Summary((before - after) / np.maximum(np.abs(before), 1e-12), displacement / np.sqrt(num_weights))


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
    columns = (
        one,
        one * unfold,
        one * round_,
        summary.loss_change,
        summary.displacement,
        data_fraction,
        heterogeneity,
    )
    return np.stack(columns, axis=1)


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
