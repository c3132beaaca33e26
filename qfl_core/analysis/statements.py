"""Many statements about means over seeds, tested at once: each needs one or several one-sided tests that all reject.

A *test* is a column of numbers, one per seed, whose mean the statement says to be above 0. Under the opposite a
number is as likely d as -d where its mean is 0, so all 2^n sign patterns are equally likely and the p value is exact.

A *statement* is a set of tests. It is shown where its worst test rejects, because "all of these are above 0" is wrong
as soon as one is not (intersection-union): no correction is needed among the tests of one statement.

A *list* of statements is corrected so that the chance of showing even one wrong statement stays below the level. Take
any choice of one wrong test per wrong statement: the probability that one of these reaches a height t under joint flips
is at most

- the share of flips in which *any* test of the list reaches t (Westfall and Young's maximum), and at most
- the sum over statements of the largest share of flips in which one of its tests reaches t (Bonferroni).

Both hold for every choice, so the smaller of the two is a corrected p value. The first uses how tests depend on each
other, which lets many tests reject at ten seeds; the second does not pay for the many tests of one statement.
Statements are taken from the most extreme down, and those already shown no longer count (step-down).

Flips assume that a number is as likely above its mean as below it. Skewed numbers are not, so beyond 14 seeds a second
test must reject, too: the same correction with the studentised bootstrap of all tests together
(:func:`~qfl_core.analysis.inference.pivots`), which follows a skew. The larger p value counts. With fewer seeds no test
can learn the shape of the numbers from them, and the p value assumes symmetry.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qfl_core.analysis.inference import EXACT_SEEDS, FLIPS, TIE, flip_sums, pivots

#: Places of the tests of each statement among the columns.
Statements = Sequence[Sequence[int]]


def statement_p(sums: np.ndarray, statements: Statements) -> np.ndarray:
    """Return the p value of each statement taken alone: the largest of its tests.

    ``sums`` (flips, tests) comes from :func:`~qfl_core.analysis.inference.flip_sums`; its first row is what was seen.
    """
    alone = (sums >= sums[0] - TIE).mean(axis=0)
    return np.array([alone[list(tests)].max() for tests in statements])


def corrected_p(sums: np.ndarray, statements: Statements) -> np.ndarray:
    """Return p values (statements,), corrected for all statements of the list; see the module's docstring.

    ``sums`` (flips, tests) comes from :func:`~qfl_core.analysis.inference.flip_sums`; its first row is what was seen.
    """
    if not statements:
        return np.empty(0)
    seen = np.array([sums[0, list(tests)].min() for tests in statements])
    order = np.argsort(-seen, kind="stable")
    heights = seen[order] - TIE
    highest = np.stack([sums[:, list(statements[s])].max(axis=1) for s in order], axis=1)
    remaining = np.maximum.accumulate(highest[:, ::-1], axis=1)[:, ::-1]
    share = (remaining >= heights).mean(axis=0)
    if any(len(tests) > 1 for tests in statements):
        used = sorted({test for tests in statements for test in tests})
        reached = dict(zip(used, _shares(sums[:, used], heights), strict=True))
        largest = np.stack([np.max([reached[test] for test in statements[s]], axis=0) for s in order])
        # Row k, column r: the share of statement k at the height of statement r; k counts from r on.
        share = np.minimum(share, np.triu(largest.T).sum(axis=1))
    found = np.empty(len(order))
    found[order] = np.maximum.accumulate(np.minimum(share, 1.0))
    return found


def _shares(sums: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Return (tests, heights): the share of flips in which each test reaches each height."""
    below = [np.searchsorted(column, heights) for column in np.sort(sums, axis=0).T]
    return 1 - np.array(below) / len(sums)


def p_values(
    values: np.ndarray, lists: Sequence[Statements], rng: np.random.Generator, flips: int = FLIPS
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (p alone, p corrected) of the statements of each list; all lists share the tests and the flips.

    ``values`` (seeds, tests) has NaN where a test has no such seed. With L lists whose p values are compared with
    1 / L of the level, all statements of all lists together keep the level.
    """
    found = _both(flip_sums(values, rng, flips), lists)
    if len(values) <= EXACT_SEEDS:
        return found
    skewed = _both(pivots(values, rng, flips), lists)
    return [
        (np.maximum(alone, other), np.maximum(corrected, also))
        for (alone, corrected), (other, also) in zip(found, skewed, strict=True)
    ]


def _both(sums: np.ndarray, lists: Sequence[Statements]) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(statement_p(sums, statements), corrected_p(sums, statements)) for statements in lists]
