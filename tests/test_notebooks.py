"""Notebooks: paired, parameterised, without function definitions, with stored runs, run whole or not at all."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import papermill
import pytest

from qfl_core.base.errors import ConfigError
from qfl_core.config import PROFILE_KEYS, SECTION_KEYS, load_profile
from tools import run_notebook, stored_notebooks
from tools.refresh_notebooks import synchronised

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TWINS = sorted((ROOT / "tests" / "notebooks").glob("*.ipynb"))

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def code_cells(path: Path) -> list[dict]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def test_there_are_notebooks():
    numbered = ["preprocessing", "baselines", "duqfl_prox", "ablations", "plotting", "hardware"]
    assert [p.stem for p in NOTEBOOKS] == [f"0{i}_{name}" for i, name in enumerate(numbered, start=1)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_pairs_are_in_sync(path):
    paired, script = jupytext.read(path), jupytext.read(path.with_suffix(".py"))
    assert [(c.cell_type, c.source, c.metadata.get("tags")) for c in paired.cells] == [
        (c.cell_type, c.source, c.metadata.get("tags")) for c in script.cells
    ]


def sources(path: Path) -> list[tuple]:
    return [(c.cell_type, c.source, c.metadata.get("tags")) for c in nbformat.read(path, as_version=4).cells]


def test_every_notebook_has_a_twin_with_the_same_cells_and_no_picture():
    assert [path.name for path in TWINS] == [path.name for path in NOTEBOOKS]
    for path, twin in zip(NOTEBOOKS, TWINS, strict=True):
        assert sources(path) == sources(twin)
        assert "image/png" not in twin.read_text()
        assert "± nan" not in path.read_text() + twin.read_text()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_one_parameters_cell_names_what_the_profiles_name(path):
    tagged = [c for c in code_cells(path) if "parameters" in c["metadata"].get("tags", [])]
    assert len(tagged) == 1
    assert set(papermill.inspect_notebook(str(path))) - SECTION_KEYS == PROFILE_KEYS
    assert 'profile = "smoke"' in "".join(tagged[0]["source"])


@pytest.mark.parametrize("profile", ["smoke", "quick", "paper"])
def test_every_section_of_a_profile_belongs_to_one_notebook(profile):
    named = [name for path in NOTEBOOKS for name in papermill.inspect_notebook(str(path)) if name in SECTION_KEYS]
    assert sorted(named) == sorted(load_profile(profile).sections)


STUDIES = {
    *("get_study", "clean_study", "encoding_search"),
    *("sensitivity_study", "controller_study", "extras_study", "attack_study"),
}


def test_plotting_only_reads():
    cells = "\n".join("".join(c["source"]) for c in code_cells(ROOT / "notebooks" / "05_plotting.ipynb"))
    calls = [n for n in ast.walk(ast.parse(cells)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    studies = [call for call in calls if call.func.id in STUDIES]
    assert {call.func.id for call in studies} == STUDIES
    for call in studies:
        assert {k.arg: ast.unparse(k.value) for k in call.keywords}.get("train") == "False", ast.unparse(call)
    for training in ("get_variants", "sweep", "run_experiment"):
        assert training not in cells


TOKEN = r"QISKIT_IBM_TOKEN *=(?!\.\.\.)|api[_-]?key|Bearer |[A-Za-z0-9_-]{44}(?![A-Za-z0-9_/+=-])"
SECRETS = re.compile(TOKEN, re.IGNORECASE)


@pytest.mark.parametrize("path", [*NOTEBOOKS, *TWINS], ids=lambda p: f"{p.parent.parent.name}-{p.stem}")
def test_no_output_or_source_holds_a_secret_or_a_machine_path(path):
    for cell in json.loads(path.read_text())["cells"]:
        outputs = [o.get("text", []) for o in cell.get("outputs", [])]
        outputs += [
            o.get("data", {}).get(kind, []) for o in cell.get("outputs", []) for kind in ("text/plain", "text/html")
        ]
        for text in ("".join(part) for part in [cell["source"], *outputs]):
            assert not SECRETS.search(text), text
            assert not re.search(r"(?:^|[\s\"'(])/(?:home|root|work|tmp|Users|private)/", text), text


@pytest.mark.parametrize("path", [*NOTEBOOKS, *TWINS], ids=lambda p: f"{p.parent.parent.name}-{p.stem}")
def test_notebooks_define_nothing_and_are_stored_executed(path):
    for number, cell in enumerate(code_cells(path), start=1):
        source = "".join(cell["source"])
        defined = [n for n in ast.walk(ast.parse(source)) if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.Lambda))]
        assert not defined, source
        assert cell["execution_count"] == number
        assert not [o for o in cell["outputs"] if o["output_type"] == "error"]
        assert not [o for o in cell["outputs"] if o.get("name") == "stderr"]


def test_the_first_notebook_needs_no_particular_choice_of_datasets():
    """`make reproduce DATASETS=baf` runs it too, and it compares both."""
    cells = "\n".join("".join(c["source"]) for c in code_cells(ROOT / "notebooks" / "01_preprocessing.ipynb"))
    used = [n for n in ast.walk(ast.parse(cells)) if isinstance(n, ast.Name) and n.id == "datasets"]
    assert [type(n.ctx) for n in used] == [ast.Store]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_stored_outputs_come_from_the_stand_ins_and_carry_no_papermill_metadata(path):
    text = path.read_text()
    assert "stand-in" in text
    assert '"papermill"' not in text


def planted(*cells: tuple[str, str, str | None]) -> nbformat.NotebookNode:
    """Return a notebook of (kind, source, printed) cells."""
    made = []
    for kind, source, printed in cells:
        if kind == "markdown":
            made.append(nbformat.v4.new_markdown_cell(source))
            continue
        outputs = [] if printed is None else [nbformat.v4.new_output("stream", text=printed)]
        made.append(nbformat.v4.new_code_cell(source, outputs=outputs, metadata={"papermill": {"duration": 1.5}}))
    return nbformat.v4.new_notebook(cells=made)


def test_stored_outputs_are_the_executed_ones_without_the_cell_that_papermill_adds():
    committed = planted(("code", "profile = 'smoke'", None), ("markdown", "prose", None), ("code", "f()", "old"))
    executed = planted(
        ("code", "profile = 'smoke'", None),
        ("code", "profile = 'paper'", None),
        ("markdown", "prose", None),
        ("code", "f()", "new"),
    )
    executed.cells[1].metadata["tags"] = [stored_notebooks.INJECTED]
    stored = stored_notebooks.with_outputs(committed, executed, "x.ipynb")
    assert [cell.source for cell in stored.cells] == ["profile = 'smoke'", "prose", "f()"]
    assert [cell.execution_count for cell in stored.cells if cell.cell_type == "code"] == [1, 2]
    assert stored.cells[2].outputs[0].text == "new"
    assert "papermill" not in nbformat.writes(stored)
    again = stored_notebooks.with_outputs(nbformat.from_dict(stored), executed, "x.ipynb")
    assert nbformat.writes(again) == nbformat.writes(stored)


def test_lines_that_a_kernel_sent_apart_are_stored_as_one_output():
    lines = [
        nbformat.v4.new_output("stream", name=name, text=text)
        for name, text in (("stdout", "a\n"), ("stdout", "b\n"), ("stderr", "c\n"), ("stdout", "d\n"))
    ]
    cell = nbformat.v4.new_code_cell("f()", outputs=lines)
    for _ in range(2):
        stored = stored_notebooks.cleaned(nbformat.v4.new_notebook(cells=[cell]))
        assert [(o.name, o.text) for o in stored.cells[0].outputs] == [
            ("stdout", "a\nb\n"),
            ("stderr", "c\n"),
            ("stdout", "d\n"),
        ]
    assert lines[0].text == "a\n"


def test_outputs_of_other_cells_are_not_stored(tmp_path, capsys):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    executed = tmp_path / "x.ipynb"
    nbformat.write(planted(("code", "f(1)", "one")), folder / "x.ipynb")
    nbformat.write(planted(("code", "f(2)", "two")), executed)
    before = (folder / "x.ipynb").read_bytes()
    with pytest.raises(ConfigError, match=r"x\.ipynb: the executed notebook has other cells"):
        stored_notebooks.store(executed, folder)
    assert (folder / "x.ipynb").read_bytes() == before
    assert stored_notebooks.main([str(tmp_path / "gone.ipynb")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_changed_cell_loses_its_stored_output_and_the_others_keep_theirs():
    stored = planted(("code", "f(1)", "one"), ("code", "g()", "same"))
    changed = synchronised(planted(("code", "f(2)", None), ("code", "g()", None)), stored)
    assert [[o.text for o in cell.outputs] for cell in changed.cells] == [[], ["same"]]


def run(tmp_path: Path, cells: list[str], *options: str) -> tuple[subprocess.CompletedProcess, Path]:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    notebook.cells[0].metadata["tags"] = ["parameters"]
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    source, output = tmp_path / "in.ipynb", tmp_path / "out" / "in.ipynb"
    nbformat.write(notebook, source)
    command = [sys.executable, "-m", "tools.run_notebook", str(source), str(output), "--profile", "smoke", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False), output


PARAMETERS = 'profile = ""\nseeds = []\ndatasets = []\nexperiment = {}'


@pytest.mark.outside
def test_the_runner_passes_the_profile_and_its_overrides_and_stores_no_warning_about_widgets(tmp_path):
    result, output = run(
        tmp_path,
        [PARAMETERS, "print(profile, seeds, datasets)", "import tqdm.auto"],
        *("--seeds", "3,4", "--datasets", "baf"),
    )
    assert result.returncode == 0, result.stderr
    assert "smoke [3, 4] ['baf']" in output.read_text()
    assert [p.name for p in output.parent.iterdir()] == ["in.ipynb"]
    assert "IProgress" not in output.read_text()  # tqdm's warning that there are no widgets


@pytest.mark.outside
def test_a_failed_notebook_leaves_no_target_and_shows_its_cell(tmp_path):
    result, output = run(tmp_path, [PARAMETERS, "answer = 41", "raise ValueError('not forty-two')"])
    assert result.returncode == 1
    assert "raise ValueError('not forty-two')" in result.stderr
    assert "ValueError: not forty-two" in result.stderr
    assert [p.name for p in output.parent.iterdir()] == ["in.failed.ipynb"]


def test_two_runs_of_a_notebook_at_once_share_no_file(tmp_path, monkeypatch):
    source, output = tmp_path / "in.ipynb", tmp_path / "out" / "in.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")]), source)
    texts, values = ["first", "second"], {"profile": "smoke", "seeds": [0], "datasets": ["baf"]}

    def execute(_, partial, *rest, **options):
        text = texts.pop(0)
        Path(partial).write_text(text)
        if texts:  # the other run begins and ends while this one goes on
            assert run_notebook.run(source, output, values) == 0
            assert output.read_text() == "second"

    monkeypatch.setattr("papermill.execute_notebook", execute)
    monkeypatch.setattr(run_notebook, "hold_ports", lambda: None)
    assert run_notebook.run(source, output, values) == 0
    assert output.read_text() == "first"
    assert [path.name for path in output.parent.iterdir()] == ["in.ipynb"]


@pytest.mark.outside
def test_an_unknown_parameter_is_refused_before_execution(tmp_path):
    result, output = run(tmp_path, ["profile = ''\nseed = []\ndatasets = []\nexperiment = {}", "1 / 0"])
    assert result.returncode == 2
    assert "no parameter 'seeds' (did you mean 'seed'?)" in result.stderr
    assert not output.parent.exists()


@pytest.mark.outside
def test_a_failing_notebook_stores_no_credential(tmp_path, monkeypatch):
    token = "planted-token-0123456789"
    monkeypatch.setenv("QISKIT_IBM_TOKEN", token)
    leak = (
        "from qfl_core.hardware.service import ask\nimport os\nask('the service', int, os.environ['QISKIT_IBM_TOKEN'])"
    )
    result, output = run(tmp_path, [PARAMETERS, leak])
    assert result.returncode == 1
    stored = output.with_suffix(".failed.ipynb").read_text()
    assert "<QISKIT_IBM_TOKEN>" in stored
    assert token not in stored
    assert token not in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "0 one"], "seeds: 'one' is not valid: expected a whole number"),
        (["--seeds", "1:30"], "seeds: '1:30' is not valid"),
        (["--seeds", "5-2"], "the range '5-2' must go up"),
        (["--seeds", "0-3 2"], "names one of them twice"),
        (["--seeds", "1.0"], "seeds: '1.0' is not valid"),
        (["--seeds", "0 -1"], "seeds=-1 is not valid: expected an integer from 0 to"),
        (["--seeds", "9" * 20], "is not valid: expected an integer from 0 to"),
        (["--seeds", "3 3"], "seeds: [3, 3] names one of them twice"),
        (["--seeds", " "], "seeds=' ' names none"),
        (["--datasets", "baf bfa"], "dataset='bfa' is not valid"),
        (["--datasets", "1"], "dataset='1' is not valid"),
        (["--datasets", "baf,baf"], "names one of them twice"),
        (["--datasets", ","], "datasets=',' names none"),
        (["--datasets", "breast-cancer-clean"], "has no track 'breast-cancer-clean'"),
        (["--profile", "smok"], "unknown profile 'smok' (did you mean 'smoke'?)"),
        (["--profile", ""], "unknown profile ''"),
        (["--profile", "../paper"], "unknown profile '../paper'"),
        (["--seed", "1"], "unrecognized arguments"),
    ],
)
def test_a_wrong_parameter_is_one_line_before_a_kernel_starts(tmp_path, monkeypatch, capsys, options, message):
    monkeypatch.setattr(papermill, "execute_notebook", None)
    try:
        ended = run_notebook.main(
            [str(NOTEBOOKS[0]), str(tmp_path / "out" / "x.ipynb"), "--profile", "smoke", *options]
        )
    except SystemExit as error:
        ended = error.code
    assert ended == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_notebook_that_is_not_there_is_one_line(tmp_path, capsys):
    assert run_notebook.main([str(tmp_path / "gone.ipynb"), str(tmp_path / "out.ipynb")]) == 2
    assert capsys.readouterr().err == f"gone.ipynb: {tmp_path / 'gone.ipynb'} does not exist\n"
