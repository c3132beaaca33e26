"""The command line under generated arguments: it succeeds, or says why in one line, and leaves nothing behind."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from qfl_core.__main__ import COMMANDS, main
from qfl_core.base.errors import ConfigError
from qfl_core.base.options import read_value, setting_types
from qfl_core.config import ExperimentConfig
from qfl_core.hardware import HardwareConfig

FIELDS = [f"--{name.replace('_', '-')}" for name in ExperimentConfig.describe()]
OTHERS = ["--profile", "--results", "--plugin", "--repeat", "--source", "--backend", "--max-seconds", "--set", "--yes"]
OTHERS += ["--out", "--figures", "--min-clients", "--timeout", "--insecure", "--dry-run"]

#: What YAML, shells, tables of numbers and tired fingers make of a value.
NASTY = [
    *("", " ", "\n", "\t", "=", "-", "--", "---", "~", "null", "None", "none", "NONE", "yes", "no", "on", "true"),
    *("0", "-0", "00", "08", "0o17", "0x10", "1:30", "1_000", "1,5", "1 2", "+1", "-1", "- 1", "1.", ".5", "1e3"),
    *("nan", "inf", "-inf", "1e-400", "1e999", "1e308", "-1e308", "1e20", "1/2", "50%", "\u0663", "False"),
    *("9" * 20, "-" + "9" * 20, "9" * 5000, "2026-01-01", "12:00:00", "&a [*a]", "{a: 1}", "'1'", '"1"'),
    *("[", "]", "[]", "[[]]", "[1", "[0,1]", "[1, 0]", "[0, 1e300]", "[nan, 1]", "[0, 1, 2]", "[,]", "[1,]", "['a']"),
    *("../outside", "/", "/dev/null", "/dev/null/x", "~/x", "a/b", "a" * 300, "con", "*", "%s", "%(prog)s", "{0}"),
    *("baf", "genome", "bfa", "kmer", "paper", "smoke", "smok", "duqfl-prox", "density", "primitives", "dirichlet"),
    *("shots=1", "shots", "=1", "shots=", "mitigation=[]", "noise-scales=[0, 1]", "backend=", "$HOME", "zz"),
    *("!!python/object/apply:os.getcwd []", "\x1b[31m", "\udcff", "\u00e9\u2028x"),
    *("1", "2", "3", "16", "0.1", "0.5", "1.0"),
]

values = st.sampled_from(NASTY) | st.text(st.characters(exclude_characters="\0"), max_size=12)
options = st.sampled_from(FIELDS) | st.sampled_from(OTHERS) | values.map(lambda text: f"--{text}")
words = st.one_of(
    st.tuples(options, values).map(list),
    st.tuples(st.sampled_from(FIELDS), values).map(list),
    st.tuples(options, values).map(lambda pair: [f"{pair[0]}={pair[1]}"]),
    options.map(lambda option: [option]),
    values.map(lambda value: [value]),
)
COMMAND_WORDS = ["run", "run", "list", "show x", "data", "federate", "protocol", "hardware dry-run", "hardware status"]
COMMAND_WORDS += ["hardware replay", "hardware", "network", "network node-key", "fidelity", "real", "metatrain"]
COMMAND_WORDS += ["controllers", "follow-up", ""]
lines = st.builds(
    lambda command, parts: [*command.split(), *(word for part in parts for word in part)],
    st.sampled_from(COMMAND_WORDS),
    st.lists(words, max_size=4),
)


def loaded(config):
    return SimpleNamespace(parts={}, provenance=SimpleNamespace(sha256=""), notes={})


def nothing(*_, **__):
    return ""


SAVED = SimpleNamespace(save=nothing, write=nothing)
#: What the commands of studies and networks call after their checks, by the place where they find it.
STUBS = {
    "qfl_core.base.files.write_bytes": nothing,
    "qfl_core.data.load_splits": loaded,
    "qfl_core.studies.protocol.command._stand_in": nothing,
    "qfl_core.studies.fidelity.differences.measure": nothing,
    "qfl_core.studies.fidelity.command.write_text": nothing,
    "qfl_core.analysis.tables.csv_text": nothing,
    "qfl_core.studies.fidelity.markdown.read_measured": nothing,
    "qfl_core.studies.fidelity.markdown.page": nothing,
    "qfl_core.studies.metatrain.command.trained": nothing,
    "qfl_core.studies.metatrain.command.file_text": nothing,
    "qfl_core.studies.controllers.command._fresh": lambda *_: 0,
    "qfl_core.studies.controllers.tables.compare": lambda *_: SAVED,
    "qfl_core.studies.controllers.tables.Tables.read": nothing,
    "qfl_core.studies.controllers.page.blocks": lambda *_: {},
    "qfl_core.studies.controllers.page.empty_page": nothing,
    "qfl_core.studies.controllers.page.with_blocks": nothing,
    "qfl_core.figures.apply_style": nothing,
    "qfl_core.figures.controllers.controller_curves": lambda *_: SAVED,
    "qfl_core.figures.controllers.controller_rates": lambda *_: SAVED,
    "qfl_core.studies.follow_up.first_stage.FirstStage.read": lambda *_: SimpleNamespace(open_claims=[]),
    "qfl_core.network.credentials.make_certificates": nothing,
    "qfl_core.network.credentials.make_node_key": nothing,
    "qfl_core.network.site.export_sites": nothing,
}


@pytest.fixture(scope="module")
def stubbed(tmp_path_factory):
    """Replace what would train, load or connect by a record of what it was asked for; work in an empty folder."""
    asked: list[object] = []

    def study(profile, track, methods, seeds, folder):
        asked.extend(profile.config(track, method=method, seed=seed) for method in methods for seed in seeds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QFL_OFFLINE", "1")
        patch.delenv("QISKIT_IBM_TOKEN", raising=False)
        patch.chdir(tmp_path_factory.mktemp("work"))
        patch.setattr("qfl_core.runs.run_experiment", lambda config, *_, **__: asked.append(config))
        launch = SimpleNamespace(federate=lambda config, *_, **__: asked.append(config))
        patch.setitem(sys.modules, "qfl_core.network.launch", launch)  # the module itself takes seconds to import
        for room in ("runs", "network"):
            patch.setattr(f"qfl_core.{room}.command.print_run", lambda _: None)
        patch.delenv("QFL_DATA_DIR", raising=False)
        for name, replaced in STUBS.items():
            patch.setattr(name, replaced)
        patch.setattr("qfl_core.runs.study.get_study", study)
        patch.setattr("qfl_core.hardware.dry_run", lambda _, config: asked.append(config))
        for name in ("results_dir", "figures_dir"):
            patch.setattr(f"qfl_core.hardware.command.{name}", lambda profile: Path("results") / profile)
        yield asked


@settings(
    max_examples=1500,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(line=lines)
@example(line=["run", "--profile", "smoke", "--dataset", "1"])
@example(line=["run", "--shots=", "--results="])
@example(line=["run", "--seed", "0", "--seed", "1:30"])
@example(line=["hardware", "dry-run", "--profile", "smoke", "--set", "shots=08", "noise-scales=[0, 1e0]"])
def test_any_command_line_succeeds_or_is_refused_in_one_line(stubbed, capsys, line):
    stubbed.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "mkdir", nothing)  # because a path may lead anywhere
        try:
            status = main(line)
        except SystemExit as ended:
            status = ended.code
    told = capsys.readouterr().err
    assert status in (0, 1, 2), line
    if status == 0:
        assert told == "", line
    else:
        assert told.endswith("\n"), (line, told)
        assert told[:-1].isprintable(), (line, told)  # so it has no other line break
        assert ": " in told, (line, told)
        assert stubbed == [], (line, stubbed)
    assert list(Path.cwd().iterdir()) == [], line
    for config in stubbed:
        assert isinstance(config, ExperimentConfig | HardwareConfig)
        assert type(config).from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("metatrain --profile smoke --generations 0", "generations=0 "),
        ("metatrain --profile smoke --generations -5", "generations=-5 "),
        ("metatrain --profile smoke --jobs 0", "jobs=0 "),
        ("metatrain --profile smoke --jobs -2", "jobs=-2 "),
        ("metatrain --profile nonsense", "nonsense"),
        ("metatrain --profile ../outside", "../outside"),
        ("real --profile smoke --seeds 0", "seeds=0 "),
        ("fidelity --profile smoke --seeds 1", "seeds=1 "),
        ("follow-up --profile nonsense", "nonsense"),
    ],
)
def test_values_that_a_study_cannot_use_are_refused_before_anything_is_made(stubbed, capsys, line, told):
    with pytest.MonkeyPatch.context() as patch:
        for place in ("pathlib.Path.mkdir", "qfl_core.base.files.write_bytes"):
            patch.setattr(place, lambda *_, **__: pytest.fail(f"{line} makes a file or a folder"))
        assert main(line.split()) == 2
    (found,) = capsys.readouterr().err.splitlines()
    assert told in found


KINDS = {str(kind): kind for made in (ExperimentConfig, HardwareConfig) for kind in setting_types(made).values()}
PLAIN = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@settings(max_examples=100, derandomize=True, deadline=None)
@given(random=values)
def test_what_is_accepted_means_what_it_says(kind, random):
    for text in (*NASTY, random):
        try:
            found = read_value(kind, text)
        except ConfigError:
            continue
        if isinstance(found, list):
            assert (text[0], text[-1]) == ("[", "]")
            texts = text[1:-1].split(",") if found else []
            assert found == [read_value(type(one), word.strip()) for one, word in zip(found, texts, strict=True)]
        elif isinstance(found, int | float):
            assert re.fullmatch(PLAIN, text)
            assert found == type(found)(text)
        else:
            assert found == text or (found is None and text.lower() in ("none", "null"))
        assert text.strip()


def test_every_command_is_driven():
    assert {words.split()[0] for words in COMMAND_WORDS if words} == set(COMMANDS)
