"""Certificates and keys: what they are for, who can read them, and where they may not be."""

import stat
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("flwr")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from qfl_core.__main__ import main
from qfl_core.base.paths import repository_root
from qfl_core.config import load_profile
from qfl_core.network.credentials import make_certificates, make_node_key
from qfl_core.network.site import open_site


def test_the_authority_signs_the_server_for_its_names_and_a_month(tmp_path):
    made = make_certificates(tmp_path, ("127.0.0.1", "server.example.org"))
    authority = x509.load_pem_x509_certificate(made.authority.read_bytes())
    server = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["server.example.org"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    left = server.not_valid_after_utc - datetime.now(UTC)
    assert timedelta(days=29) < left < timedelta(days=31)


def test_private_keys_are_readable_by_their_owner_alone_and_the_authoritys_is_not_kept(tmp_path):
    make_certificates(tmp_path)
    make_node_key(tmp_path, "node")
    private = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir() if b"PRIVATE" in p.read_bytes()}
    assert private == {"server.key": 0o600, "node": 0o600}


def test_a_node_key_is_a_pair_of_its_own(tmp_path):
    keys = [load_ssh_private_key(make_node_key(tmp_path, name).read_bytes(), None) for name in ("a", "b")]
    assert all(isinstance(key.curve, ec.SECP384R1) for key in keys)
    public = load_ssh_public_key((tmp_path / "a.pub").read_bytes())
    assert public == keys[0].public_key()
    assert public != keys[1].public_key()


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_existing_keys_are_not_overwritten_and_their_certificates_stay(tmp_path):
    make_node_key(tmp_path, "node")
    make_certificates(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(FileExistsError):
        make_node_key(tmp_path, "node")
    with pytest.raises(FileExistsError):
        make_certificates(tmp_path)
    assert contents(tmp_path) == before


def test_nodes_whose_names_have_points_have_public_keys_of_their_own(tmp_path):
    for name in ("site.1", "site.2"):
        make_node_key(tmp_path, name)
    assert set(contents(tmp_path)) == {"site.1", "site.1.pub", "site.2", "site.2.pub"}


def test_the_longest_name_of_a_machine_has_a_certificate(tmp_path):
    host = ".".join(["a" * 63] * 3)
    server = x509.load_pem_x509_certificate(make_certificates(tmp_path, (host,)).certificate.read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [host]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *((f"certificates {host}", f"the host '{host}' is not valid") for host in ("é.org", "a..b", "x.org-", "x:80")),
        ("certificates localhost 10.0.0.0/8", "the host '10.0.0.0/8' is not valid"),
        (f"certificates {'a' * 64}", "is not valid: expected a name such as server.example.org"),
        *(
            (f"node-key {name}", f"key '{name}' is not valid")
            for name in ("..", "../x", "a/b", "/a", ".a", "a.pub", "é")
        ),
        (f"node-key {'a' * 101}", "is not valid: expected up to 100 letters"),
        ("export nothing.yaml", "the config nothing.yaml cannot be read: No such file or directory"),
        ("export .", "the config . cannot be read: Is a directory"),
        ("export binary.yaml", "the config binary.yaml cannot be read: 'utf-8' codec"),
        ("export broken.yaml", "the config is not valid YAML"),
        ("export list.json", "settings are a mapping of fields to values, got list"),
        ("export absent.yaml", "official"),
    ],
)
def test_what_the_command_refuses_leaves_no_folder(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    files = {"binary.yaml": b"\xff", "broken.yaml": b"[", "list.json": b"[]", "absent.yaml": b"source: official"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    assert main(["network", *words.split(), "--out", "new/deep"]) == (1 if "absent" in words else 2)
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == set(files)


@pytest.mark.parametrize("out", ["file", "file/x", "loop", "a/" * 2000, "a" * 300])
def test_a_folder_that_cannot_be_written_is_one_line(out, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    assert main(["network", "node-key", "node", "--out", out]) == 1
    told = capsys.readouterr().err
    assert told.startswith("qfl_core: cannot write to ")
    assert told.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"file", "loop"}


def test_the_command_makes_what_a_federation_of_machines_needs(tmp_path, capsys):
    assert main(["network", "certificates", "server.example.org", "--out", str(tmp_path / "server")]) == 0
    assert main(["network", "node-key", "hospital-0", "--out", str(tmp_path / "hospital")]) == 0
    assert stat.S_IMODE((tmp_path / "hospital").stat().st_mode) == 0o700
    assert "hospital-0, hospital-0.pub" in capsys.readouterr().out
    config = load_profile("smoke").config(
        "baf", source="stand-in", clients=2, rounds=1, train_size=300, val_size=100, test_size=100
    )
    (tmp_path / "experiment.yaml").write_text(config.to_yaml())
    assert main(["network", "export", str(tmp_path / "experiment.yaml"), "--out", str(tmp_path / "data")]) == 0
    assert open_site(config, tmp_path / "data" / "client-1", 1).federation.size(0, 1) > 0
    assert len(open_site(config, tmp_path / "data" / "server").federation.splits["val"]) == 100


def test_the_command_refuses_to_write_keys_into_the_repository(capsys):
    folder = repository_root() / "keys"
    assert main(["network", "node-key", "node", "--out", str(folder)]) == 1
    assert "inside the repository" in capsys.readouterr().err
    assert not folder.exists()


def test_the_superlink_waits_a_minute_for_a_busy_database():
    from flwr.supercore.constant import SQLITE_PRAGMAS

    from qfl_core.network.flower import patient

    changed = dict(set(patient(SQLITE_PRAGMAS)) - set(SQLITE_PRAGMAS))
    assert changed == {"busy_timeout": "60000"}
    assert [name for name, _ in patient(SQLITE_PRAGMAS)] == [name for name, _ in SQLITE_PRAGMAS]
    with pytest.raises(RuntimeError, match="no busy_timeout"):
        patient((("journal_mode", "WAL"),))
