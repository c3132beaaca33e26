"""The command line: one program for all commands; bad input in one line, before any work; plugins of one's own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from planted import small

from qfl_core.__main__ import COMMANDS, main
from qfl_core.base.processes import in_processes
from qfl_core.base.registry import EXTRA_METHODS, Plugin
from qfl_core.config import ExperimentConfig, load_profile
from qfl_core.data import load_splits
from qfl_core.runs import run_experiment
from qfl_core.runs.plugin_file import load_plugin_file

SMALL = "--profile smoke --source stand-in --rounds 2 --clients 2 --train-size 300 --val-size 100 --test-size 100"


@pytest.fixture
def results(tmp_path):
    return str(tmp_path / "results")


def run(results, *extra):
    return main(["run", *SMALL.split(), "--results", results, *extra])


def test_run_prints_rounds_data_engine_and_folder(results, capsys):
    assert run(results, "--method", "duqfl-best", "--seed", "4") == 0
    out = capsys.readouterr().out
    assert "global_accuracy" in out
    assert "data: stand-in" in out
    assert "engine: statevector, shots" in out
    assert "duqfl-best/baf-pca/label-skew/seed-4" in out


def test_list_and_show_find_what_ran(results, capsys):
    run(results)
    run(results, "--method", "default-qfl")
    capsys.readouterr()
    assert main(["list", "--results", results]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading == f"{results}:"
    assert len(lines) == 2
    assert main(["list", "--results", results, "--method", "duqfl-prox"]) == 0
    _, only = capsys.readouterr().out.splitlines()
    assert main(["show", only.split()[0], "--results", results]) == 0
    shown = capsys.readouterr().out
    assert "method: duqfl-prox" in shown
    assert "code_sha256" in shown
    assert "CHANGED" not in shown


def test_list_and_show_look_below_the_results_folder_and_say_where(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run("results", "--seed", "1")
    run("results/smoke", "--seed", "2")
    capsys.readouterr()
    assert main(["list"]) == 0
    here, first, below, second = capsys.readouterr().out.splitlines()
    assert (Path(here), Path(below)) == (Path("results:"), Path("results/smoke:"))
    assert "seed 1 " in first
    assert "seed 2 " in second
    assert main(["show", second.split()[0]]) == 0
    assert "seed: 2" in capsys.readouterr().out


def test_list_says_where_it_looked_in_vain(results, capsys):
    assert main(["list", "--results", results]) == 0
    assert capsys.readouterr().out == f"no finished run in {results}\n"


def test_list_and_show_name_a_run_whose_splits_were_handed_in(results, capsys):
    config = small(dataset="breast-cancer", rounds=1)
    for seed in (0, 1):  # the second run has the data of the first one
        run_experiment(config.replace(seed=seed), results, splits=load_splits(config))
    run_experiment(config, results)
    capsys.readouterr()
    assert main(["list", "--results", results]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.endswith("splits handed in") for line in lines) == 2
    assert len(lines) == 4  # the folder's, and one per run
    assert main(["show", lines[-1].split()[0], "--results", results]) == 0
    assert ", splits handed in)  engine" in capsys.readouterr().out


def test_show_flags_a_result_that_was_edited(results, capsys, tmp_path):
    run(results)
    table = next(tmp_path.rglob("global_accuracies.csv"))
    table.write_text(table.read_text().replace("0.", "0.9", 1))
    capsys.readouterr()
    assert main(["show", table.parent.name, "--results", results]) == 1
    shown = capsys.readouterr()
    assert "CHANGED since the run was sealed: global_accuracies.csv" in shown.out
    assert shown.err.endswith(f"run {table.parent.name}: global_accuracies.csv changed since the run was sealed\n")
    assert shown.err.count("\n") == 1


def status(arguments):
    """Return the exit status, whoever ends the program."""
    try:
        return main(arguments)
    except SystemExit as ended:
        return ended.code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--dataset", "bfa"], "did you mean 'baf'"),
        (["run", "--profile", "smoke", "--dataset", "1"], "dataset='1'"),
        (["run", "--clients", "none"], "--clients: 'none' is not valid: expected a whole number"),
        (["run", "--clients", "1000000"], "clients=1000000 is not valid: expected an integer from 1 to 100000"),
        (["run", "--mu", "-1"], "mu=-1"),
        (["run", "--mu", "nan"], "--mu: 'nan' is not valid: expected a number"),
        (["run", "--mu", "1_0"], "--mu: '1_0' is not valid"),
        (["run", "--seed", "1:30"], "--seed: '1:30' is not valid"),
        (["run", "--seed", "7.0"], "--seed: '7.0' is not valid"),
        (["run", "--seed", "yes"], "--seed: 'yes' is not valid"),
        (["run", "--seed", "2026-01-01"], "--seed: '2026-01-01' is not valid"),
        (["run", "--seed", "9" * 5000], "is not valid: expected a whole number"),
        (["run", "--seed", "\u0663"], "is not valid: expected a whole number"),
        (["run", "--shots="], "--shots: '' is not valid: expected a whole number, such as 10 or none"),
        (["run", "--dataset="], "--dataset: '' is not valid: expected some text"),
        (["run", "--profile="], "--profile: '' is not valid"),
        (["run", "--profile", "papre"], "did you mean 'paper'"),
        (["run", "--angle-range", "[1, 0]"], "low < high"),
        (["run", "--angle-range", "[0, 1] 2"], "expected a list of numbers, such as [0.1, 2]"),
        (["run", "--angle-range", "[0, 1,]"], "expected a list of numbers"),
        (["run", "--rounds"], "--rounds: expected one argument"),
        (["run", "--round", "3"], "unrecognized arguments: --round 3"),
        (["run", "and", "more\nlines"], "unrecognized arguments: and more lines"),
        (["list", "--method", "duqfl-porx"], "did you mean 'duqfl-prox'"),
        (["list", "--dataset="], "--dataset: ''"),
        (["show"], "the following arguments are required: run"),
        (["show", ""], "argument run: ''"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_folder(arguments, message, results, capsys, tmp_path):
    assert status([*arguments, "--results", results] if arguments[-1] != "--rounds" else arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["nonsense"], ["--nonsense"], ["run", "--results="], ["list", "--results="]),
        *(["run", "--results=--"], ["run", "--seed=--"], ["show", "--results=--", "x"], ["protocol", "--out=--"]),
        *(["run", "--results", "~nobody-has-this-name/x"], ["protocol", "--out=~nobody-has-this-name"]),
    ],
)
def test_a_command_line_without_meaning_is_one_line(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert status(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["file", "file/x", "loop", "a/" * 1900, "a" * 300])
def test_a_results_folder_that_cannot_be_written_is_one_line_and_nothing_is_left(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    assert run(folder) == 1
    told = capsys.readouterr().err
    assert told.startswith(("qfl_core: cannot write results to ", "qfl_core: [Errno 36] File name too long"))
    assert told.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"file", "loop"}


def test_a_path_may_begin_with_the_home_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert main(["list", "--results=~/results"]) == 0
    assert capsys.readouterr().out == f"no finished run in {tmp_path / 'results'}\n"


def test_a_run_that_is_not_there_is_a_wrong_value(results, capsys):
    assert main(["show", "nothing", "--results", results]) == 2
    assert "0 finished runs" in capsys.readouterr().err


def test_a_results_folder_that_is_a_file_is_an_error_while_running(capsys, tmp_path):
    (tmp_path / "file").touch()
    assert run(str(tmp_path / "file")) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("qfl_core: ")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("seed", "08", 8),
        ("seed", "+3", 3),
        ("mu", "1e-3", 0.001),
        ("mu", ".5", 0.5),
        ("mu", "1", 1.0),
        ("shots", "none", None),
        ("shots", "null", None),
        ("shots", "64", 64),
        ("angle_range", "[0,1e0]", (0.0, 1.0)),
        ("adam_rates", "[0.1]", (0.1,)),
        ("participation", "0.5", 0.5),
        ("participation", "[2, 0]", (0, 2)),
        ("dataset", "breast-cancer", "breast-cancer"),
    ],
)
def test_a_value_is_read_by_the_type_of_its_field(name, text, value, monkeypatch, results):
    asked = []
    monkeypatch.setattr("qfl_core.runs.run_experiment", lambda config, *_, **__: asked.append(config))
    monkeypatch.setattr("qfl_core.runs.command.print_run", lambda _: None)
    assert main(["run", f"--{name.replace('_', '-')}={text}"]) == 0
    assert getattr(asked[0], name) == value


@pytest.mark.parametrize(("options", "profile"), [([], "paper"), (["--profile", "smoke"], "smoke")])
def test_run_takes_the_paper_s_settings_unless_told_otherwise_and_says_so(options, profile, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr("qfl_core.runs.run_experiment", lambda config, *_, **__: asked.append(config))
    monkeypatch.setattr("qfl_core.runs.command.print_run", lambda _: None)
    assert main(["run", "--dataset", "genome", "--seed", "3", *options]) == 0
    assert asked == [load_profile(profile).config("genome", seed=3)]
    assert f"settings: profile {profile}" in capsys.readouterr().out


def test_scientific_notation_is_a_number(results, capsys):
    assert run(results, "--mu", "1e-3") == 0


@pytest.mark.outside
def test_help_names_every_command_and_loads_nothing_heavy():
    code = (
        "import sys\n"
        "from qfl_core.__main__ import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('qiskit', 'pandas', 'matplotlib', 'sklearn', 'flwr') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.endswith("[]\n")
    assert all(re.search(rf"^    {name}\b", shown, re.M) for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"python -m qfl_core {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["run", "federate"])
def test_help_names_every_field(name, capsys):
    with pytest.raises(SystemExit):
        main([name, "--help"])
    shown = capsys.readouterr().out
    for field in ExperimentConfig.describe():
        assert f"--{field.replace('_', '-')} X" in shown


def test_an_interrupted_command_says_what_to_do(monkeypatch, capsys, results):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("qfl_core.runs.run_experiment", interrupt)
    assert run(results) == 130
    assert "the same command continues after the last complete round" in capsys.readouterr().err


@pytest.mark.outside
def test_a_path_that_stdout_cannot_encode_is_written_as_escapes(tmp_path):
    command = [sys.executable, "-m", "qfl_core", "list", "--results", "\u7d50\u679c"]
    own = os.environ | {"PYTHONIOENCODING": "cp1252"}
    done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, check=False)
    assert done.stderr == b""
    assert done.stdout.decode("cp1252").strip() == r"no finished run in \u7d50\u679c"
    assert done.returncode == 0


# Plugins

PLUGIN = """
import dataclasses

