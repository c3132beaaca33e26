"""Methods that are not the paper's, built on the hooks of :mod:`qfl_core.algorithm`."""
