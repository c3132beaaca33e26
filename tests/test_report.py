"""The report: all of it is there, nothing in it needs the network, and what it draws is what the analysis says."""

import base64
import itertools
import json
import re
import shutil
from collections.abc import Sized
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from check_figures import OURS, PAPER, PROTOCOL
from check_figures import TABLES as WRITTEN
from chromium import BROWSER, chromium
from planted_report import METHODS, SEEDS, planted_material

from qfl_core.analysis import intervals
from qfl_core.analysis.tables import notation_table
from qfl_core.base import paths
from qfl_core.base.errors import RunError
from qfl_core.config import load_profile
from qfl_core.runs import RunResult
from tools.report import __main__ as command
from tools.report import collect as collecting
from tools.report.captions import BY_COMMAND, FIGURES, TABLES, figure_names
from tools.report.explorer import METRICS, explorer_data, packed
from tools.report.formulas import formula
from tools.report.notebooks import portable
from tools.report.page import index_page, write_report
from tools.report.provenance import provenance
from tools.report.sections import Picture

ROOT = Path(__file__).resolve().parent.parent
DRAWN = ROOT / "figures"
PHONE, DESKTOP = 360, 1440
ROUNDED = 1e-5  # seven digits are kept, and the interval of two seeds multiplies by 12.7
SMALLEST, READABLE = 12, 4.5  # pixels of a letter; contrast of text, as WCAG's level AA asks

# A browser is driven over a port of this machine.
pytestmark = [pytest.mark.loopback, pytest.mark.outside]


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    return planted_material(tmp_path_factory.mktemp("material"))


