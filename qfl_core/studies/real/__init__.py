"""The results on the user's real files, kept as numbers and compared claim by claim with the stand-ins'."""

from qfl_core.studies.real.study import RealResults, compared, compared_text, file_facts, real_results, shared_rows

__all__ = ["RealResults", "compared", "compared_text", "file_facts", "real_results", "shared_rows"]
