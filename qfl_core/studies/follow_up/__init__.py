"""The second look: claims that the first stage left undecided, judged once more on fresh seeds alone."""

from qfl_core.studies.follow_up.first_stage import FirstStage
from qfl_core.studies.follow_up.study import FollowUp, follow_up, fresh_seeds, needed_methods

__all__ = ["FirstStage", "FollowUp", "follow_up", "fresh_seeds", "needed_methods"]
