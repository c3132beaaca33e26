"""The README's numbers are those of figures/tables."""

import pytest

from tools import readme


def test_the_blocks_of_the_readme_are_made_from_the_tables():
    text = (readme.ROOT / "README.md").read_text(encoding="utf-8")
    assert {name for _, name, _, _ in readme.MARKED.findall(text)} == set(readme.BLOCKS)
    assert readme.rewritten(text, readme.Tables(readme.ROOT / "figures" / "tables")) == text


def test_the_block_of_the_data_page_is_made_from_the_tables():
    text = (readme.ROOT / "data" / "README.md").read_text(encoding="utf-8")
    assert {name for _, name, _, _ in readme.MARKED.findall(text)} == set(readme.DATA_BLOCKS)
    assert readme.rewritten(text, readme.Tables(readme.ROOT / "figures" / "tables"), readme.DATA_BLOCKS) == text


def test_a_number_that_differs_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    monkeypatch.setattr(readme, "BLOCKS", {"claims": lambda tables: "7 hold"})
    (tmp_path / "README.md").write_text("before\n<!-- numbers: claims -->\n8 hold\n<!-- end -->\nafter\n", "utf-8")
    assert readme.main(["--check"]) == 1
    assert "make readme" in capsys.readouterr().err
    assert readme.main([]) == 0
    written = (tmp_path / "README.md").read_text("utf-8")
    assert written == "before\n<!-- numbers: claims -->\n\n7 hold\n\n<!-- end -->\nafter\n"
    assert readme.main(["--check"]) == 0


def test_an_unknown_block_is_an_error():
    with pytest.raises(KeyError, match="nonsense"):
        readme.rewritten("<!-- numbers: nonsense -->\n<!-- end -->", readme.Tables(readme.ROOT))