@pytest.fixture(scope="module")
def folder(material, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_report(material, folder)
    return folder


# ---- What it is made of ----------------------------------------------------------------------------------------------


def test_every_figure_has_a_caption_and_every_caption_a_figure():
    named = figure_names()
    assert len(named) == len(set(named))
    checked, shown = {*PAPER, *OURS}, {path.stem for path in DRAWN.glob("*.png")}
    assert checked | shown == set(named)
    for caption in (caption for group in FIGURES.values() for caption in group.values()):
        assert re.fullmatch(r"[A-Z][^.!?]+(?:\d\.\d[^.!?]+)*\.", caption), f"not one plain sentence: {caption}"


def test_every_table_is_shown():
    # One number per seed and part: for programs, not for readers.
    written = {path.stem for path in (DRAWN / "tables").glob("*.csv")} - {"claim_values"}
    assert written | {*WRITTEN, *PROTOCOL, *BY_COMMAND} == {*TABLES, *collecting.CLAIM_TABLES}


def test_the_repositorys_figures_leave_the_page_small_enough_for_a_letter():
    """All pictures together, as the page stores them; explorer and tables take less than 5 MB, and the goal is 8."""
    inside = sum(len(Picture.read(path.stem, path, "").source) for path in DRAWN.glob("*.png"))
    assert inside < 3.5e6


@pytest.fixture
def empty_clone(tmp_path, monkeypatch):
    """A clone in which nothing has run."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "05_plotting.ipynb").touch()
    for module in (paths, collecting, command):
        monkeypatch.setattr(module, "repository_root", lambda: tmp_path)
    return tmp_path


def test_what_is_missing_is_told_before_anything_is_written(empty_clone, capsys):
    assert command.main(["--profile", "smoke"]) == 1
    told = capsys.readouterr().err
    for part in (
        "nothing was written",
        "1 of 1 executed notebooks in build/smoke: 05_plotting.ipynb",
        f"{len(figure_names())} figures in build/figures/smoke: fl_Archi",
        "tables in build/figures/smoke/tables: claims",
        "14 runs of track 'baf'",
        "14 runs of track 'genome-clean'",
        "make reproduce PROFILE=smoke",
    ):
        assert part in told
    assert not (empty_clone / "build").exists()


def test_the_clean_tracks_have_as_many_seeds_as_the_notebooks_train(monkeypatch):
    asked = {}

    def nothing(settings, track, methods, seeds, train):
        asked[track] = list(seeds)
        raise RunError("missing")

    monkeypatch.setattr(collecting, "get_study", nothing)
    paper = load_profile("paper")
    collecting._studies(paper, ["baf", "genome"], list(paper.seeds))
    assert paper.study_seeds < len(paper.seeds)
    assert {track: len(seeds) for track, seeds in asked.items()} == {
        "baf": len(paper.seeds),
        "genome": len(paper.seeds),
        "baf-clean": paper.study_seeds,
        "genome-clean": paper.study_seeds,
    }


def test_figures_alone_are_drawn_again_by_the_notebook_that_draws_them(empty_clone, monkeypatch):
    monkeypatch.setattr(collecting, "_studies", lambda *asked: ({}, []))
    (empty_clone / "build/figures/smoke/tables").mkdir(parents=True)
    for name in (*TABLES, *collecting.CLAIM_TABLES):
        (empty_clone / "build/figures/smoke/tables" / f"{name}.csv").touch()
    for name in {*figure_names()} - {"leak_audit"}:
        (empty_clone / "build/figures/smoke" / f"{name}.png").touch()
    (empty_clone / "build" / "smoke").mkdir()
    for name in ("01_preprocessing.ipynb", "05_plotting.ipynb"):
        for place in ("notebooks", "build/smoke"):
            shutil.copy(ROOT / "notebooks" / name, empty_clone / place)
    command = "make -W notebooks/01_preprocessing.ipynb notebook-01 PROFILE=smoke"
    with pytest.raises(RunError, match=f"1 figures in build/figures/smoke: leak_audit\nmake them:\n  {command}$"):
        collecting.collect("smoke")
    (empty_clone / "build/figures/smoke/claims_baf.png").unlink()
    with pytest.raises(RunError, match=f"{command}\n  make figures PROFILE=smoke$"):
        collecting.collect("smoke")


def test_each_notebook_draws_what_the_report_says_it_draws():
    """Figures are saved by name; those of notebooks 01 and 06 come from the modules that only these import."""
    for number, module in (("01", "data"), ("06", "hardware")):
        source = (ROOT / "qfl_core" / "figures" / f"{module}.py").read_text()
        saved = re.findall(r'Sheet\(\s*f?"([^"]+)"', source)
        names = {name.replace("{dataset}", dataset) for name in saved for dataset in ("baf", "genome")}
        assert names == set(collecting.DRAWN_BY[number])


def test_an_unknown_profile_is_refused(capsys):
    assert command.main(["--profile", "papre"]) == 2
    assert "did you mean 'paper'" in capsys.readouterr().err


# ---- What it says ----------------------------------------------------------------------------------------------------


def test_the_same_material_gives_the_same_bytes(material):
    assert index_page(material) == index_page(material)


def test_text_from_data_cannot_become_markup(material):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    tables = {name: table.copy() for name, table in material.tables.items()}
    for name, column in (("claims", "claim"), ("claims", "note"), ("claim_parts", "text"), ("method_roles", "Role")):
        tables[name].loc[0, column] = evil
    tables["notation"].loc[0, "Symbol"] = evil
    books = (replace(material.notebooks[0], title=evil),)
    studies = {evil: material.studies["baf"]}
    page = index_page(replace(material, tables=tables, notebooks=books, not_drawn=(evil,), studies=studies))
    assert page.count("&lt;script&gt;alert(1)") >= 7
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]
    assert "<" not in data
    assert list(json.loads(data)["tracks"]) == [evil]


@pytest.mark.filterwarnings("ignore::qfl_core.base.errors.ChangedResults")
def test_runs_that_changed_since_they_were_sealed_are_flagged(material, tmp_path):
    assert "all as sealed" in index_page(material)
    study = material.studies["baf"]
    copied = tmp_path / study.runs[0].path.name
    copied.mkdir()
    for file in study.runs[0].path.iterdir():
        (copied / file.name).write_bytes(file.read_bytes())
    with (copied / "validation.csv").open("a") as file:
        file.write("9,9,9,9\n")
    changed = replace(study, runs=(RunResult(copied), *study.runs[1:]))
    page = index_page(replace(material, studies={"baf": changed}))
    assert "1 of 9 runs have files that CHANGED" in page
    assert f"<code>{copied.name}</code>: validation.csv" in page


@pytest.mark.filterwarnings("ignore::qfl_core.base.errors.ChangedResults")
def test_the_table_of_runs_has_a_commit_only_where_runs_differ_in_it(material, tmp_path):
    study = material.studies["baf"]
    assert (
        {"run", "identity"} <= {*provenance(material).runs} <= {"track", "method", "seed", "run", "config", "identity"}
    )
    other = tmp_path / study.runs[0].path.name
    shutil.copytree(study.runs[0].path, other)
    told = json.loads((other / "environment.json").read_text(encoding="utf-8"))
    (other / "environment.json").write_text(json.dumps(told | {"commit": "another"}), encoding="utf-8")
    changed = replace(material, studies={"baf": replace(study, runs=(RunResult(other), *study.runs[1:]))})
    assert set(provenance(changed).runs["commit"]) == {"another", told["commit"]}


def test_the_explorer_holds_every_runs_numbers(material):
    data = explorer_data(material.studies, material.references)
    for track, study in material.studies.items():
        for run in study.runs:
            place = data["tracks"][track]["seeds"].index(run.config.seed)
            for metric in METRICS:
                stored = unpacked(data["tracks"][track]["values"][run.config.method][metric], run.rounds)[place]
                np.testing.assert_allclose(stored, run.rounds[metric], rtol=1e-6, atol=1e-6)
    undefined = unpacked(data["tracks"]["baf"]["values"]["duqfl-prox"]["fairness_gap"], data["tracks"]["baf"]["rounds"])
    assert np.isnan(undefined[0, 0])  # round 0 has no clients yet
    assert data["tracks"]["baf"]["paper"]["global_accuracy"]["duqfl-prox"] == 0.6504


def unpacked(stored: dict, rounds: Sized) -> np.ndarray:
    """Return what the page's script makes of a packed table: one row per seed."""
    width = stored["width"]
    lowest = np.frombuffer(base64.b64decode(stored["packed"]), np.uint8).reshape(-1, width)
    numbers = [int.from_bytes(row.tobytes(), "little", signed=True) for row in lowest]
    numbers = np.array(numbers, float)
    return np.where(numbers == -(2 ** (8 * width - 1)), np.nan, numbers * stored["scale"]).reshape(-1, len(rounds))


@pytest.mark.parametrize(
    ("values", "width"),
    [([[0.5, 0.0008], [np.nan, 1.0]], 2), ([[0.5, 0.00081], [np.nan, -1.0]], 3), ([[25_064.0, 40_000.0]], 3)],
    ids=["multiples of 1/1250", "other shares", "counts beyond two bytes"],
)
def test_two_bytes_hold_what_they_hold_exactly(values, width):
    stored = packed(pd.DataFrame(values), (1, 1250))
    assert stored["width"] == width
    np.testing.assert_allclose(unpacked(stored, values[0]), values, rtol=1e-6, atol=1e-9 if width == 2 else 1e-6)


def test_every_formula_of_the_notebooks_and_the_notation_is_drawn():
    formulas = 0
    for path in sorted((ROOT / "notebooks").glob("*.py")):
        prose = [line.removeprefix("#").strip() for line in path.read_text().splitlines() if line.startswith("#")]
        converted = portable("\n".join(prose))
        assert 'class="tex"' not in converted, path.name
        assert "$" not in re.sub(r"<math.*?</math>", "", converted), path.name
        formulas += converted.count("<math")
    assert formulas > 20
    for symbol in notation_table()["Symbol"]:
        assert formula(symbol).startswith("<math"), symbol


def test_formulas_become_mathml_and_unknown_ones_stay_readable():
    inside = re.compile(r"<math[^>]*><mrow>(.*)</mrow></math>")
    assert inside.match(formula(r"\theta_i^{(t)}"))[1] == (
        '<msubsup><mi>θ</mi><mi>i</mi><mrow><mo stretchy="false">(</mo><mi>t</mi><mo stretchy="false">)</mo></mrow>'
        "</msubsup>"
    )
    assert inside.match(formula(r"\sum_j \frac{1}{2c}", display=True))[1] == (
        "<munder><mo>∑</mo><mi>j</mi></munder><mfrac><mrow><mn>1</mn></mrow><mrow><mn>2</mn><mi>c</mi></mrow></mfrac>"
    )
    spaced = ' lspace="0.1em" rspace="0.17em"'
    assert inside.match(formula(r"\arg x \pm 1"))[1] == f"<mo{spaced}>arg</mo><mi>x</mi><mo>±</mo><mn>1</mn>"
    for unknown in (r"\unknown x", r"x^", r"{x", r"x}", r"x_1_2", "<b>", r"\text{<b>}", r'\color{"><b>}{x}'):
        assert formula(unknown).startswith(("<code", "<math"))
        assert "<b>" not in formula(unknown)
    assert formula(r"\unknown x<y") == r'<code class="tex">\unknown x&lt;y</code>'
    assert portable("a `$x$` costs 5$ or $y$").startswith("a `$x$` costs 5$ or <math")


def test_links_of_notebooks_lead_to_pages_or_nowhere():
    told = "[a](../EXTENDING.md), [b](02_baselines.ipynb), [c](https://example.org), [d](#e), `[f](g)`"
    assert portable(told) == "a, [b](02.html), [c](https://example.org), [d](#e), `[f](g)`"


# ---- In a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if BROWSER is None:
        pytest.skip("no Chromium: the report is not looked at (Debian: apt-get install chromium)")
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture
def index(browser, folder):
    browser.open(folder / "index.html", DESKTOP)
    return browser


def pages(folder: Path) -> list[Path]:
    return [folder / "index.html", *sorted((folder / "notebooks").glob("*.html"))]


LINKS = "[...document.querySelectorAll('a[href]')].map((link) => link.href)"
BROKEN_IMAGES = (
    "[...document.images].filter((image) => !image.naturalWidth || !image.alt).map((image) => image.outerHTML)"
)


def test_it_opens_without_error_request_or_broken_link(browser, folder):
    for path in pages(folder):
        browser.open(path, DESKTOP)
        assert browser.errors == [], path.name
        assert [url[:80] for url in browser.requests if not url.startswith(("file:", "data:"))] == []
        assert {url for url in browser.requests if url.startswith("file:")} == {path.resolve().as_uri()}
        assert browser.ask(BROKEN_IMAGES) == [], path.name
        for link in browser.ask(LINKS):
            file, _, fragment = link.removeprefix("file://").partition("#")
            assert link.startswith("file://"), link
            assert Path(file).is_file(), link
            assert not fragment or f'id="{fragment}"' in Path(file).read_text(), link


def test_nothing_can_be_loaded_from_elsewhere_even_if_asked(index):
    """The page's own policy refuses, before the browser's rules of this test do."""
    refused = "new Promise((end) => document.addEventListener('securitypolicyviolation', (e) => end(e.blockedURI)))"
    index.ask("globalThis.refused = " + refused + "; 1")
    index.ask("document.body.append(Object.assign(new Image(), { src: 'https://example.org/x.png' })); 1")
    assert index.ask("refused") == "https://example.org/x.png"


#: Every visible piece of text with its size and its contrast against what is behind it.
TEXTS = """(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
                             return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => { for (let e = element; e; e = e.parentElement) {
    const colour = rgba(getComputedStyle(e).backgroundColor); if (colour[3] === 255) return colour; }
    return rgba('white'); };
  const found = {};
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim(), element = walker.currentNode.parentElement;
    if (!text || !element.checkVisibility() || element.closest('script, style, math')) continue;
    const style = getComputedStyle(element);
    const ink = rgba(element.namespaceURI.endsWith('svg') ? style.fill : style.color);
    const [high, low] = [light(ink), light(behind(element))].sort((a, b) => b - a);
    const contrast = (high + 0.05) / (low + 0.05);
    found[[element.tagName, element.className, parseFloat(style.fontSize), contrast].join('|')] = text.slice(0, 40);
  }
  return Object.entries(found).map(([key, text]) => [...key.split('|'), text]);
})()"""
WIDTHS = "[document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_it_is_readable(browser, folder, width, dark):
    for path in pages(folder):
        browser.open(path, width, dark=dark)
        browser.ask("document.querySelectorAll('details').forEach((part) => (part.open = true))")
        assert browser.ask(WIDTHS) == [width] * 3, f"{path.name} scrolls sideways"
        texts = browser.ask(TEXTS)
        assert len(texts) > 10
        for tag, kind, size, contrast, text in texts:
            assert float(size) >= SMALLEST, (path.name, tag, kind, size, text)
            assert float(contrast) >= READABLE, (path.name, tag, kind, contrast, text)
    page = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", page))) < 200) == dark


def choose(page, track="baf", metric="global_accuracy", methods=METHODS, seeds=SEEDS) -> None:
    """Choose as a reader does: change the controls, and let them tell."""
    page.ask(f"""(() => {{
      const changed = (element) => element.dispatchEvent(new Event('change', {{ bubbles: true }}));
      const pick = (id, value) => {{ find(id).value = value; changed(find(id)); }};
      const tick = (id, wanted) => find(id).querySelectorAll('input').forEach((input) => {{
        if (input.checked !== wanted.includes(input.value)) {{ input.checked = !input.checked; changed(input); }} }});
      pick('track', {json.dumps(track)}); pick('metric', {json.dumps(metric)});
      tick('methods', {json.dumps(list(methods))}); tick('seeds', {json.dumps([str(seed) for seed in seeds])});
    }})()""")


LINES = "[...document.querySelectorAll('#chart .mean')].map((line) => [line.dataset.method, line.getAttribute('d')])"
VALUES = "[...find('values').tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()))"


def test_every_choice_redraws(index):
    choose(index)
    first = dict(index.ask(LINES))
    assert list(first) == list(METHODS)
    choose(index, methods=METHODS[:1])
    assert list(dict(index.ask(LINES))) == list(METHODS[:1])
    drawn = {}
    for name, choice in {
        "all": {},
        "metric": {"metric": "test_roc_auc"},
        "seeds": {"seeds": SEEDS[1:]},
        "track": {"track": "genome-clean"},
    }.items():
        choose(index, **choice)
        drawn[name] = dict(index.ask(LINES))["duqfl-prox"]
    assert len(set(drawn.values())) == 4
    assert drawn["all"] == first["duqfl-prox"]
    assert index.ask("document.querySelectorAll('#chart .band').length") == 2
    choose(index, seeds=SEEDS[:1])
    assert index.ask("document.querySelectorAll('#chart .band').length") == 0  # one seed has no interval
    index.ask("find('single-runs').click()")
    assert index.ask("document.querySelectorAll('#chart .run').length") == len(METHODS)
    choose(index, methods=(), seeds=())
    index.ask("find('references').click()")
    assert index.ask("find('chart').textContent") == "Nothing chosen."
    assert index.errors == []


def test_its_numbers_are_the_analysis_numbers(index, material):
    for track, study in material.studies.items():
        for seeds in (SEEDS, SEEDS[:2], SEEDS[2:]):
            table = study.rounds[study.rounds["seed"].isin(seeds)]
            for metric in METRICS:
                asked = json.dumps([track, metric, list(seeds)])
                told = index.ask(
                    f"(([track, metric, seeds]) => Object.keys(data.tracks[track].values)"
                    f".map((method) => [method, curve(track, method, metric, seeds)]))({asked})"
                )
                expected = intervals(table, metric, ["method", "round"]).set_index(["method", "round"])
                rounds = material.studies[track].rounds["round"].unique()
                for method, points in told:
                    for i, point in zip(rounds, points, strict=True):
                        if (method, i) not in expected.index:
                            assert point is None
                            continue
                        row = expected.loc[(method, i)]
                        ours = [point[name] for name in ("mean", "low", "high")]
                        ours = [float("nan") if value is None else value for value in ours]
                        close = ROUNDED * max(1.0, abs(row["mean"]))
                        assert ours == pytest.approx([row["mean"], row["low"], row["high"]], abs=close, nan_ok=True)
                        assert point["seeds"] == row["seeds"]


def test_the_table_under_the_chart_says_the_rounds_numbers(index, material):
    choose(index, seeds=SEEDS[:2])
    index.ask("find('round').value = 2; find('round').dispatchEvent(new Event('input')); 1")
    assert index.ask("find('round-shown').textContent") == "2"
    table = material.studies["baf"].rounds.query("round == 2 and seed < 2")
    expected = intervals(table, "global_accuracy", ["method"]).set_index("method")
    rows = index.ask(VALUES)
    for method, (label, mean, between, _, seeds, single) in zip(METHODS, rows, strict=False):
        row = expected.loc[method]
        assert (mean, seeds) == (f"{row['mean']:.3f}", "2"), label
        assert between == f"{row['low']:.3f} to {row['high']:.3f}"
        values = table[table["method"] == method].sort_values("seed")["global_accuracy"]
        assert single.split() == [f"{value:.3f}" for value in values]
    references = [row for row in rows if row[-1].startswith("reference")]
    assert [row[1] for row in references] == ["0.810", "0.820", "0.830"]  # the mean of the two chosen seeds


def test_it_works_by_keyboard(index):
    index.ask("find('round').focus(); find('round').value = 1; 1")
    index.press("ArrowRight", 39)
    assert index.ask("find('round-shown').textContent") == "2"
    before = index.ask(LINES)
    index.ask("find('methods').querySelector('input').focus()")
    index.press(" ", 32)
    assert len(index.ask(LINES)) == len(before) - 1
    shown = "[...document.querySelectorAll('.claim')].filter((claim) => claim.checkVisibility()).length"
    everyone = index.ask(shown)
    index.ask("document.querySelector('.tile.fails').focus()")
    index.press(" ", 32)
    assert index.ask(shown) == int(index.ask("document.querySelector('.tile.fails strong').textContent")) < everyone
    index.press(" ", 32)
    assert index.ask(shown) == everyone
    unnamed = (
        "[...document.querySelectorAll('input, select, button')].filter((e) => !e.labels?.length && !e.textContent)"
    )
    assert index.ask(f"{unnamed}.length") == 0


def test_its_headings_and_contents_are_in_order(index):
    levels = index.ask("[...document.querySelectorAll('h1, h2, h3, h4')].map((h) => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    contents = index.ask("[...document.querySelectorAll('nav li a')].map((a) => a.getAttribute('href').slice(1))")
    assert contents == index.ask("[...document.querySelectorAll('main > section')].map((section) => section.id)")
    assert index.ask("new Set([...document.querySelectorAll('[id]')].map((e) => e.id)).size") == index.ask(
        "document.querySelectorAll('[id]').length"
    )
