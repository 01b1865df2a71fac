"""The certificates and keys, as TLS and Flower read them."""

import socket
import ssl
import stat
import threading
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from cryptography import x509

from cadis.flower.certificates import Authority, make_authority, make_server, write_private

HOSTS = ("flower.example.org", "10.1.2.3", "fd00::2")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return make_authority()


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """A TLS handshake between two threads; the client's error is raised."""
    ours, theirs = socket.socketpair()

    def answer() -> None:
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except (OSError, ssl.SSLError):
            theirs.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with ours, client.wrap_socket(ours, server_hostname=name):
            pass
    finally:
        thread.join()


def contexts(
    folder: Path, authority: Authority, trusted: Authority
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server that the authority vouches for, and a client that trusts only one authority."""
    pair = make_server(authority, HOSTS)
    (folder / "server.key").write_bytes(pair.private)
    (folder / "server.crt").write_bytes(pair.public)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default of later Pythons
    client.load_verify_locations(cadata=trusted.files().public.decode())
    return server, client


@pytest.mark.parametrize("name", [*HOSTS, "localhost", "127.0.0.1", "::1"])
def test_the_server_is_believed_under_its_names(
    tmp_path: Path, authority: Authority, name: str
) -> None:
    shake_hands(*contexts(tmp_path, authority, authority), name)


@pytest.mark.parametrize("name", ["other.example.org", "10.1.2.4", "x.flower.example.org"])
def test_and_under_no_other(tmp_path: Path, authority: Authority, name: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        shake_hands(*contexts(tmp_path, authority, authority), name)


def test_nor_by_who_trusts_another_authority_of_the_same_name(
    tmp_path: Path, authority: Authority
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(*contexts(tmp_path, authority, make_authority()), HOSTS[0])


def test_how_long_they_are_valid_and_what_for(authority: Authority) -> None:
    own = authority.certificate
    server = x509.load_pem_x509_certificate(make_server(authority, ["a.example.org"]).public)
    assert own.not_valid_after_utc - own.not_valid_before_utc == timedelta(days=3650)
    assert server.not_valid_after_utc - server.not_valid_before_utc == timedelta(days=825)
    assert own.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    server.verify_directly_issued_by(own)


def test_secrets_are_for_their_owner_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_private(path, b"secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write_private(path, b"other")
    assert path.read_bytes() == b"secret"
