"""Tests of certificates and keys, with real TLS handshakes."""

import socket
import ssl
import stat
import threading
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from cryptography import x509

from cadis.flower.certificates import (
    CertificateAuthority,
    make_authority,
    make_server_key,
    write_private_file,
)

HOSTS = ("flower.example.org", "10.1.2.3", "fd00::2")


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return make_authority()


def do_handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Do a TLS handshake between two threads; raise the error of the client."""
    client_socket, server_socket = socket.socketpair()

    def accept() -> None:
        try:
            server.wrap_socket(server_socket, server_side=True).close()
        except (OSError, ssl.SSLError):
            server_socket.close()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        with client_socket, client.wrap_socket(client_socket, server_hostname=name):
            pass
    finally:
        thread.join()


def make_contexts(
    folder: Path, authority: CertificateAuthority, trusted: CertificateAuthority
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a server with a certificate of ``authority``, and a client that trusts ``trusted``."""
    pair = make_server_key(authority, HOSTS)
    (folder / "server.key").write_bytes(pair.private)
    (folder / "server.crt").write_bytes(pair.public)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default of later Pythons
    client.load_verify_locations(cadata=trusted.to_files().public.decode())
    return server, client


@pytest.mark.parametrize("name", [*HOSTS, "localhost", "127.0.0.1", "::1"])
def test_client_accepts_the_server_under_its_names(
    tmp_path: Path, authority: CertificateAuthority, name: str
) -> None:
    do_handshake(*make_contexts(tmp_path, authority, authority), name)


@pytest.mark.parametrize("name", ["other.example.org", "10.1.2.4", "x.flower.example.org"])
def test_client_refuses_the_server_under_other_names(
    tmp_path: Path, authority: CertificateAuthority, name: str
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        do_handshake(*make_contexts(tmp_path, authority, authority), name)


def test_client_with_another_authority_refuses_the_server(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        do_handshake(*make_contexts(tmp_path, authority, make_authority()), HOSTS[0])


def test_validity_and_purpose_of_certificates(authority: CertificateAuthority) -> None:
    root = authority.certificate
    server = x509.load_pem_x509_certificate(make_server_key(authority, ["a.example.org"]).public)
    assert root.not_valid_after_utc - root.not_valid_before_utc == timedelta(days=3650)
    assert server.not_valid_after_utc - server.not_valid_before_utc == timedelta(days=825)
    assert root.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    server.verify_directly_issued_by(root)


def test_private_file_is_readable_by_its_owner_only_and_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_private_file(path, b"secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write_private_file(path, b"other")
    assert path.read_bytes() == b"secret"
