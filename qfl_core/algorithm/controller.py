"""The shared controller: optimisation-state features Psi and the clipped log-linear map Gamma.

log eta = phi_eta . z,   log delta = phi_delta . z,   both exponentiated and clipped to their bounds.
"""

from __future__ import annotations

import numpy as np

#: z, in order; the first is constant, so that phi starts at the initial rates and nothing else.
FEATURES = ("constant", "unfold", "round", "loss_change", "displacement", "data_fraction", "heterogeneity")


def initial_phi(learning_rate: float, perturbation: float) -> np.ndarray:
    """Return phi (2, 7), rows for eta and delta, that gives the initial rates whatever the features are."""
    phi = np.zeros((2, len(FEATURES)))
    phi[:, 0] = np.log([learning_rate, perturbation])
    return phi


def psi(
    k: int,
    unfolds: int,
    t: int,
    rounds: int,
    loss_change: np.ndarray,
    displacement: np.ndarray,
    num_weights: int,
    data_fraction: np.ndarray,
    heterogeneity: np.ndarray,
) -> np.ndarray:
    """Return the features z (clients, 7) of unfold k in round t (Algorithm 1, line 5).

    Parameters
    ----------
    loss_change : (clients,) relative fall of the proximal loss in the previous unfold, 0 before the first.
    displacement : (clients,) norm of the previous unfold's step; divided by sqrt(P) here.
    data_fraction : (clients,) n_i / sum of n over the round.
    heterogeneity : (clients,) distance of the client's label mix from the federation's.
    """
    one = np.ones(len(data_fraction))
    columns = (
        one,
        one * (k / unfolds),
        one * (t / rounds),
        loss_change,
        displacement / np.sqrt(num_weights),
        data_fraction,
        heterogeneity,
    )
    return np.stack(columns, axis=1)


def gamma(
    z: np.ndarray, phi: np.ndarray, eta_bounds: tuple[float, float], delta_bounds: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Map features z (clients, 7) to (eta, delta), each (clients,), inside their bounds (Algorithm 1, line 6).

    Clipping the logarithm first gives the same values and cannot overflow for any phi; entries beyond +-1e100, whose
    products would, count as +-1e100.
    """
    rates = []
    for row, (low, high) in zip(np.clip(phi, -1e100, 1e100), (eta_bounds, delta_bounds), strict=True):
        # Added feature by feature: a client's bits do not depend on how many clients share the call.
        log_rate = sum(z[:, j] * row[j] for j in range(z.shape[1]))
        rates.append(np.clip(np.exp(np.clip(log_rate, np.log(low), np.log(high))), low, high))
    return rates[0], rates[1]
