"""Wrong versions of Algorithms 1 to 3, one at a time: ``make mutation`` tells which of them a test notices.

Each changes one fragment of a copy of the package and runs the tests of its algorithm there, up to the first failure.
All must be killed. ``test_mutation.py`` holds that every fragment is still in the source.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("qfl_core", "tests", "pyproject.toml")
CLIENT, SERVER = ("test_client.py",), ("test_server.py",)
META, SPSA = ("test_meta.py",), ("test_optimizers.py", "test_client.py")


@dataclass(frozen=True)
class Mutation:
    """A fragment of the source, what replaces it, and the test files that must notice."""

    name: str
    old: str
    new: str
    tests: tuple[str, ...]

    def file(self, package: Path) -> Path:
        """Return the module that holds the fragment, exactly once in the room of the paper."""
        found = {
            path: path.read_text(encoding="utf-8").count(self.old)
            for path in sorted((package / "algorithm").glob("*.py"))
        }
        held = {path: count for path, count in found.items() if count}
        if list(held.values()) != [1]:
            where = {path.name: count for path, count in held.items()} or "nowhere"
            raise LookupError(f"{self.name}: {self.old!r} must be in qfl_core/algorithm once, and is in {where}")
        return next(iter(held))


MUTATIONS = (
    # Algorithm 1
    Mutation(
        "proximal term without its square",
        "cumsum((theta - self.anchor) ** 2",
        "cumsum(np.abs(theta - self.anchor)",
        CLIENT,
    ),
    Mutation("proximal term without its half", "0.5 * self.mu", "self.mu", CLIENT),
    Mutation("proximal term rewards distance", "0.5 * self.mu", "-0.5 * self.mu", CLIENT),
    Mutation("penalty dropped from the objective", "loss.value)[0] + self.penalty(theta)", "loss.value)[0]", CLIENT),
    Mutation("penalty dropped from Adam's gradient", " + self.mu * (theta - self.anchor)", "", CLIENT),
    Mutation("best unfold by argmax", "np.argmin(val_loss, axis=1)", "np.argmax(val_loss, axis=1)", CLIENT),
    Mutation("last unfold instead of the best", "np.argmin(val_loss, axis=1) + 1", "np.full(clients, unfolds)", CLIENT),
    Mutation("best unfold by training loss", 'select(trace["val_loss"]', 'select(trace["loss_after"]', CLIENT),
    Mutation("upload of the unfold before", "len(models)), selected - 1]", "len(models)), selected - 2]", CLIENT),
    Mutation(
        "unfolds all start from the broadcast",
        "        theta = end\n",
        "",
        CLIENT,
    ),
    Mutation("projection radius ignored", "clipped = length > radius", "clipped = length > np.inf", CLIENT),
    Mutation(
        "loss change with the wrong sign", "(self.before - self.after) / np", "(self.after - self.before) / np", CLIENT
    ),
    Mutation("virtual rounds share the real shots", 'f"{sent.purpose}-shots"', '"round-shots"', META),
    # The SPSA block
    Mutation("SPSA step uphill", "theta = theta - eta[:, None]", "theta = theta + eta[:, None]", SPSA),
    Mutation("SPSA slope over one delta", "pair[:, 1]) / (2 * delta)", "pair[:, 1]) / delta", SPSA),
    # Algorithm 2
    Mutation("aggregation weights not normalised", "sizes.sum()", "sizes.size", SERVER),
    Mutation("aggregate keeps the last upload", "total = total + weight * upload", "total = weight * upload", SERVER),
    Mutation("one bad upload is let through", "if broken.any():", "if broken.all():", SERVER),
    Mutation("fairness gap rewarded", "+ config.lambda_fair * fair", "- config.lambda_fair * fair", SERVER),
    Mutation("communication not a share", "comm = moved / (", "comm = moved / moved * (", SERVER),
    Mutation("steadiness left out of the meta-loss", " + config.lambda_stab * stab", "", SERVER),
    Mutation("Adam's worst rate chosen", "np.argmin([attempt.meta", "np.argmax([attempt.meta", SERVER),
    # Algorithm 3
    Mutation(
        "outer step uphill", "start.phi, -config.outer_learning_rate", "start.phi, config.outer_learning_rate", META
    ),
    Mutation("plus and minus swapped", "(loss_plus - loss_minus)", "(loss_minus - loss_plus)", META),
    Mutation("outer slope over one radius", "/ (2 * radius)", "/ radius", META),
    Mutation(
        "both virtual rounds on one side",
        "start.phi, -config.outer_perturbation",
        "start.phi, config.outer_perturbation",
        META,
    ),
    Mutation(
        "virtual rounds on the real streams",
        'phi=phi_minus), trainer, "virtual")',
        'phi=phi_minus), trainer, "round")',
        META,
    ),
    Mutation("refined a round too late", "done % period == 0", "t % period == 0", META),
)


def first_failure(folder: Path, tests: tuple[str, ...]) -> str | None:
    """Run test files of a copy and return the first that failed, or None."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *(f"tests/{name}" for name in tests)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    told = re.search(r"^(?:FAILED|ERROR) tests/\S+?::(\S+)", done.stdout, flags=re.M)
    return told[1] if told else (done.stdout + done.stderr).strip().splitlines()[-1]


def main(wanted: list[str]) -> int:
    """Try every mutation whose name holds one of the words, or all; return how many survive, 0 being good."""
    chosen = [m for m in MUTATIONS if not wanted or any(word in m.name for word in wanted)]
    survived = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            copy(ROOT / name, folder / name)
        sound = first_failure(folder, tuple(sorted({name for m in chosen for name in m.tests})))
        if sound is not None:
            print(f"the tests fail without any mutation: {sound}", file=sys.stderr)
            return 1
        for mutation in chosen:
            path, begun = mutation.file(folder / "qfl_core"), time.perf_counter()
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
            noticed = first_failure(folder, mutation.tests)
            path.write_text(text, encoding="utf-8")
            survived += noticed is None
            verdict = f"killed by {noticed}" if noticed else "SURVIVED"
            print(f"{mutation.name:<40} {path.name:<14} {time.perf_counter() - begun:5.1f} s  {verdict}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} mutations killed")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
