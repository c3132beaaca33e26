"""What an experiment is: one frozen, checked config, and the profiles that name sets of them."""

from qfl_core.config.experiment import MAX_SEED, ExperimentConfig, read_yaml
from qfl_core.config.profile import (
    CLEAN,
    COMMAND_KEYS,
    PROFILE_KEYS,
    SECTION_KEYS,
    Profile,
    load_profile,
    read_profile,
    seed_range,
    track_dataset,
)

__all__ = [
    "CLEAN",
    "COMMAND_KEYS",
    "MAX_SEED",
    "PROFILE_KEYS",
    "SECTION_KEYS",
    "ExperimentConfig",
    "Profile",
    "load_profile",
    "read_profile",
    "read_yaml",
    "seed_range",
    "track_dataset",
]
