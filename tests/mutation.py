"""Wrong versions of the source, one at a time: ``make mutation`` tells which of them a test notices.

Some are wrong versions of Algorithms 1 to 3, others would lose a researcher's result: a run filed under the wrong data,
an old run returned for a changed method, a damaged file taken for a whole one. Each changes one fragment of a copy of
the package and runs the tests of its room there, up to the first failure. All must be killed. ``test_mutation.py``
holds that every fragment is still in the source.
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
COPIED = ("qfl_core", "tests", "pyproject.toml", "docs/federation.md")
CLIENT, SERVER = ("test_client.py",), ("test_server.py",)
META, SPSA = ("test_meta.py",), ("test_optimizers.py", "test_client.py")
RUNS, DAMAGE, PLUGIN = ("test_runs.py",), ("test_damage.py",), ("test_plugin_identity.py",)
SPLITS = tuple(
    f"test_runs.py::test_{name}"
    for name in (
        "a_run_on_another_seeds_splits_is_never_returned_for_the_config_alone",
        "every_value_of_every_split_is_part_of_its_digest",
        "splits_that_contradict_the_config_are_refused_before_anything_is_written",
    )
)
PRIVACY, MASKS = ("test_privacy.py",), ("test_masks.py",)
WIRE, NODE = ("test_flower_wire.py",), ("test_flower_node.py",)
AGAIN = ("test_flower_wire.py::test_a_node_is_asked_again_ever_more_seldom",)
LOCAL = tuple(
    f"test_federate_local.py::test_{name}"
    for name in (
        "the_port_of_a_superlink_is_kept_for_it_until_the_end",
        "a_process_that_left_the_group_is_ended_with_the_rest",
    )
)
AT_ONCE = ("test_files.py", "test_simultaneous.py")


@dataclass(frozen=True)
class Mutation:
    """A fragment of the source, what replaces it, the test files (or tests in them) that must notice, and its room."""

    name: str
    old: str
    new: str
    tests: tuple[str, ...]
    room: str = "algorithm"

    def file(self, package: Path) -> Path:
        """Return the module that holds the fragment, exactly once in the room."""
        found = {
            path: path.read_text(encoding="utf-8").count(self.old)
            for path in sorted((package / self.room).glob("*.py"))
        }
        held = {path: count for path, count in found.items() if count}
        if list(held.values()) != [1]:
            where = {path.name: count for path, count in held.items()} or "nowhere"
            raise LookupError(f"{self.name}: {self.old!r} must be in qfl_core/{self.room} once, and is in {where}")
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
        "(config.outer_perturbation, -config.outer_perturbation)",
        "(config.outer_perturbation, config.outer_perturbation)",
        META,
    ),
    Mutation(
        "virtual rounds on the real streams",
        'federated_round(federation, start, trainer, "virtual")',
        'federated_round(federation, start, trainer, "round")',
        META,
    ),
    Mutation("refined a round too late", "done % period == 0", "t % period == 0", META),
    # A result belongs to the config and the data that it is filed under
    Mutation(
        "splits filed as the config's own data",
        "data_source(config).sha256 if splits is None else splits.digest",
        "data_source(config).sha256",
        SPLITS,
        "runs",
    ),
    Mutation("splits known by their inputs alone", "(split.X, split.y, split.origin)", "(split.X,)", SPLITS, "data"),
    Mutation("splits of any size accepted", "    if wrong:\n", "    if False:\n", SPLITS, "runs"),
    # A changed method is another method
    *(
        Mutation(f"plugin known without {what}", old, new, PLUGIN, "runs/plugin_identity")
        for what, old, new in (
            ("its defaults", "            self.read(value.__defaults__)\n", ""),
            ("its keyword defaults", "value.__kwdefaults__ or {}", "{}"),
            ("its closure", "_closure(value))", "{})"),
            ("the attributes of its function", "value.__dict__)", "{})"),
            ("its globals", "                self._read_globals(value)\n", ""),
            ("globals that a text names", "_quoted_names(code) if found & _BY_TEXT else set()", "set()"),
            ("the attributes of cached functions", "value.__wrapped__, **vars(value)}", "value.__wrapped__}"),
            ("cached properties that were set", "elif not self._cached or", "elif True or"),
            ("a file with the name of one of Python's", "return file is None or not is_own(file)", "return True"),
            ("what hides in its lists", "list.__iter__(value)", "iter(value)"),
            ("the attributes of its objects", "self._attributes(value)", "{}"),
            ("its slots", "isinstance(member, types.MemberDescriptorType)", "member is None"),
            (
                "the end of its arrays",
                "np.ascontiguousarray(value).tobytes()",
                "np.ascontiguousarray(value).tobytes()[:99]",
            ),
            ("the shape of its arrays", "ascii(value.shape)", "ascii(value.size)"),
            ("the attributes of its classes", '"attribute", found)', '"attribute", {})'),
            ("its base classes", "self.read((type(value), *value.__bases__))", "pass"),
            ("the values of its other files", "self._read_used(vars(module)[attribute], used)", "pass"),
            ("a look at its edited file", "function.__code__ not in _compiled(file.read_bytes())", "False"),
        )
    ),
    # Damaged and unfinished runs
    Mutation(
        "only errors of the disk are told",
        "except Exception as error:  # because",
        "except OSError as error:  #",
        DAMAGE,
        "runs",
    ),
    Mutation(
        "changed files not looked for",
        "if found.get(name) != sealed.get(name)]",
        "if name not in found]",
        DAMAGE,
        "runs",
    ),
    Mutation(
        "journal's lines not in a chain",
        "following = _digest(digest, body)",
        "following = line[11:75].decode()",
        DAMAGE,
        "runs",
    ),
    Mutation(
        "journal's rounds not counted", 'if record["state"]["done"] != len(records):', "if False:", DAMAGE, "runs"
    ),
    Mutation("journal not mended", "            os.truncate(self.path, whole)\n", "", DAMAGE, "runs"),
    Mutation("journal sealed without all rounds", "if not records or len(records) !=", "if 0 >", DAMAGE, "runs"),
    Mutation("numbers that are not finite are kept", "                check_finite(record)\n", "", RUNS, "runs"),
    Mutation(
        "sealed before the last file is written",
        """            write_bytes(self.path / PARAMS, _learnt(records))
            write_text(self.path / DONE, _to_json(self.digests()))
