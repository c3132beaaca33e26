"""Figures and tables are the same bytes on other processors, so ``git diff figures`` is empty after a reproduction."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from planted_claims import world

HERE = Path(__file__).resolve().parent
#: What a processor of 2004 has: OpenBLAS and NumPy choose other loops, which add numbers in another order, and the C
#: library computes logarithms, exponentials and powers without fused products.
OLD = {
    "OPENBLAS_CORETYPE": "Prescott",
    "NPY_DISABLE_CPU_FEATURES": "all",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F",
}


def features() -> str:
    """Return the names of the features that NumPy uses here beyond its minimum."""
    return " ".join(np.show_config(mode="dicts")["SIMD Extensions"].get("found", []))


def made(runs: Path, folder: Path, **environment: str) -> dict[str, bytes]:
    """Make tables and figures in a process with this environment; return them by name."""
    kept = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE)])} | environment
    command = [sys.executable, str(HERE / "portable.py"), str(runs), str(folder)]
    done = subprocess.run(command, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.*")}


@pytest.mark.outside
def test_another_processor_makes_the_same_tables_and_figures(tmp_path):
    if not (extra := features()):
        pytest.skip("NumPy uses no feature here that could be switched off")
    runs = tmp_path / "runs.pickle"
    runs.write_bytes(pickle.dumps(world(seeds=6)))
    here = made(runs, tmp_path / "here")
    there = made(runs, tmp_path / "there", **OLD | {"NPY_DISABLE_CPU_FEATURES": extra})
    assert len([name for name in here if name.endswith((".csv", ".md", ".tex"))]) >= 29
    assert len([name for name in here if name.endswith((".pdf", ".png"))]) >= 24
    assert sorted(here) == sorted(there)
    assert [name for name in here if here[name] != there[name]] == []
