"""Certificates and keys of a federation: made fresh, readable by their owner alone.

The authority that signs the server's certificate lives only while this runs: its private key is never written.
"""

from __future__ import annotations

import ipaddress
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from qfl_core.base.errors import ConfigError

LIFETIME = timedelta(days=30)
_KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: One part of the name of a machine.
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


@dataclass(frozen=True)
class Certificates:
    """Paths: the authority's certificate, which everyone may have, and the server's certificate and private key."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path, hosts: tuple[str, ...] = ("127.0.0.1", "localhost")) -> Certificates:
    """Make an authority and a server certificate for these names and addresses, valid for 30 days.

    Raises
    ------
    ConfigError
        When one of ``hosts`` is neither the name nor the address of a machine.
    FileExistsError
        When the folder has a server's key already; its files then stay as they are.
    """
    alternatives = [_alternative(host) for host in hosts]
    authority_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    authority = _name("DUQFL federation authority")
    root = (
        _certificate(authority, authority, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    server = (
        _certificate(_name(hosts[0][:64]), authority, server_key.public_key())
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    made = Certificates(folder / "ca.crt", folder / "server.pem", folder / "server.key")
    _write_secret(made.key, _private(server_key, serialization.PrivateFormat.PKCS8))  # first: it refuses to overwrite
    made.authority.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    made.certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    return made


def make_node_key(folder: Path, name: str) -> Path:
    """Make a node's key pair (P-384, OpenSSH format) and return the private key's path; the public one ends in .pub.

    Raises
    ------
    ConfigError
        When ``name`` is not fit for the names of two files.
    FileExistsError
        When there is a key of this name already.
    """
    if not _KEY_NAME.fullmatch(name) or name.endswith(".pub"):
        expected = "up to 100 letters, digits, points, hyphens and underscores, without .pub at the end"
        raise ConfigError(f"the name of a key {name!r} is not valid: expected {expected}")
    key = ec.generate_private_key(ec.SECP384R1())
    path = folder / name
    _write_secret(path, _private(key, serialization.PrivateFormat.OpenSSH))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.with_name(f"{name}.pub").write_bytes(public + b"\n")
    return path


def _write_secret(path: Path, content: bytes) -> None:
    # Created with its mode, so that there is no moment at which others could read it.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def _private(key: ec.EllipticCurvePrivateKey, layout: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, layout, serialization.NoEncryption())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):
        expected = "a name such as server.example.org, or an address such as 192.0.2.1"
        raise ConfigError(f"the host {host!r} is not valid: expected {expected}")
    return x509.DNSName(host)


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )


def _usage(**granted: bool) -> x509.KeyUsage:
    names = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: granted.get(name, False) for name in names})
