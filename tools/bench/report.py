"""What a bench says about itself: the machine, and the printed table."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from qfl_core.base.numbers import count, significant

PACKAGES = ("numpy", "numba", "qiskit", "qiskit-aer", "qiskit-machine-learning", "qiskit-ibm-runtime", "pennylane")


def machine() -> dict:
    """Return cores, BLAS libraries with their threads, and versions."""
    from threadpoolctl import threadpool_info

    blas = [d for d in threadpool_info() if d["user_api"] == "blas"]
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "blas": [{k: d.get(k) for k in ("internal_api", "version", "architecture", "num_threads")} for d in blas],
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def table(results: dict) -> str:
    """Return the results as the text that the command prints."""
    lines, case = [], None
    for row in results["rows"]:
        if row["case"] != case:
            case = row["case"]
            lines += ["", f"{case:<50}{'evaluations/s':>16}{'seconds':>12}{'counted':>12}  differs by"]
        difference = "" if row["difference"] is None else f"{row['difference']:.1e}"
        numbers = f"{_speed(row)}{count(row['evaluations']):>12}"
        lines.append(f"  {row['name']:<48}{numbers}  {difference}")
    lines += ["", f"{'Ratio or seconds':<50}{'target':>16}{'measured':>12}"]
    for target in results["targets"]:
        limit = "" if target["limit"] is None else f"{'>=' if target['at_least'] else '<='} {target['limit']:,g}"
        value = "not run" if target["value"] is None else f"{target['value']:,.3g}"
        verdict = {None: "", True: "reached", False: "MISSED"}[target["reached"]]
        lines.append(f"  {target['name']:<48}{limit:>16}{value:>12}  {verdict}")
    curves = {f"Cost by {name}, one thread": points for name, points in results["scaling"].items()}
    curves |= {f"Training run by {name}": points for name, points in results["training"]["scaling"].items()}
    for title, points in curves.items():
        told = "  memory" if points[0].get("megabytes") else ""
        lines += ["", f"{title:<50}{'evaluations/s':>16}{'seconds':>12}{told}"]
        for point in points:
            label = f"{point['value']:,} {point.get('strategy', '')}"
            memory = f"  {count(point['megabytes'])} MB" if point.get("megabytes") else ""
            lines.append(f"  {label:<48}{_speed(point)}{memory}")
    on = results["machine"]
    threads = ", ".join(f"{b['internal_api']} {b['version']} x {b['num_threads']}" for b in on["blas"])
    packages = ", ".join(f"{k} {v}" for k, v in on["packages"].items() if v)
    lines += ["", f"{on['cores']} cores, {threads}; Python {on['python']}, {packages}"]
    return "\n".join(lines).lstrip("\n")


def _speed(measured: dict) -> str:
    """Return the columns of evaluations per second and of seconds."""
    rate = measured["evaluations"] / measured["seconds"]
    return f"{count(rate):>16}{significant(measured['seconds'], 3):>12}"