from qfl_core import METHODS, register_method


class Mine:
    pass


register_method("my-best", dataclasses.replace(METHODS["duqfl-best"]))
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A user's file, with everything that loading it changes taken back afterwards."""
    registered: dict[tuple[str, str], Plugin] = {}
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for module in ("base.registry", "runs.plugins"):
        monkeypatch.setattr(f"qfl_core.{module}.REGISTERED", registered)
    monkeypatch.setitem(EXTRA_METHODS, "my-best", None)
    monkeypatch.delitem(EXTRA_METHODS, "my-best")
    file = tmp_path / "own_cli_study.py"
    file.write_text(PLUGIN)
    yield file
    sys.modules.pop(file.stem, None)
    EXTRA_METHODS.pop("my-best", None)


def test_a_plugin_s_method_is_run_listed_and_shown(plugin, results, capsys):
    assert run(results, "--method", "my-best") == 2
    assert "my-best" in capsys.readouterr().err
    assert run(results, "--method", "my-best", "--plugin", str(plugin)) == 0
    capsys.readouterr()
    assert main(["list", "--results", results, "--plugin", str(plugin)]) == 0
    _, line = capsys.readouterr().out.splitlines()
    assert "my-best" in line
    assert main(["show", line.split()[0], "--results", results, "--plugin", str(plugin)]) == 0


