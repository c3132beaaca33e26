"""Evaluate the parameter expressions of a circuit for many parameter vectors at once.

A polynomial, such as ``2*x`` or the ZZ map's ``2*(pi - x_0)*(pi - x_1)``, is recognised by differentiating it until a
constant remains; NumPy then evaluates it for all vectors at once. Qiskit evaluates every other expression, such as
``sin(x)``, for one vector after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from qiskit.circuit import Parameter, ParameterExpression

MAX_DEGREE = 3
_FACTORIAL = (1, 1, 2, 6)  # up to MAX_DEGREE

#: A polynomial: maps the sorted indices of a monomial's parameters, (0, 0, 2) for x_0^2 x_2, to its coefficient.
Terms = dict[tuple[int, ...], float]


@dataclass(frozen=True, eq=False)
class Angles:
    """K gate angles as functions of a parameter vector.

    Attributes
    ----------
    parameters : the parameters, in the order of the vector.
    expressions : the K Qiskit expressions.
    terms : the K polynomials; None stands for an angle that is not a polynomial of degree <= 3.
    is_identity : whether angle k is parameter k for all k, as in RealAmplitudes.
    """

    parameters: tuple[Parameter, ...]
    expressions: tuple[ParameterExpression, ...]
    terms: tuple[Terms | None, ...]
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
        """Return d angle / d parameter, ``(N, K, number of parameters)``, for ``values`` as in :meth:`evaluate`."""
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
        """Return an expression's values ``(N,)``, which Qiskit computes for one vector after the other."""
        used = [(i, p) for i, p in enumerate(self.parameters) if p in expression.parameters]
        try:
            bound = [complex(expression.bind({p: row[i] for i, p in used})) for row in values.tolist()]
        except ZeroDivisionError:
            bound = [complex(np.nan)]
        result = np.array(bound, dtype=complex)
        if not np.isfinite(result).all() or result.imag.any():
            raise ValueError(f"the angle {expression} is not a finite real number for some of the given values")
        return result.real


def compile_angles(expressions: Sequence[ParameterExpression], parameters: Sequence[Parameter]) -> Angles:
    """Return the angles ``expressions`` as functions of vectors that hold ``parameters`` in the given order."""
    position = {p: i for i, p in enumerate(parameters)}
    terms = tuple(_polynomial_or_none(e, position) for e in expressions)
    return Angles(
        parameters=tuple(parameters),
        expressions=tuple(expressions),
        terms=terms,
        is_identity=terms == tuple({(k,): 1.0} for k in range(len(parameters))),
    )


def _polynomial_or_none(expression: ParameterExpression, position: dict[Parameter, int]) -> Terms | None:
    """Return the terms of an expression that is a polynomial of degree <= 3, else None."""
    try:
        if not _is_cubic_on_lines(expression):
            return None
        terms = _taylor(expression, position)
    except (ValueError, ZeroDivisionError, TypeError, RuntimeError):
        return None
    if terms is None:
        return None
    # A function such as sign(x) has the derivatives of a polynomial but is none: the values at two points show it.
    points = np.add.outer([0.0, 0.7], np.linspace(-1.3, 1.1, len(position)))
    for point in points:
        value = complex(expression.bind({p: point[position[p]] for p in expression.parameters}))
        if abs(value - _polynomial(terms, point[None])[0]) > 1e-9 * (1 + abs(value)):
            return None
    return terms


def _is_cubic_on_lines(expression: ParameterExpression) -> bool:
    """Return whether the fourth difference is zero on two lines, as it is for every polynomial of degree <= 3.

    Only such expressions are differentiated, because Qiskit may need hours for the third derivative of a quotient.
    """
    parameters = sorted(expression.parameters, key=str)
    for start, step in ((0.31, 0.47), (-0.83, 0.29)):
        slopes = step * np.linspace(1.0, 1.7, len(parameters))
        at = [complex(expression.bind(dict(zip(parameters, start + t * slopes, strict=True)))) for t in range(5)]
        difference = at[0] - 4 * at[1] + 6 * at[2] - 4 * at[3] + at[4]
        if not abs(difference) <= 1e-9 * (1 + max(map(abs, at))):
            return False
    return True


def _taylor(expression: ParameterExpression, position: dict[Parameter, int]) -> Terms | None:
    """Return the coefficients of a polynomial of degree <= 3 in at most three parameters, else None."""
    order = sorted(position[p] for p in expression.parameters)
    if len(order) > MAX_DEGREE:
        return None
    by_index = {position[p]: p for p in expression.parameters}
    terms: Terms = {}
    # Taylor's theorem at 0: the coefficient of a monomial is its mixed derivative at 0 divided by the factorials.
    # Each sorted tuple of indices is visited once, because indices[-1] or a later parameter is differentiated next.
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


def _polynomial(terms: Terms, values: np.ndarray) -> np.ndarray:
    """Return the polynomial's values ``(N,)`` for ``values : (N, number of parameters)``."""
    out = np.full(len(values), terms.get((), 0.0))
    for indices, coefficient in terms.items():
        if indices:
            term = coefficient * values[:, indices[0]]
            for i in indices[1:]:
                term = term * values[:, i]
            out += term
    return out
