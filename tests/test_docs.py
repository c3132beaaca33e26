"""What the documents say exists: links, anchors, targets, tests; workflows and hooks run what make runs."""

import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
import yaml

from qfl_core import __version__
from qfl_core.__main__ import main
from qfl_core.config import load_profile
from qfl_core.hardware import HardwareConfig

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "data" / "README.md"])
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^()\s]+)(?:\s+\"[^\"]*\")?\)")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """Return a document without its code."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "", text)


def code(path: Path) -> str:
    """Return a document's code alone: blocks, indented or fenced, and spans."""
    text = path.read_text(encoding="utf-8")
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, flags=re.M | re.S)
    indented = re.findall(r"^(?: {4,}|\t)(.*)$", text, flags=re.M)
    found = "\n".join([*fenced, *indented, *re.findall(r"`([^`\n]+)`", text)])
    return re.sub(r" *#.*", "", found)  # without the comments


def anchors(path: Path) -> set[str]:
    """Return the anchors that headings get: lower case, spaces as hyphens, without punctuation."""
    found: list[str] = []
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    for title in re.findall(r"^#+ +(.+?) *$", text, flags=re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.append(anchor if anchor not in found else f"{anchor}-{found.count(anchor)}")
    return set(found)


def wrong_links(path: Path) -> list[str]:
    """Return the links of a document that lead nowhere, or whose address has an odd form."""
    wrong = []
    for link in LINK.findall(prose(path)):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            wrong += [] if re.fullmatch(r"https://[a-z0-9.-]+\.[a-z]{2,}(/\S*)?", link) else [link]
            continue
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        sound = target.exists() and (not anchor or (target.suffix == ".md" and anchor in anchors(target)))
        wrong += [] if sound else [link]
    return wrong


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_every_link_and_picture_of_a_document_exists(path):
    assert wrong_links(path) == []


def test_a_wrong_link_is_found(tmp_path):
    (tmp_path / "other.md").write_text("# A title, here\n")
    page = tmp_path / "page.md"
    page.write_text(
        "![a](gone.png) [b](other.md#a-title) [c](http://example.org) [d](https://nowhere) [e](#none) `[f](code.md)`\n"
        "[g](other.md#a-title-here) [h](https://example.org/x) [[i]](other.md)\n"
    )
    assert wrong_links(page) == ["gone.png", "other.md#a-title", "http://example.org", "https://nowhere", "#none"]


@cache
def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [Path(line) for line in listed.stdout.splitlines()]
    return {str(part) for file in files for part in (file, *file.parents)}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_what_a_document_links_to_is_in_every_clone(path):
    for link in LINK.findall(prose(path)):
        file = link.partition("#")[0]
        if file and ":" not in file:
            assert name((path.parent / file).resolve()) in tracked(), link


# Targets and tests


def recipes() -> dict[str, list[str]]:
    """Return the Makefile's targets with their commands, and one for each notebook's number."""
    found: dict[str, list[str]] = {}
    for block in re.split(r"\n(?=[^\t\n])", (ROOT / "Makefile").read_text(encoding="utf-8")):
        if head := re.match(r"([a-zA-Z0-9-]+):(?!=)", block):
            found[head[1]] = [line.strip().lstrip("@") for line in re.findall(r"^\t(.*)$", block, flags=re.M)]
    return found | {f"notebook-{path.name[:2]}": [] for path in (ROOT / "notebooks").glob("*.ipynb")}


def targets(text: str) -> list[str]:
    return re.findall(r"(?:^|[\s;&|(])make +(?:-\S+ +|[A-Z_]+=\S+ +)*([a-z][a-zA-Z0-9-]*)", text, flags=re.M)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_every_make_target_that_a_document_names_exists(path):
    assert set(targets(code(path))) <= set(recipes())


def test_targets_are_found_in_what_documents_say():
    assert targets("make reproduce PROFILE=smoke\nX=1 make -j2 lint; make A=1 test") == ["reproduce", "lint", "test"]
    assert {"lint", "test", "notebook-03", "help"} <= set(recipes())
    assert "lock" not in targets("unmake lock")
    assert "reproduce" in targets(code(ROOT / "README.md"))


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_every_test_that_a_document_names_exists(path):
    for file, test in re.findall(r"\b(tests/\w+\.py)::(\w+)", path.read_text(encoding="utf-8")):
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{test}"


def test_every_guard_of_the_security_page_names_its_test():
    rows = re.findall(r"^\| (.+) \| (.+) \|$", (ROOT / "SECURITY.md").read_text(encoding="utf-8"), flags=re.M)
    assert len(rows) > 5
    assert [guard for guard, test in rows[1:] if "::test_" not in test] == []


# Workflows and hooks


def workflow(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(path: Path) -> list[dict]:
    return [step for job in workflow(path)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=name)
def test_a_workflow_only_reads_and_names_actions_by_version(path):
    assert workflow(path)["permissions"] == {"contents": "read"}
    assert "concurrency" in workflow(path)
    for job in workflow(path)["jobs"].values():
        assert job["timeout-minutes"] <= 90
    for step in steps(path):
        assert ("uses" in step) != ("run" in step)
        assert re.fullmatch(r"actions/[a-z-]+@v\d+", step.get("uses", "actions/checkout@v1"))
    assert {target for step in steps(path) for target in targets(step.get("run", ""))} <= set(recipes())


def test_the_workflow_of_tests_runs_lint_and_tests_on_every_supported_python():
    path = ROOT / ".github" / "workflows" / "test.yml"
    assert {target for step in steps(path) for target in targets(step.get("run", ""))} == {"lint", "test"}
    assert workflow(path)["jobs"]["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]


def test_the_workflow_of_data_runs_on_a_schedule_and_fails_without_the_official_files(capsys):
    path = ROOT / ".github" / "workflows" / "official-data.yml"
    assert workflow(path)[True]["schedule"]  # YAML 1.1 reads the key "on" so
    (command,) = [step["run"] for step in steps(path) if "qfl_core data" in step.get("run", "")]
    words = command.split()
    assert words[:4] == [".venv/bin/python", "-m", "qfl_core", "data"]
    assert main(words[3:]) == 1  # offline, as every test
    assert "official" in capsys.readouterr().err


def test_the_commit_hook_is_make_lint():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (local,) = config["repos"]
    hooks = [hook["entry"] for hook in local["hooks"]]
    assert hooks == [line.replace("$(PY)", ".venv/bin/python") for line in recipes()["lint"]]
    assert [(hook["language"], hook["pass_filenames"]) for hook in local["hooks"]] == [("system", False)] * len(hooks)


# Versions


def test_all_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert __version__ == project["version"] == str(citation["version"])
    assert citation["license"] == project["license"]
    assert re.search(rf"^## .*\b{re.escape(__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)


def test_the_citation_has_what_the_format_asks_for():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    for entry in (citation, citation["preferred-citation"]):
        assert entry["title"]
        assert all({"family-names", "given-names"} <= set(author) for author in entry["authors"])
    assert citation["preferred-citation"]["title"] in (ROOT / "README.md").read_text(encoding="utf-8")


def test_before_and_after_repeats_what_the_targets_have_measured():
    """A number of the page docs/speed.md that is measured again changes in both tables."""
    targets, compared = re.split(r"^## Before and after$", (ROOT / "docs" / "speed.md").read_text("utf-8"), flags=re.M)
    rows = [re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", part, flags=re.M) for part in (targets, compared)]
    measured = {name: value for name, _, value in rows[0]}
    repeated = {name: value for name, _, value in rows[1]}
    assert len(repeated) == 7
    assert {name: measured.get(name) for name in repeated} == repeated


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / "Makefile", ROOT / ".ci" / "run"], ids=name)
def test_nobody_is_told_to_end_processes_by_a_broad_name(path):
    """It would also end those of others; a process is ended by its id."""
    assert not re.search(r"\b(pkill|killall|pgrep)\b", path.read_text(encoding="utf-8"))


# What a document says about a table or a notebook


def test_a_section_of_notebook_04_that_a_document_names_is_about_what_it_says():
    headings = re.findall(
        r"^# ## (\d) · (.+)$", (ROOT / "notebooks" / "04_ablations.py").read_text("utf-8"), flags=re.M
    )
    named = {
        (name(path), number)
        for path in DOCUMENTS
        for number in re.findall(r"[Ss]ection (\d) of\s+\[notebook 04\]", path.read_text(encoding="utf-8"))
    }
    titles = {(file, dict(headings)[number].partition(":")[0]) for file, number in named}
    assert titles == {
        ("EXTENDING.md", "Extensions"),
        ("docs/federation.md", "Bad clients"),
        ("docs/federation.md", "Privacy"),
    }


def test_the_verdict_on_the_extras_is_that_of_the_table():
    table = pd.read_csv(ROOT / "figures" / "tables" / "extensions.csv")
    shown = table[table["verdict"].isin(["better", "worse"])]
    assert set(shown["extra"]) == {"scaffold-qfl"}
    assert set(shown[["track", "metric", "verdict"]].itertuples(index=False, name=None)) == {
        ("genome-clean", "fairness_gap", "better"),
        ("baf", "global_accuracy", "worse"),
        ("breast-cancer", "drift_from_broadcast", "worse"),
    }
    assert set(table["seeds"]) == {30}
    text = " ".join((ROOT / "EXTENDING.md").read_text(encoding="utf-8").split())
    assert "over 30 seeds" in text
    assert (
        "SCAFFOLD is shown to be better in one place (fairness gap on clean genome) and worse in two (accuracy on BAF, "
        "drift on breast cancer). Learned weights are shown to be better or worse nowhere." in text
    )


def notebook_prose(number: str) -> str:
    """Return the Markdown cells of a notebook on one line."""
    (path,) = (ROOT / "notebooks").glob(f"{number}_*.py")
    lines = [line[2:] for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# ")]
    return " ".join(" ".join(lines).split())


def test_the_prose_of_the_notebooks_tells_the_numbers_of_the_profile():
    paper, device = load_profile("paper"), HardwareConfig()
    assert paper.section("hardware", {}).get("checkpoints", device.checkpoints) == device.checkpoints
    (eta, delta) = (
        paper.config("genome", method="duqfl-prox").to_dict()[f"{rate}_bounds"] for rate in ("eta", "delta")
    )
    told = [
        rf"${name}$ is kept within [{low:g}, {high:g}]" for name, (low, high) in ((r"\eta", eta), (r"\delta", delta))
    ]
    assert told[0] in notebook_prose("03")
    assert told[1].replace(" is kept", "") in notebook_prose("03")
    assert f"at {device.checkpoints} checkpoints" in notebook_prose("06")
    assert f"the first {paper.study_seeds} of {len(paper.seeds)} seeds" in notebook_prose("06")


def test_the_notebook_says_how_long_the_search_takes_as_make_help_does():
    (makefile,) = re.findall(r"^protocol-search: .*\(about (\d+) minutes", (ROOT / "Makefile").read_text(), flags=re.M)
    assert f"`make protocol-search` runs the search, in about {makefile} minutes" in notebook_prose("04")
