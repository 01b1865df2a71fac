"""``cadis deploy``: a federation on machines of its own."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from cadis.errors import CadisError

_DEFAULT_SITES = 3
_WARNING = (
    "Let a firewall or a VPN admit the sites and nobody else to port %d of the server: Flower lets "
    "whoever reaches it run code at every site."
)


def init(
    folder: Path, names: Sequence[str], host: str, port: int, number: int | None = None
) -> int:
    """Write the folder, and tell what to type next."""
    if any(find_spec(package) is None for package in ("flwr", "cryptography")):
        raise CadisError("Install Flower first: pip install 'cadis[flower]'.")
    # Only now: it needs what may not be installed.
    from cadis.flower.deployment import DeploymentPlan, write_deployment  # noqa: PLC0415

    if names and number is not None:
        raise CadisError("Give either --site, once for each site, or --sites, not both.")
    sites = tuple(names) or tuple(f"site-{n}" for n in range(1, (number or _DEFAULT_SITES) + 1))
    plan = DeploymentPlan(sites, host, port)
    place = write_deployment(folder, plan)
    lines = (
        f"{place} has the app, and keys and scripts for: {', '.join(plan.sites)}. Next:",
        f"  {place}/superlink/start.sh    start the server, at {plan.address}",
        f"  {place}/register.sh    make the sites known to it",
        *(f"  {place}/sites/{site}/start.sh --node-config ...    at {site}" for site in plan.sites),
        f"  {place}/run.sh    train",
        f"{place}/README.md says what is secret and which folder goes to which site.",
        *([] if plan.is_local else [_WARNING % plan.port]),
    )
    for line in lines:
        Console().print(line, soft_wrap=True, markup=False, highlight=False)
    return 0
