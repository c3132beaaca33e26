"""What a reader of one run would conclude: in how many seeds does one run alone show a claim's whole pattern?

The paper shows single runs. A seed shows the pattern where every part of the claim lies on its claimed side in that
seed, without any test. The share of such seeds is the chance that one run, made once, would have looked like the claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from qfl_core.analysis.claims import Claim
from qfl_core.analysis.inference import wilson_interval


@dataclass(frozen=True)
class SingleRun:
    """``shown`` of ``seeds`` seeds show the pattern; without seeds the share is NaN."""

    shown: int = 0
    seeds: int = 0

    @property
    def share(self) -> float:
        """The share of seeds that show the pattern."""
        return self.shown / self.seeds if self.seeds else np.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the share."""
        return wilson_interval(self.shown, self.seeds) if self.seeds else (np.nan, np.nan)


NO_RUNS = SingleRun()


def single_run(claim: Claim, values: Mapping[str, pd.Series]) -> SingleRun:
    """Return in how many seeds one run alone shows the claim; ``values`` holds one number per seed by label.

    Seeds in which a part has no number are left out. A theory point has no runs, hence no seeds.
    """
    if "theory" in claim.tracks:
        return NO_RUNS
    present, shown = [], []
    for label, part in zip(claim.labels, claim.parts, strict=True):
        support = part.support(values[label].to_numpy(float))
        seeds = values[label].index.to_numpy()
        present.append(set(seeds.tolist()))
        shown.append(set(seeds[support >= 0 if part.claimed == "always" else support > 0].tolist()))
    return SingleRun(len(set.intersection(*present) & set.intersection(*shown)), len(set.intersection(*present)))
