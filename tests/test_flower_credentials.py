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


def test_an_existing_key_is_not_overwritten(tmp_path):
    make_node_key(tmp_path, "node")
    with pytest.raises(FileExistsError):
        make_node_key(tmp_path, "node")


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

    from qfl_core.network.superlink import patient

    changed = dict(set(patient(SQLITE_PRAGMAS)) - set(SQLITE_PRAGMAS))
    assert changed == {"busy_timeout": "60000"}
    assert [name for name, _ in patient(SQLITE_PRAGMAS)] == [name for name, _ in SQLITE_PRAGMAS]
    with pytest.raises(RuntimeError, match="no busy_timeout"):
        patient((("journal_mode", "WAL"),))
