"""Keys and certificates of a deployment: certificate authority, server and sites.

The certificate authority of the deployment signs the certificate of the server (SuperLink) for TLS.
A site (SuperNode) authenticates with a key that the operator has registered. Neither a network nor
an external program is needed to create them.
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

AUTHORITY_CERTIFICATE_DAYS = 3650
SERVER_CERTIFICATE_DAYS = 825  # some systems reject certificates that are valid longer

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")  # the processes of SuperLink connect to these


class KeyPair(NamedTuple):
    """Contents of two files: a private key, and its certificate or public key."""

    private: bytes
    public: bytes


class CertificateAuthority(NamedTuple):
    """Certificate authority that signs the certificate of the server.

    Anyone who has its key can impersonate the server.
    """

    key: EllipticCurvePrivateKey
    certificate: x509.Certificate

    def to_files(self) -> KeyPair:
        """Return the contents of the files of the key and the certificate."""
        return _to_files(self.key, self.certificate)


def make_authority() -> CertificateAuthority:
    """Create a certificate authority with a self-signed certificate."""
    key, name = generate_private_key(SECP384R1()), _make_name("cadis deployment authority")
    builder = _make_builder(key, name, name, AUTHORITY_CERTIFICATE_DAYS, signs_certificates=True)
    return CertificateAuthority(key, builder.sign(key, hashes.SHA384()))


def make_server_key(authority: CertificateAuthority, hosts: Iterable[str]) -> KeyPair:
    """Create a key and a certificate for a server with these host names or IP addresses.

    ``localhost`` and its addresses are always included.
    """
    key, name = generate_private_key(SECP384R1()), _make_name("cadis deployment server")
    names = [_to_general_name(host) for host in dict.fromkeys((*hosts, *_LOCAL_HOSTS))]
    issuer = authority.certificate.subject
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    certificate = (
        _make_builder(key, name, issuer, SERVER_CERTIFICATE_DAYS, signs_certificates=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(signer, critical=False)
        .sign(authority.key, hashes.SHA384())
    )
    return _to_files(key, certificate)


def make_site_key() -> KeyPair:
    """Create the key pair of a site in the OpenSSH format, which Flower requires."""
    key = generate_private_key(SECP384R1())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return KeyPair(private, public + b"\n")


def write_private_file(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read, even while it is being written."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _make_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _to_general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _make_builder(
    key: EllipticCurvePrivateKey,
    subject: x509.Name,
    issuer: x509.Name,
    days: int,
    *,
    signs_certificates: bool,
) -> x509.CertificateBuilder:
    start = datetime.now(UTC) - timedelta(days=1)  # the clock of a site may be behind
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
    path_length = 0 if signs_certificates else None
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(signs_certificates, path_length), critical=True)
        .add_extension(usage, critical=True)
    )


def _to_files(key: EllipticCurvePrivateKey, certificate: x509.Certificate) -> KeyPair:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(private, certificate.public_bytes(Encoding.PEM))