#: Losses whose code has an error of its own, or fails inside NumPy.
FAILING = """
import numpy as np
from qfl_core import register_loss


def no_key(p, y, margin):
    return {}["absent"]


register_loss("my-loss", RAISES)
"""


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        ("no_key", "line 7 of {} raises KeyError: 'absent'; correct the plugin and start again"),
        ("lambda p, y, margin: 1 // 0", "line 10 of {} raises ZeroDivisionError: integer division or modulo by zero;"),
        ("lambda p, y, margin: np.reshape(p, (3, 5, 7))", "line 10 of {} raises ValueError: cannot reshape array"),
    ],
)
def test_an_error_of_a_plugin_s_code_is_one_line_with_its_place(plugin, results, clean_tables, capsys, loss, told):
    plugin.write_text(FAILING.replace("RAISES", loss))
    assert run(results, "--loss", "my-loss", "--plugin", str(plugin)) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"qfl_core: {told.format(plugin)}")
    assert error.count("\n") == 1


def test_an_error_of_the_package_s_own_code_keeps_its_traceback(monkeypatch, results):
    monkeypatch.setattr("qfl_core.runs.run.prepare", None)
    with pytest.raises(TypeError):
        run(results)


@pytest.mark.outside
def test_another_process_can_unpickle_what_a_plugin_defines(plugin):
    """Also one that started before the plugin was loaded: joblib keeps its workers."""
    assert list(in_processes(abs, [(-1,), (-2,)], jobs=2)) == [1, 2]
    load_plugin_file(plugin)
    (found,) = in_processes(type, [(sys.modules[plugin.stem].Mine(),)], jobs=2)
    assert found is sys.modules[plugin.stem].Mine


def test_a_plugin_is_loaded_once(plugin):
    load_plugin_file(plugin)
    module = sys.modules[plugin.stem]
    load_plugin_file(str(plugin))
    assert sys.modules[plugin.stem] is module


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("gone_study.py", None, "does not exist"),
        ("study.txt", "", "is not a Python file"),
        ("my-study.py", "", "is not a Python file"),
        ("broken_study.py", "def (", "cannot be loaded: SyntaxError"),
        ("nul_study.py", "\0", "cannot be loaded"),
        ("failing_study.py", "raise RuntimeError('two\\nlines')", "cannot be loaded: RuntimeError: two lines"),
        ("ending_study.py", "raise SystemExit(3)", "cannot be loaded: SystemExit: 3"),
        ("wrong_study.py", "import qfl_core\nqfl_core.register_method('x', 1)", "ConfigError: method 'x' must be"),
        ("json.py", "", "the name of another Python module, 'json'"),
        ("this.py", "", "the name of another Python module, 'this'"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_one_line(tmp_path, results, capsys, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    before = sys.path.copy()
    assert main(["run", "--plugin", str(tmp_path / name), "--results", results]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert name in error
    assert error.count("\n") == 1
    assert sys.path == before
    assert name.removesuffix(".py") == "json" or name.removesuffix(".py") not in sys.modules