""",
        """            write_text(self.path / DONE, _to_json(self.digests()))
            write_bytes(self.path / PARAMS, _learnt(records))
""",
        RUNS,
        "runs",
    ),
    # Privacy
    Mutation("steps not shortened", "steps = shortened(steps, config.dp_clip)", "pass", PRIVACY, "extras"),
    Mutation(
        "every client adds all the noise", " / np.sqrt(len(federation.participants(sent.t)))", "", PRIVACY, "extras"
    ),
    Mutation(
        "noise not in units of the clip", "config.dp_noise * config.dp_clip /", "config.dp_noise /", PRIVACY, "extras"
    ),
    Mutation("rho without its half", "1 / (2 * noise**2) if", "1 / (4 * noise**2) if", PRIVACY, "extras"),
    Mutation("lost noise is counted", "noise * np.sqrt(arrived / len(asked))", "noise", PRIVACY, "extras"),
    Mutation("the first client counts", "ORDERS * rho.max(), config", "ORDERS * rho[0], config", PRIVACY, "extras"),
    Mutation("private runs keep the trace", ' | {"client_trace": []}', "", PRIVACY, "extras"),
    Mutation("private weights by size", "if config.dp_noise is None else uniform", "", PRIVACY, "extras"),
    Mutation("own mask left out", " + mask(secret, len(integers))", "", MASKS, "network"),
    Mutation("pairwise masks left out", "        if other != client:\n", "        if False:\n", MASKS, "network"),
    Mutation("masks do not cancel", "return found if j < i else", "return found if j != i else", MASKS, "network"),
    Mutation("both shares revealed alike", "of_secret if dealer in arrived else of_key", "of_secret", MASKS, "network"),
    Mutation("a round answered twice", '    if t < memory["t"]:\n', "    if False:\n", MASKS, "network"),
    Mutation(
        "a phase answered twice", 'if memory.get(f"{phase}.asked", digest) != digest:', "if False:", MASKS, "network"
    ),
    Mutation("a sum of too few is revealed", " or len(set(arrived)) < needed", "", MASKS, "network"),
    # Clients that lie, and answers that get lost
    Mutation(
        "a trace of any numbers accepted",
        "            if not inside.all():\n",
        "            if False:\n",
        WIRE,
        "network",
    ),
    Mutation("weights of any size accepted", "if (np.abs(values) > LARGEST).any():", "if False:", WIRE, "network"),
    Mutation(
        "absurd uploads counted",
        "sent.theta, ABSURD, scales)",
        "sent.theta, np.inf, scales)",
        ("test_robust.py",),
        "extras",
    ),
    Mutation(
        "screening without effect", "if config.screening is not None:", "if False:", ("test_robust.py",), "extras"
    ),
    Mutation(
        "two nodes may be one client", "        if client_id in answers:\n", "        if False:\n", WIRE, "network"
    ),
    Mutation(
        "nobody is asked again",
        "asked.due = now + self.patience.again * 2**asked.tries",
        'asked.due = float("inf")',
        AGAIN,
        "network",
    ),
    Mutation("a lost answer counts as one", "reply.error.code not in LOST", "True", WIRE, "network"),
    Mutation("a server error is final", "if response.status_code == 500 or (taken", "if (taken", NODE, "network"),
    Mutation("a node asks for ever to join", " - refused_since[0] < TAKEN_SECONDS", " >= 0", NODE, "network"),
    Mutation("the last answer is not kept", "if question == self._question and", "if False and", NODE, "network"),
    Mutation(
        "a lost answer ends the node",
        "except (ObjectPullError, ObjectPushError) as error:",
        "except ObjectPullError as error:",
        NODE,
        "network",
    ),
    Mutation(
        "a database is waited for as by Flower",
        "BUSY_SECONDS = 60",
        "BUSY_SECONDS = 5",
        ("test_flower_credentials.py::test_the_superlink_waits_a_minute_for_a_busy_database",),
        "network",
    ),
    Mutation("a port is free for others", 'if sys.platform != "linux":  # where', "if True:  #", LOCAL, "network"),
    Mutation(
        "processes in other sessions stay",
        "        for process in self._leftovers():\n",
        "        for process in ():\n",
        LOCAL,
        "network",
    ),
    # Several processes, and disks that cannot be written
    Mutation("one temporary name for all", "{secrets.token_hex(8)}", "fixed", AT_ONCE, "base"),
    Mutation("file written in place", "temporary = unique_name(path)", "temporary = path", AT_ONCE, "base"),
    Mutation(
        "workers look for modules where they did",
        ", batch_size=1, **started)",
        ", batch_size=1)",
        ("test_cli.py",),
        "base",
    ),
    Mutation(
        "a worker that is replaced stops a sweep",
        '        warnings.filterwarnings("ignore", REPLACED, UserWarning)\n',
        "",
        ("test_processes.py",),
        "base",
    ),
    Mutation("runs are not locked", "        lock.acquire()\n", "", AT_ONCE, "base"),
    Mutation(
        "finished run not looked for before the lock",
        "found = None if repeat else _finished(config, results_dir, identity)\n    return found or _run(prepare(",
        "found = None\n    return found or _run(prepare(",
        RUNS,
        "runs",
    ),
    Mutation(
        "leftover journal must be removed", "with suppress(RunError):  # because a disk", "if True:  #", RUNS, "runs"
    ),
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
