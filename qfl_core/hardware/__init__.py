"""From a trained checkpoint to a backend: plan, pay knowingly, lose no job, label honestly, replay.

``python -m qfl_core hardware run`` does it from the command line, notebook 06 in a browser.
"""

from qfl_core.hardware.config import HardwareConfig
from qfl_core.hardware.pipeline import Validation, dry_run, replay, validate
from qfl_core.hardware.service import connect

__all__ = ["HardwareConfig", "Validation", "connect", "dry_run", "replay", "validate"]
