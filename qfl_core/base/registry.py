"""The tables of what can be named in a config. A new dataset, method, partition, circuit or engine is one row here.

Rows point to code as ``"module:name"``, imported on first use: naming a thing costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qiskit import QuantumCircuit

#: Builds a circuit for so many features or qubits, with so many repetitions.
CircuitBuilder = Callable[..., "QuantumCircuit"]

PI_RANGE = (0.0, math.pi)
UNIT_RANGE = (0.0, 1.0)


@dataclass(frozen=True)
class EncodingSpec:
    """What an encoding uses where a config does not say otherwise."""

    features: int
    angle_range: tuple[float, float]
    tail_share: float = 0.0


@dataclass(frozen=True)
class DatasetSpec:
    """How a dataset is loaded, the default sizes of its splits, and its encodings.

    Attributes
    ----------
    loader : function ``(config, order=None) -> Splits``. ``order``, a generator, asks it to shuffle the order in which
        its encoder meets the training rows (the leak test does).
    sizes : rows of the training, validation and test split.
    encodings : by name; the first is the default.
    source : function ``(config) -> DataSource`` that returns ``loader(config).provenance`` without loading. A dataset
        without it is loaded whenever its digest is asked for, and :func:`qfl_core.data.load_splits` keeps no result of
        it in memory.
    """

    loader: str | Callable[..., Any]
    sizes: tuple[int, int, int]
    encodings: Mapping[str, EncodingSpec]
    source: str | Callable[..., Any] | None = None


DATASETS: dict[str, DatasetSpec] = {
    "baf": DatasetSpec(
        loader="qfl_core.data.baf:load_baf",
        sizes=(2999, 750, 1250),
        encodings={"pca": EncodingSpec(features=4, angle_range=PI_RANGE)},
        source="qfl_core.data.baf:baf_source",
    ),
    "genome": DatasetSpec(
        loader="qfl_core.data.genome:load_genome",
        sizes=(8000, 2000, 2000),
        encodings={
            "word-id": EncodingSpec(features=4, angle_range=UNIT_RANGE),
            "word-id-shuffled": EncodingSpec(features=4, angle_range=UNIT_RANGE),
            "kmer": EncodingSpec(features=2, angle_range=UNIT_RANGE, tail_share=0.01),
        },
        source="qfl_core.data.genome:genome_source",
    ),
    "breast-cancer": DatasetSpec(
        loader="qfl_core.data.breast_cancer:load_breast_cancer",
        sizes=(341, 114, 114),
        encodings={"pca": EncodingSpec(features=4, angle_range=UNIT_RANGE)},
        source="qfl_core.data.breast_cancer:breast_cancer_source",
    ),
}

#: Partitions: functions ``(pools, reserves, config) -> (train, val)``, see :mod:`qfl_core.data.partition`.
PARTITIONS: dict[str, str] = {
    "label-skew": "qfl_core.data.partition:label_skew",
    "dirichlet": "qfl_core.data.partition:dirichlet",
    "iid": "qfl_core.data.partition:iid",
}

#: Engines: classes that evaluate circuits, see :mod:`qfl_core.engines`.
ENGINES: dict[str, str] = {
    "statevector": "qfl_core.engines.statevector:StatevectorEngine",
    "density": "qfl_core.engines.density:DensityEngine",
    "primitives": "qfl_core.engines.primitives:PrimitivesEngine",
}

#: Feature maps: functions ``(num_features, reps) -> QuantumCircuit`` with one parameter per feature.
FEATURE_MAPS: dict[str, str | CircuitBuilder] = {
    "zz": "qfl_core.engines.qnn:zz_map",
    "z": "qfl_core.engines.qnn:z_map",
}
#: Ansatze: functions ``(num_qubits, reps) -> QuantumCircuit`` whose parameters are the weights.
ANSATZE: dict[str, str | CircuitBuilder] = {"real_amplitudes": "qfl_core.engines.qnn:real_amplitudes_ansatz"}

#: Task losses, see :mod:`qfl_core.algorithm.losses`.
LOSSES: dict[str, Any] = {
    "cross_entropy": "qfl_core.algorithm.losses:CROSS_ENTROPY",
    "squared_error": "qfl_core.algorithm.losses:SQUARED_ERROR",
}

#: The paper's seven methods, see :mod:`qfl_core.algorithm.methods`.
METHOD_NAMES = (
    "default-qfl",
    "adam-qfl",
    "fedprox-qfl",
    "duqfl-last",
    "duqfl-best",
    "duqfl-drift",
    "duqfl-prox",
)
#: Methods that are not the paper's; :mod:`qfl_core.runs.plugins` adds rows to these.
EXTRA_METHODS: dict[str, Any] = {
    "untrained": "qfl_core.extras.untrained:UNTRAINED",
    "scaffold-qfl": "qfl_core.extras.scaffold:SCAFFOLD_QFL",
    "duqfl-learned": "qfl_core.extras.learned:DUQFL_LEARNED",
}

#: Where the controller starts: functions ``(config) -> phi``; None is the config's own rates, whatever the features.
CONTROLLERS: dict[str, str | None] = {"constant": None, "pretrained": "qfl_core.extras.pretrained:pretrained_phi"}

#: How uploads become one model, see :mod:`qfl_core.extras.robust`: functions of the share of bad clients to bear.
#: ``own`` is the rule of the method's row, which is the weighted mean in the paper.
AGGREGATIONS: dict[str, str] = {
    "own": "",
    "median": "qfl_core.extras.robust:Median",
    "trimmed-mean": "qfl_core.extras.robust:TrimmedMean",
    "krum": "qfl_core.extras.robust:Krum",
    "multi-krum": "qfl_core.extras.robust:MultiKrum",
    "clipped-mean": "qfl_core.extras.robust:ClippedMean",
}
#: What bad clients do in a simulated attack, see :mod:`qfl_core.extras.attacks`.
ATTACKS: dict[str, str] = {
    "none": "",
    "noise": "qfl_core.extras.attacks:noise",
    "sign-flip": "qfl_core.extras.attacks:sign_flip",
    "scaling": "qfl_core.extras.attacks:scaling",
    "collusion": "qfl_core.extras.attacks:collusion",
    "label-flip": "qfl_core.extras.attacks:label_flip",
    "lying-trace": "qfl_core.extras.attacks:lying_trace",
}

#: Outer optimisers of the controller: the paper's, and one that scales its steps, see :mod:`qfl_core.algorithm.meta`.
OUTER_OPTIMIZERS: dict[str, Any] = {
    "spsa": "qfl_core.algorithm.meta:OUTER_SPSA",
    "normalised": "qfl_core.extras.normalised:NORMALISED",
}

#: The tables that plugins add rows to, by the config field that names a row.
PLUGIN_TABLES: dict[str, dict[str, Any]] = {
    "method": EXTRA_METHODS,
    "dataset": DATASETS,
    "loss": LOSSES,
    "feature_map": FEATURE_MAPS,
    "ansatz": ANSATZE,
    "outer_optimizer": OUTER_OPTIMIZERS,
}


@dataclass(frozen=True)
class Plugin:
    """A registered row of a table, with the SHA-256 of its values and code."""

    kind: str
    name: str
    row: Any
    sha256: str


#: What was registered in this process, by kind and name.
REGISTERED: dict[tuple[str, str], Plugin] = {}


def plugin_sha256(field: str, name: str) -> str | None:
    """Return the SHA-256 of the plugin that a config field names, or None where the package has the row itself.

    Whatever is kept in memory because of a plugin has this digest in its key, because a function stays the same object
    when only a global that it uses changes.
    """
    plugin = REGISTERED.get((field, name))
    return None if plugin is None else plugin.sha256


def names_for(field: str) -> tuple[str, ...]:
    """Return what a config field may name now: the rows of its table and, for methods, the paper's seven first."""
    return (*(METHOD_NAMES if field == "method" else ()), *PLUGIN_TABLES[field])


def resolve(target: Any) -> Any:
    """Import what ``"module:name"`` points to; anything but text is returned as it is."""
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)
