"""Parameter expressions of a circuit, evaluated for many parameter vectors at once.

Polynomials (``2*x``, the ZZ map's ``2*(pi - x_0)*(pi - x_1)``) are found by differentiating until a constant
remains and are evaluated as such; anything else (``sin(x)``) is bound vector by vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from qiskit.circuit import Parameter, ParameterExpression

MAX_DEGREE = 3


@dataclass(frozen=True, eq=False)
class Angles:
    """K gate angles as functions of a parameter vector.

    ``terms[k]`` maps a sorted tuple of parameter indices to its coefficient, or is None where the angle is
    not a polynomial of degree <= 3; ``expressions[k]`` is the Qiskit expression itself. ``is_identity`` says
    whether angle k is parameter k, as in RealAmplitudes.
    """

    parameters: tuple[Parameter, ...]
    expressions: tuple[ParameterExpression, ...]
    terms: tuple[dict[tuple[int, ...], float] | None, ...]
    is_identity: bool

    def evaluate(self, values: np.ndarray) -> np.ndarray:
        """Return the angles ``(N, K)`` for ``values : (N, number of parameters)``."""
        if self.is_identity:
            return values
        out = np.empty((len(values), len(self.terms)))
        for k, (terms, expression) in enumerate(zip(self.terms, self.expressions, strict=True)):
            if terms is None:
                out[:, k] = self._bind(expression, values)
            else:
                out[:, k] = _polynomial(terms, values)
        return out

    def jacobian(self, values: np.ndarray) -> np.ndarray:
        """Return d angle / d parameter, ``(N, K, number of parameters)``, at the same ``values``."""
        out = np.zeros((len(values), len(self.terms), len(self.parameters)))
        position = {p: i for i, p in enumerate(self.parameters)}
        for k, expression in enumerate(self.expressions):
            for parameter in expression.parameters:
                derivative = expression.gradient(parameter)
                if isinstance(derivative, ParameterExpression):
                    out[:, k, position[parameter]] = self._bind(derivative, values)
                else:
                    out[:, k, position[parameter]] = derivative
        return out

    def _bind(self, expression: ParameterExpression, values: np.ndarray) -> np.ndarray:
        used = [(i, p) for i, p in enumerate(self.parameters) if p in expression.parameters]
        try:
            bound = [complex(expression.bind({p: row[i] for i, p in used})) for row in values.tolist()]
        except ZeroDivisionError:
            bound = [complex(np.nan)]
        result = np.array(bound, dtype=complex)
        if not np.isfinite(result).all() or result.imag.any():
            raise ValueError(f"the angle {expression} is not a finite real number for some of the values given")
        return result.real


def compile_angles(expressions: Sequence[ParameterExpression], parameters: Sequence[Parameter]) -> Angles:
    """Return the angles ``expressions`` as functions of ``parameters``, in the order given."""
    position = {p: i for i, p in enumerate(parameters)}
    terms = tuple(_polynomial_or_none(e, position) for e in expressions)
    return Angles(
        parameters=tuple(parameters),
        expressions=tuple(expressions),
        terms=terms,
        is_identity=terms == tuple({(k,): 1.0} for k in range(len(parameters))),
    )


def _polynomial_or_none(expression: ParameterExpression, position: dict) -> dict | None:
    try:
        if not _is_cubic_on_lines(expression):
            return None
        terms = _taylor(expression, position)
    except (ValueError, ZeroDivisionError, TypeError, RuntimeError):
        return None
    if terms is None:
        return None
    # A function such as sign(x) has the derivatives of a polynomial without being one: compare at two points.
    points = np.add.outer([0.0, 0.7], np.linspace(-1.3, 1.1, len(position)))
    for point in points:
        value = complex(expression.bind({p: point[position[p]] for p in expression.parameters}))
        if abs(value - _polynomial(terms, point[None])[0]) > 1e-9 * (1 + abs(value)):
            return None
    return terms


def _is_cubic_on_lines(expression: ParameterExpression) -> bool:
    """Whether the fourth difference vanishes on two lines, as for every polynomial of degree <= 3.

    Differentiating anything else is not only in vain: the third derivative of a quotient may take Qiskit hours.
    """
    parameters = sorted(expression.parameters, key=str)
    for start, step in ((0.31, 0.47), (-0.83, 0.29)):
        slopes = step * np.linspace(1.0, 1.7, len(parameters))
        at = [complex(expression.bind(dict(zip(parameters, start + t * slopes, strict=True)))) for t in range(5)]
        difference = at[0] - 4 * at[1] + 6 * at[2] - 4 * at[3] + at[4]
        if not abs(difference) <= 1e-9 * (1 + max(map(abs, at))):
            return False
    return True


def _taylor(expression: ParameterExpression, position: dict) -> dict[tuple[int, ...], float] | None:
    """Return the coefficients of a polynomial of degree <= 3 in at most three parameters, else None."""
    order = sorted(position[p] for p in expression.parameters)
    if len(order) > MAX_DEGREE:
        return None
    by_index = {position[p]: p for p in expression.parameters}
    terms: dict[tuple[int, ...], float] = {}
    # Taylor's theorem at 0: the coefficient of a monomial is its mixed derivative there over the factorials.
    # Every non-decreasing index tuple is reached once, by differentiating with respect to later indices only.
    pending: list[tuple[tuple[int, ...], ParameterExpression | complex]] = [((), expression)]
    while pending:
        indices, derivative = pending.pop()
        if isinstance(derivative, ParameterExpression) and derivative.parameters:
            if len(indices) == MAX_DEGREE:
                return None
            value = complex(derivative.bind(dict.fromkeys(derivative.parameters, 0.0)))
            for i in order:
                if not indices or i >= indices[-1]:
                    pending.append(((*indices, i), derivative.gradient(by_index[i])))
        else:
            value = complex(derivative)
        if value.imag != 0 or not np.isfinite(value.real):
            return None
        if value.real != 0:
            repeats = np.unique(indices, return_counts=True)[1] if indices else [1]
            terms[indices] = value.real / float(np.prod([_FACTORIAL[r] for r in repeats]))
    return terms


_FACTORIAL = (1, 1, 2, 6)


def _polynomial(terms: dict[tuple[int, ...], float], values: np.ndarray) -> np.ndarray:
    out = np.full(len(values), terms.get((), 0.0))
    for indices, coefficient in terms.items():
        if indices:
            term = coefficient * values[:, indices[0]]
            for i in indices[1:]:
                term = term * values[:, i]
            out += term
    return out
