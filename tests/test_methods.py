"""Seven methods, one table of switches: the paper's."""

import dataclasses
import itertools

import pytest

from qfl_core.algorithm.hooks import Aggregation, LocalOptimizer
from qfl_core.algorithm.methods import METHODS, SWITCHES, Method
from qfl_core.algorithm.optimizers import Adam, LibrarySpsa, Spsa
from qfl_core.analysis.tables import roles_table
from qfl_core.base.errors import ConfigError
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


def test_the_first_and_the_third_train_with_the_librarys_spsa_the_second_with_adam_and_four_unfold():
    kinds = [type(method.optimizer) for method in METHODS.values()]
    assert kinds == [LibrarySpsa, Adam, LibrarySpsa, Spsa, Spsa, Spsa, Spsa]
    assert [method.unfolded for method in METHODS.values()] == [False] * 3 + [True] * 4


def test_the_papers_methods_take_the_average_by_sample_size_itself():
    assert all(method.server is None and method.aggregation.init(3) == {} for method in METHODS.values())
    assert len({method.aggregation for method in METHODS.values()}) == 1


def test_drift_limits_the_step_and_prox_penalises_it():
    assert (METHODS["duqfl-drift"].projection, METHODS["duqfl-drift"].proximal) == (True, False)
    assert (METHODS["duqfl-prox"].projection, METHODS["duqfl-prox"].proximal) == (False, True)


def test_with_the_same_spsa_default_and_fedprox_differ_by_the_proximal_term_alone():
    same = {"label": "", "role": "", "optimizer": Spsa(unfolded=False)}
    plain, prox = (dataclasses.replace(METHODS[name], **same) for name in ("default-qfl", "fedprox-qfl"))
    assert dataclasses.replace(plain, proximal=True) == prox


def test_no_two_methods_have_the_same_switches():
    switches = [dataclasses.replace(method, label="", role="") for method in METHODS.values()]
    assert all(a != b for a, b in itertools.combinations(switches, 2))


def test_a_method_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        METHODS["duqfl-prox"].proximal = False
    assert isinstance(METHODS["duqfl-prox"], Method)


# Wrong kinds of value


def rule(attendance, learned):
    return attendance.sizes / attendance.sizes.sum()


class HalfAServer:
    def init(self, num_weights):
        return {}


class Server(HalfAServer):
    def update(self, theta, average, state):
        return average, state


class WithoutUpdate(LocalOptimizer):
    pass


def refused(**changes) -> str:
    """Return the one line with which a change of DUQFL-Prox is refused."""
    with pytest.raises(ConfigError) as found:
        dataclasses.replace(METHODS["duqfl-prox"], **changes)
    message = str(found.value)
    assert "\n" not in message
    return message


def shown(value) -> str:
    """Return a test id without a memory address, because parallel workers must agree on it."""
    return getattr(value, "__name__", None) or (
        repr(value) if isinstance(value, (str, int, float)) else type(value).__name__
    )


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("value", [rule, 1, 0, 1.0, "yes", "", None, [True]], ids=shown)
def test_a_switch_is_true_or_false_and_nothing_that_is_like_it(switch, value):
    assert refused(**{switch: value}) == f"DUQFL-Prox: {switch}={value!r}, expected True or False"


def test_every_yes_or_no_of_a_method_is_a_switch():
    assert [field.name for field in dataclasses.fields(Method) if field.type == "bool"] == list(SWITCHES)


@pytest.mark.parametrize("value", ["spsa", Spsa, None, rule, True], ids=shown)
def test_an_optimiser_is_an_object(value):
    expected = "expected an object of a class derived from qfl_core.algorithm.hooks.LocalOptimizer"
    assert refused(optimizer=value) == f"DUQFL-Prox: optimizer={value!r}, {expected}"


@pytest.mark.parametrize("kind", [LocalOptimizer, WithoutUpdate])
def test_an_optimiser_without_an_update_of_its_own_is_refused(kind):
    assert "expected a class with a method update of its own" in refused(optimizer=kind())


@pytest.mark.parametrize("value", [rule, "mean", None, Aggregation, True], ids=shown)
def test_a_bare_function_is_no_aggregation(value):
    expected = "expected a qfl_core.algorithm.hooks.Aggregation"
    assert refused(aggregation=value) == f"DUQFL-Prox: aggregation={value!r}, {expected}"


@pytest.mark.parametrize("value", [HalfAServer(), Server, rule, "adam", True, 0], ids=shown)
def test_a_server_is_none_or_an_object_with_init_and_update(value):
    expected = "expected None or an object with the methods init and update"
    assert refused(server=value) == f"DUQFL-Prox: server={value!r}, {expected}"
    assert dataclasses.replace(METHODS["duqfl-prox"], server=Server()).server


@pytest.mark.parametrize("name", ["weights", "init", "combine"])
@pytest.mark.parametrize("value", [None, "median", {"a": 1}, 0.5], ids=shown)
def test_the_parts_of_an_aggregation_are_functions(name, value):
    with pytest.raises(ConfigError) as found:
        Aggregation(**({"weights": rule} | {name: value}))
    assert str(found.value) == f"aggregation: {name}={value!r}, expected a function"
