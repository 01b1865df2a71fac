"""Keys and certificates of a deployment: an authority of its own, the server, and the sites.

The server proves who it is by a certificate that the authority has signed (TLS); a site proves who
it is by a key that the operator has registered. Nothing here needs the network or a program.
"""

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP384R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
SERVER_DAYS = 825  # more is refused by some systems

_ALWAYS = ("localhost", "127.0.0.1", "::1")  # the server also talks to itself


class KeyPair(NamedTuple):
    """A private key, and its certificate or public key, as the contents of files."""

    private: bytes
    public: bytes


class Authority(NamedTuple):
    """Vouches for the server: whoever holds its key can pose as the server."""

    key: EllipticCurvePrivateKey
    certificate: x509.Certificate

    def files(self) -> KeyPair:
        """Return key and certificate as files."""
        return _files(self.key, self.certificate)


def make_authority() -> Authority:
    """Make a new authority; its certificate is signed by itself."""
    key, name = generate_private_key(SECP384R1()), _name("cadis deployment authority")
    builder = _builder(key, name, name, AUTHORITY_DAYS, signs_certificates=True)
    return Authority(key, builder.sign(key, hashes.SHA384()))


def make_server(authority: Authority, hosts: Iterable[str]) -> KeyPair:
    """Make a key and a certificate for a server that is called by these names or IP addresses.

    ``localhost`` and its addresses are always among them: Flower's SuperLink starts processes
    that call it there.
    """
    key, name = generate_private_key(SECP384R1()), _name("cadis deployment server")
    names = [_general_name(host) for host in dict.fromkeys((*hosts, *_ALWAYS))]
    issuer = authority.certificate.subject
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    certificate = (
        _builder(key, name, issuer, SERVER_DAYS, signs_certificates=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(signer, critical=False)
        .sign(authority.key, hashes.SHA384())
    )
    return _files(key, certificate)


def make_site() -> KeyPair:
    """Make the key by which a site is known; Flower reads both halves as OpenSSH writes them."""
    key = generate_private_key(SECP384R1())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return KeyPair(private, public + b"\n")


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that nobody else can read, at no moment."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    key: EllipticCurvePrivateKey,
    subject: x509.Name,
    issuer: x509.Name,
    days: int,
    *,
    signs_certificates: bool,
) -> x509.CertificateBuilder:
    start = datetime.now(UTC) - timedelta(days=1)  # clocks of sites may be slow
    usage = x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
    length = 0 if signs_certificates else None
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(signs_certificates, length), critical=True)
        .add_extension(usage, critical=True)
    )


def _files(key: EllipticCurvePrivateKey, certificate: x509.Certificate) -> KeyPair:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(private, certificate.public_bytes(Encoding.PEM))
