"""Progress bars reach a terminal, and a notebook only when asked."""

import sys
from types import SimpleNamespace

import pytest

from qfl_core.base.progress import bar


@pytest.fixture
def kernel(monkeypatch):
    shell = SimpleNamespace(kernel="a kernel")
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


def count(total=2, **options):
    with bar(total, "run", **options) as steps:
        steps.update(total)


def test_a_terminal_sees_the_bar_unless_it_is_switched_off(capsys, monkeypatch):
    monkeypatch.delenv("QFL_PROGRESS", raising=False)
    count()
    assert "2/2" in capsys.readouterr().err
    count(show=False)
    monkeypatch.setenv("QFL_PROGRESS", "off")
    count()
    assert capsys.readouterr().err == ""


def test_a_kernel_draws_when_asked(kernel, capsys, monkeypatch):
    monkeypatch.delenv("QFL_PROGRESS", raising=False)
    count(show=True)
    assert "2/2" in capsys.readouterr().err
    monkeypatch.setenv("QFL_PROGRESS", "on")  # as make lab does
    count()
    assert "2/2" in capsys.readouterr().err
    monkeypatch.setenv("QFL_PROGRESS", "off")
    count(show=True)
    assert capsys.readouterr().err == ""


def test_a_kernel_stays_silent_and_draws_where_it_is_told(kernel, capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("QFL_PROGRESS", raising=False)
    count()
    terminal = tmp_path / "terminal"
    monkeypatch.setenv("QFL_PROGRESS", str(terminal))
    count()
    assert "2/2" in terminal.read_text(encoding="utf-8")
    monkeypatch.setenv("QFL_PROGRESS", str(tmp_path / "gone" / "terminal"))
    count()
    assert capsys.readouterr().err == ""
