"""``cadis deploy``: create the files of a federation on several machines."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from cadis.errors import CadisError
from cadis.report.console import SafeConsole

_DEFAULT_SITES = 3
_WARNING = (
    "Warning: use a machine or container for this server alone, because each of its users can run "
    "code at every site. Use a firewall or a VPN so that only the sites can connect to port %d of "
    "the server."
)


def init(folder: Path, names: Sequence[str], host: str, port: int, count: int | None = None) -> int:
    """Write the folder of a deployment, and print the next steps.

    The sites have the given names, or are ``count`` sites named site-1, site-2, ...
    """
    if any(find_spec(package) is None for package in ("flwr", "cryptography")):
        raise CadisError("This command needs Flower; install it with: pip install 'cadis[flower]'")
    # Imported here because Flower is an optional dependency.
    from cadis.flower.deployment import DeploymentPlan, write_deployment  # noqa: PLC0415

    if names and count is not None:
        raise CadisError("Use --site once per site, or --sites, not both.")
    sites = tuple(names) or tuple(f"site-{n}" for n in range(1, (count or _DEFAULT_SITES) + 1))
    plan = DeploymentPlan(sites, host, port)
    path = write_deployment(folder, plan)
    lines = (
        f"{path} has the app, and keys and scripts for: {', '.join(plan.sites)}. Next steps:",
        f"  {path}/superlink/start.sh    start the server, at {plan.address}",
        f"  {path}/register.sh    register the sites at the server",
        *(f"  {path}/sites/{site}/start.sh --node-config ...    at {site}" for site in plan.sites),
        f"  {path}/run.sh    train",
        f"{path}/README.md explains which files are secret and which folder belongs to which site.",
        *([] if plan.is_local else [_WARNING % plan.port]),
    )
    for line in lines:
        SafeConsole().print(line, soft_wrap=True, markup=False, highlight=False)
    return 0
