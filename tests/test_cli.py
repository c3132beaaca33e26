"""The command line: run, list, show; bad input in one line, before any work."""

import subprocess
import sys

import pytest

from qfl_core.__main__ import main

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
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert main(["list", "--results", results, "--method", "duqfl-prox"]) == 0
    only = capsys.readouterr().out.splitlines()
    assert len(only) == 1
    assert main(["show", only[0].split()[0], "--results", results]) == 0
    shown = capsys.readouterr().out
    assert "method: duqfl-prox" in shown
    assert "code_sha256" in shown
    assert "CHANGED" not in shown


def test_show_flags_a_result_that_was_edited(results, capsys, tmp_path):
    run(results)
    table = next(tmp_path.rglob("global_accuracies.csv"))
    table.write_text(table.read_text().replace("0.", "0.9", 1))
    assert main(["show", table.parent.name, "--results", results]) == 0
    assert "CHANGED since the run was sealed: global_accuracies.csv" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--dataset", "bfa"], "did you mean 'baf'"),
        (["run", "--clients", "none"], "clients='none'"),
        (["run", "--mu", "-1"], "mu=-1"),
        (["run", "--profile", "papre"], "did you mean 'paper'"),
        (["run", "--angle-range", "[1, 0]"], "low < high"),
        (["show", "nothing"], "0 finished runs"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_folder(arguments, message, results, capsys, tmp_path):
    assert main([*arguments, "--results", results]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_scientific_notation_is_a_number(results, capsys):
    assert run(results, "--mu", "1e-3") == 0


def test_help_names_every_field():
    shown = subprocess.run(
        [sys.executable, "-m", "qfl_core", "run", "--help"], capture_output=True, text=True, check=True
    )
    for option in ("--dataset", "--spsa-iterations", "--participation", "--outer-period", "--client-val"):
        assert option in shown.stdout
