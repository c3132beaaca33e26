"""One round of DUQFL-Prox, step by step: what one client sees and does, what the server makes of all uploads.

The algorithms themselves run here, on a real federation. The tables lay open what they recorded, and compute again, by
hand, what follows from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from qiskit.primitives import StatevectorEstimator
from qiskit.quantum_info import SparsePauliOp

from qfl_core.algorithm.controller import FEATURES, Summary, gamma, psi, standardised
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.meta import OuterStep, outer_direction, refine_controller
from qfl_core.algorithm.server import RoundResult, State, aggregate, federated_round
from qfl_core.base.checks import integer
from qfl_core.base.errors import ConfigError
from qfl_core.base.numbers import rounded
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig
from qfl_core.data import load_splits
from qfl_core.engines import make_engine
from qfl_core.runs.prepare import make_federation, make_qnn

#: What the controller reads, eta and delta computed from it, and what the client recorded, in the order of Algorithm 1.
RECORDED = ("eta", "delta", "loss_before", "loss_after", "val_loss", "displacement")

#: How often each sample is measured where engines with shots are compared, and the shots where a config has none.
REPEATS, SHOTS = 40, 1024


@dataclass(frozen=True, eq=False)
class Walk:
    """A round with the state that it starts from, and the outer step that follows it."""

    federation: Federation
    start: State
    result: RoundResult
    outer: OuterStep

    @cached_property
    def client_ids(self) -> np.ndarray:
        """The clients that took part, in the order of all tables."""
        return self.result.attendance.client_ids

    def features(self, client: int) -> pd.DataFrame:
        """Return z of every unfold of a client, computed from its records (Algorithm 1, line 5): one row per unfold."""
        config, place = self.federation.config, self._place(client)
        batch, trace = self.federation.batch(self.start.t, np.array([client])), self.result.local.trace
        summary, rows = Summary.before_training(1, self.federation.num_weights), []
        for k in range(config.unfolds):
            z = psi(k / config.unfolds, self.start.t / config.rounds, summary, batch.data_fraction, batch.heterogeneity)
            if config.controller_features == "standardised":
                z = standardised(z, len(self.client_ids))
            rows.append(z[0])
            before, after, val_loss, moved = (
                trace[name][place, k : k + 1] for name in ("loss_before", "loss_after", "val_loss", "displacement")
            )
            step = np.zeros((1, self.federation.num_weights))
            step[0, 0] = moved[0]  # the controller reads the length of a step and not its direction
            summary = Summary(before, after, val_loss, step)
        return pd.DataFrame(rows, columns=list(FEATURES), index=self._unfolds)

    def rates(self, client: int) -> pd.DataFrame:
        """Return eta and delta of every unfold, computed from z and phi (line 6), beside those that were recorded."""
        config, place = self.federation.config, self._place(client)
        z = self.features(client).to_numpy()
        eta, delta = gamma(z, self.start.phi["controller"], config.eta_bounds, config.delta_bounds)
        trace = self.result.local.trace
        columns = {"eta from z": eta, "delta from z": delta, "eta": trace["eta"][place], "delta": trace["delta"][place]}
        return pd.DataFrame(columns, index=self._unfolds)

    def unfolds(self, client: int) -> pd.DataFrame:
        """Return what a client recorded, one row per unfold; ``uploaded`` marks k* (lines 8 to 18)."""
        place, local = self._place(client), self.result.local
        table = pd.DataFrame({name: local.trace[name][place] for name in RECORDED}, index=self._unfolds)
        return table.assign(uploaded=table.index == local.selected[place])

    def uploads(self) -> pd.DataFrame:
        """Return one row per client: samples, weight in the aggregation, uploaded unfold, distance from theta^(t)."""
        local = self.result.local
        distance = np.sqrt(((local.theta - self.start.theta) ** 2).sum(axis=1))
        return pd.DataFrame(
            {
                "samples": local.attendance.sizes,
                "weight": self.result.weights,
                "uploaded unfold": local.selected,
                "distance from the broadcast model": distance,
            },
            index=pd.Index(self.client_ids, name="client"),
        )

    def aggregation(self, entries: int = 3) -> pd.DataFrame:
        """Return the first entries of theta^(t+1), added up by hand and by :func:`qfl_core.algorithm.server.aggregate`.

        One row per client: its weight n_i / n, and the weight times its upload. Below stand their sum and what
        ``aggregate`` makes of the same uploads and weights.
        """
        local, method = self.result.local, self.federation.method
        share = local.attendance.sizes / local.attendance.sizes.sum()
        package = aggregate(local.theta, self.result.weights, self.client_ids, method.aggregation.combine)
        parts = share[:, None] * local.theta[:, :entries]
        rows = [*np.column_stack([share, parts]), [share.sum(), *parts.sum(axis=0)]]
        rows.append([self.result.weights.sum(), *package[:entries]])
        names = [*(f"client {i}" for i in self.client_ids), "sum by hand", "aggregate(...)"]
        columns = ["weight", *(f"weight × θ[{i}]" for i in range(parts.shape[1]))]
        return pd.DataFrame(rows, columns=columns, index=pd.Index(names, name=""))

    def by_hand(self) -> float:
        """Return the largest difference between n_i / n times the uploads, added up, and the new global model."""
        added = self.aggregation(self.federation.num_weights).drop(columns="weight").loc["sum by hand"]
        return float(np.abs(added.to_numpy() - self.result.state.theta).max())

    def outer_step(self) -> pd.DataFrame:
        """Return phi before and after the outer step, with the direction: one row per rate and feature."""
        direction = outer_direction(self.start.phi, self.federation.config.seed, self.start.t)
        index = pd.MultiIndex.from_product([("eta", "delta"), FEATURES], names=["rate", "feature"])
        tables = (self.start.phi["controller"], direction["controller"], self.outer.phi["controller"])
        columns = dict(zip(("phi", "direction", "new phi"), (table.ravel() for table in tables), strict=True))
        return pd.DataFrame(columns, index=index)

    @property
    def _unfolds(self) -> pd.Index:
        return pd.RangeIndex(1, self.federation.config.unfolds + 1, name="unfold")

    def _place(self, client: int) -> int:
        ids = [int(one) for one in self.client_ids]
        return ids.index(integer(min(ids), max(ids))("client", client))


def walk(config: ExperimentConfig, t: int = 1) -> Walk:
    """Run rounds 0 to t with the outer step after each, and return the last one in all its parts.

    Parameters
    ----------
    config : of a method with a controller; its ``outer_period`` does not count, because every round is refined.
    t : the round to walk through. In round 0 all clients have the initial rates, because phi has not moved yet.
    """
    federation = make_federation(config)
    state = State.initial(federation)
    for _ in range(integer(0, config.rounds - 1)("t", t)):
        state = replace(federated_round(federation, state).state, phi=_refined(federation, state).phi)
    return Walk(federation, state, federated_round(federation, state), _refined(federation, state))


def _refined(federation: Federation, state: State) -> OuterStep:
    outer = refine_controller(federation, state)
    if outer is None:
        chosen = federation.config.outer_optimizer
        raise ConfigError(f"outer_optimizer={chosen!r} takes no step in round {state.t}: walk through another round")
    return outer


def engines_beside(config: ExperimentConfig, samples: int = 5, repeats: int = REPEATS) -> pd.DataFrame:
    """Return P(class 1) of test samples at the initial weights: by our engine, and by Qiskit's own primitives.

    The exact ones are from our exact engine and from Qiskit's ``StatevectorEstimator``, which runs the circuit as it is
    drawn and returns <Z...Z>, so that P(class 1) = (1 - <Z...Z>) / 2. Those with shots are means of ``repeats``
    measurements: by our compiled engine, which training uses, and by Qiskit's ``StatevectorSampler``. One row per
    sample.
    """
    federation, qnn, seed = make_federation(config), make_qnn(config), config.seed
    theta, X, shots = federation.initial_theta(), load_splits(config).test.X[:samples], config.shots or SHOTS
    engine, parity = make_engine("statevector", qnn), SparsePauliOp("Z" * qnn.num_qubits)
    circuits = [(qnn.bind(x, theta), parity) for x in X]
    expected = [float(found.data.evs) for found in StatevectorEstimator().run(circuits).result()]
    again, compiled = np.tile(theta, (1, repeats, 1)), make_engine("statevector", qnn, shots)
    (ours,) = compiled.probabilities_ragged([compiled.encode(X)], again, [stream(seed, "walkthrough-shots", 0)])
    sampler = make_engine("primitives", qnn, shots)
    theirs = sampler.probabilities(sampler.encode(X), again[0], stream(seed, "walkthrough-shots", 1))
    table = pd.DataFrame(
        {
            "exact: qfl_core": engine.probabilities(engine.encode(X), theta),
            "exact: Qiskit": (1 - np.array(expected)) / 2,
            "shots: qfl_core": ours.mean(axis=0),
            "shots: Qiskit": theirs.mean(axis=0),
        }
    )
    return table.rename_axis("sample")


def engines_apart(table: pd.DataFrame, config: ExperimentConfig, repeats: int = REPEATS) -> pd.Series:
    """Return the largest differences between both engines in a table of :func:`engines_beside`, rounded.

    That with shots counts in standard errors of the difference of two means, sqrt(2 p (1 - p) / (shots * repeats)).
    """
    p = table["exact: Qiskit"]
    error = np.sqrt(2 * p * (1 - p) / ((config.shots or SHOTS) * repeats))
    exact = (table["exact: qfl_core"] - p).abs().max()
    drawn = ((table["shots: qfl_core"] - table["shots: Qiskit"]).abs() / error).max()
    found = {"exact probabilities": rounded(exact), "means with shots, in standard errors": round(float(drawn), 1)}
    return pd.Series(found, name="largest difference")
