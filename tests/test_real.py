"""The results on real files: what seeds share, the comparison with the stand-ins, and the command that writes both."""

import numpy as np
import pandas as pd
import pytest

from qfl_core.__main__ import main
from qfl_core.base.errors import AnalysisError
from qfl_core.studies.real import compared, compared_text, shared_rows


def test_the_share_of_common_rows_is_that_of_sets():
    assert shared_rows([[1, 2, 3, 4], [3, 4, 5, 6]]) == 0.5
    assert shared_rows([[1, 2], [1, 2], [3, 4]]) == pytest.approx(1 / 3)  # one pair of three shares all
    assert np.isnan(shared_rows([[1, 2]]))
    rng = np.random.default_rng(0)
    drawn = [rng.choice(1000, 630, replace=False) for _ in range(20)]
    assert shared_rows(drawn) == pytest.approx(0.63, abs=0.01)  # of independent draws: the share that each takes


def parts(verdicts: str, estimates: list[float], source: str) -> pd.DataFrame:
    rows = zip(["1a", "1b", "2", "20a"], verdicts.split(), estimates, strict=True)
    return pd.DataFrame(
        [
            {
                "id": part[:1] if part != "20a" else "20",
                "part": part,
                "text": f"number {part}",
                "track": "baf" if part != "20a" else "hardware",
                "verdict": verdict,
                "estimate": estimate,
                "low": estimate - 0.02,
                "high": estimate + 0.02,
                "seeds": 30,
                "source": source,
            }
            for part, verdict, estimate in rows
        ]
    )


def test_stand_in_and_real_are_compared_part_by_part():
    stand_in = parts("holds undecided holds holds", [0.10, 0.00, 0.08, 0.1], "stand-in")
    real = parts("holds holds fails missing", [0.09, 0.03, -0.08, np.nan], "local")
    found = compared(stand_in, real).set_index("part")
    assert list(found.index) == ["1a", "1b", "2"]  # no device has run real data
    assert found["same_verdict"].to_dict() == {"1a": True, "1b": False, "2": False}
    assert found["overlap"].to_dict() == {"1a": True, "1b": True, "2": False}
    assert found.loc["2", ["estimate_stand_in", "estimate_real"]].tolist() == [0.08, -0.08]
    claims = [
        pd.DataFrame({"id": ["1", "2"], "claim": ["first", "second"], "verdict": verdicts})
        for verdicts in (["undecided", "holds"], ["undecided", "fails"])
    ]
    text = compared_text(compared(stand_in, real), *claims)
    assert text.startswith(
        "1 of 2 claims and theory points have the same verdict on stand-in and real data; of 3 parts 1 have, 1 have "
        "contrary ones (*holds* and *fails*), and for 1 the intervals do not overlap."
    )
    assert "| 2 | second | holds | fails | **no** |" in text
    assert "| 1b | number 1b | +0.000 [-0.020, +0.020] | +0.030 [+0.010, +0.050] | undecided, real **holds** |" in text


def test_a_table_of_real_files_is_not_taken_for_the_stand_ins():
    real = parts("holds holds fails missing", [0.09, 0.03, -0.08, np.nan], "local")
    with pytest.raises(AnalysisError, match="not one of the stand-ins"):
        compared(real, real)


def test_the_command_writes_every_table_or_says_why_not(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("qfl_core.base.paths.results_dir", lambda profile: tmp_path / "results" / profile)
    monkeypatch.setattr("qfl_core.base.paths.figures_dir", lambda profile: tmp_path / "figures")
    out = tmp_path / "figures" / "tables" / "real"
    small = ["real", "--profile", "smoke", "--seeds", "2"]
    assert main(small) == 1
    assert "QFL_DATA_DIR is not set" in capsys.readouterr().err
    assert main([*small[:-1], "3"]) == 2  # the profile has two
    assert "seeds" in capsys.readouterr().err
    monkeypatch.setenv("QFL_DATA_DIR", str(tmp_path))
    assert main(small) == 1
    assert "refuses the stand-in for baf" in capsys.readouterr().err
    assert not out.exists()
    assert not (tmp_path / "results").exists()
    # Here the stand-in plays the files.
    monkeypatch.setattr("qfl_core.studies.real.study.OFFICIAL", "stand-in")
    assert main(small) == 0
    assert "not compared: claims.csv is not there" in capsys.readouterr().out
    written = {path.name for path in out.iterdir()}
    kept = {"claims.csv", "claims.md", "claim_parts.csv", "final_metrics.csv", "final_metrics.md", "files.csv"}
    assert written == kept
    for name in ("claims.csv", "claim_parts.csv"):  # as if these were the tables of the stand-ins
        (out.parent / name).write_bytes((out / name).read_bytes())
    assert main(small) == 0
    files = pd.read_csv(out / "files.csv")
    for name in ("claims.md", "final_metrics.md", "compared.md"):
        told = (out / name).read_text(encoding="utf-8")
        assert all(digest in told for digest in files["sha256"])
        assert f"two seeds share {100 * files['shared by two seeds'][0]:.0f} %" in told
    side = pd.read_csv(out / "compared.csv", dtype={"id": str})
    assert side["same_verdict"].all()
    assert {"1", "9"} <= set(side["id"])
    assert not {"20", "T2", "T3"} & set(side["id"])
