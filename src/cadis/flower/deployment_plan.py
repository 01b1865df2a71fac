"""What a deployment is to be: its sites, and where its server is; wrong wishes are refused."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from cadis.errors import CadisError

_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}\.)*(?!\d+$){_LABEL}")  # its last part is not a number
_LAST_PORT = 65535


@dataclass(frozen=True)
class DeploymentPlan:
    """Sites, and the server they call.

    Attributes:
        sites: the names of the sites, in their order.
        host: name or IP address by which all call the server.
        port: the server's port; the sites' own, on their machines, are the next ones.
    """

    sites: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000

    def __post_init__(self) -> None:
        _check_sites(self.sites)
        _check_host(self.host)
        last = _LAST_PORT - len(self.sites)
        if not 1 <= self.port <= last:
            raise CadisError(f"--port must be from 1 to {last}: the sites use the ports after it.")

    @property
    def address(self) -> str:
        """Where sites and the operator call."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def bind(self) -> str:
        """Where the server listens: everywhere, unless it is for this machine only."""
        if self.is_local:
            return self.host
        return "::" if ":" in self.host else "0.0.0.0"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can call the server."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    def site_port(self, site: str) -> int:
        """A port of each site's own, so that several can be on one machine."""
        return self.port + 1 + self.sites.index(site)


def _check_sites(sites: Sequence[str]) -> None:
    if not sites:
        raise CadisError("A deployment needs at least one site.")
    for site in sites:
        if not _SITE.fullmatch(site):
            raise CadisError(
                f"The site name {site!r} must be letters, digits, '-', '_' and '.', and begin "
                "with a letter or a digit."
            )
    folded = [site.casefold() for site in sites]  # some file systems know no capitals
    for number, site in enumerate(sites):
        if site.casefold() in folded[:number]:
            raise CadisError(f"The site name {site!r} is given twice; each site needs its own.")


def _check_host(host: str) -> None:
    try:
        address = ip_address(host)
    except ValueError:
        if len(host) > 253 or not _HOST.fullmatch(host):
            raise CadisError(
                f"--host {host!r} must be a host name or an IP address, without port or scheme."
            ) from None
        return
    if address.is_unspecified or "%" in host:
        raise CadisError(
            f"--host {host} is no address that a site can call; give the server's own."
        )
