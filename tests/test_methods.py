"""Seven methods, one table of switches: the paper's."""

import dataclasses
import itertools

import pytest

from qfl_core.algorithm.methods import METHODS, Method
from qfl_core.analysis.tables import roles_table
from qfl_core.base.registry import METHOD_NAMES

# The paper's table of roles: deep unfold, controller, best unfold, drift control.
ROLES = {
    "Default-QFL": "××××",
    "Adam-QFL": "××××",
    "FedProx-QFL": "×××✓",
    "DUQFL-last": "✓✓××",
    "DUQFL-best": "✓✓✓×",
    "DUQFL-drift": "✓✓✓✓",
    "DUQFL-Prox": "✓✓✓✓",
}


def test_the_roles_are_the_papers():
    table = roles_table()
    assert table.columns.tolist() == ["Method", "Deep unfold", "Controller", "Best unfold", "Drift control", "Role"]
    marks = table[["Deep unfold", "Controller", "Best unfold", "Drift control"]].agg("".join, axis=1)
    assert dict(zip(table["Method"], marks, strict=True)) == ROLES


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_a_name_means_the_method_of_that_label(name):
    assert METHODS[name].label.lower() == name


def test_every_method_has_a_row_and_no_other():
    assert tuple(METHODS) == METHOD_NAMES


def test_drift_limits_the_step_and_prox_penalises_it():
    assert (METHODS["duqfl-drift"].projection, METHODS["duqfl-drift"].proximal) == (True, False)
    assert (METHODS["duqfl-prox"].projection, METHODS["duqfl-prox"].proximal) == (False, True)


def test_default_and_fedprox_differ_by_the_proximal_term_alone():
    words = {"label": "", "role": ""}
    plain, prox = (dataclasses.replace(METHODS[name], **words) for name in ("default-qfl", "fedprox-qfl"))
    assert dataclasses.replace(plain, proximal=True) == prox


def test_no_two_methods_have_the_same_switches():
    switches = [dataclasses.replace(method, label="", role="") for method in METHODS.values()]
    assert all(a != b for a, b in itertools.combinations(switches, 2))


def test_a_method_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        METHODS["duqfl-prox"].proximal = False
    assert isinstance(METHODS["duqfl-prox"], Method)
