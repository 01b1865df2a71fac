"""The sites and the server of a deployment, its commands, and the small scripts around them."""

import re
from dataclasses import dataclass
from ipaddress import ip_address

from cadis.errors import CadisError

_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}\.)*(?!\d+$){_LABEL}")  # its last part is not a number
_LAST_PORT = 65535

QUIET = "FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1"  # sites phone nobody

_HEAD = f"""#!/bin/sh
# %s
set -eu
CDPATH= cd -- "$(dirname -- "$0")"
export {QUIET}
"""

CHECK = "flwr list deployment --run-id RUN-ID --format json"
RUN = """flwr run app deployment --stream \\
    --run-config "out='$out' clients=$sites\""""
"""Train; ``$out`` is an absolute path, as the app runs in a folder of the server's."""
RESUME = RUN.replace("'$out'", "'$out' resume=true")


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


def _check_sites(sites: tuple[str, ...]) -> None:
    if not sites:
        raise CadisError("A deployment needs at least one site.")
    seen: set[str] = set()
    for site in sites:
        if not _SITE.fullmatch(site):
            raise CadisError(
                f"The site name {site!r} must be letters, digits, '-', '_' and '.', and begin "
                "with a letter or a digit."
            )
        if site.casefold() in seen:  # some file systems know no capitals
            raise CadisError(f"The site name {site!r} is given twice; each site needs its own.")
        seen.add(site.casefold())


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


def superlink_command(plan: DeploymentPlan) -> str:
    """The server. What the app needs is installed beforehand: nothing is while it runs."""
    return f"""flower-superlink --host {plan.bind} --port {plan.port} \\
    --ssl-ca-certfile ca.crt --ssl-certfile server.crt --ssl-keyfile server.key \\
    --enable-supernode-auth --database state.db \\
    --disable-runtime-dependency-installation"""


def supernode_command(plan: DeploymentPlan, site: str) -> str:
    """A site. It has no --node-config: Flower takes the last one only, and that is the site's."""
    return f"""flower-supernode --superlink {plan.address} \\
    --root-certificates ca.crt --auth-supernode-private-key supernode.key \\
    --host 127.0.0.1 --port {plan.site_port(site)}"""


def register_command(site: str) -> str:
    """Make a site's key known under its name."""
    return f'flwr supernode register "sites/{site}/supernode.pub" deployment --name "{site}"'


def superlink_script(plan: DeploymentPlan) -> str:
    """``superlink/start.sh``."""
    command = superlink_command(plan)
    return (
        _HEAD % "The server. More options can be given; Ctrl-C ends it."
        + f'export FLWR_HOME="$PWD/home"\nexec {command} "$@"\n'
    )


def supernode_script(plan: DeploymentPlan, site: str) -> str:
    """``sites/<name>/start.sh``."""
    command = supernode_command(plan, site)
    return (
        _HEAD % f"The site {site}. Its data are given as --node-config; Ctrl-C ends it."
        + f'export FLWR_HOME="$PWD/home" CADIS_STATE="$PWD/state"\nexec {command} "$@"\n'
    )


def connection(address: str, certificate: str) -> str:
    """``flower/config.toml``: Flower demands an absolute path."""
    return f"""[superlink]
default = "deployment"

[superlink.deployment]
address = "{address}"
root-certificates = '{certificate}'
"""


def environment_script(plan: DeploymentPlan) -> str:
    """``flower/environment.sh``, which the operator's scripts read."""
    return f"""# Read by register.sh, run.sh and resume.sh, in the folder of the deployment.
export FLWR_HOME="$PWD/flower" PYTHONUNBUFFERED=1
# Flower demands an absolute path to the certificate: write it anew if the folder was moved.
if ! grep -qsF "'$PWD/flower/ca.crt'" flower/config.toml; then
    cat > flower/config.toml <<END
{connection(plan.address, "$PWD/flower/ca.crt")}END
fi
sites=$(($(ls -d sites/*/ | wc -l)))
# "flwr run" ends with 0 whatever became of the run: ask for its state. What is piped into this
# is shown, too.
check_run() {{
    log="flower/run-$$.log"
    tee "$log"
    id=$(sed -n 's/^Successfully started run \\([0-9]*\\).*/\\1/p' "$log")
    rm -f "$log"
    if [ -z "$id" ]; then
        echo "No run was started." >&2
        forget_run || :
    elif {CHECK.replace("RUN-ID", '"$id"')} | grep -q '"status": "finished:completed"'; then
        return
    elif forget_run; then
        echo "The run has failed before its first round." >&2
    else
        echo "The run has not completed; go on with it by: ./resume.sh '$out'" >&2
    fi
    exit 1
}}
# A folder that nothing was written to is no run to go on with.
forget_run() {{
    rmdir "$out" 2>/dev/null && rm -f "$out.options"
}}
# Ctrl-C ends the display of a run, not the run.
trap 'rm -f "flower/run-$$.log"
if [ -n "${{out:-}}" ]; then
    echo "The run goes on. Show it: FLWR_HOME=$FLWR_HOME flwr log RUN-ID; end it: flwr stop RUN-ID"
fi
exit 130' INT
"""


REGISTER_SCRIPT = (
    _HEAD % "Make the sites' public keys known to the server; safe to run again."
    + f""". ./flower/environment.sh
for folder in sites/*/; do
    site=$(basename "$folder")
    if answer=$({register_command("$site")} 2>&1); then
        echo "$site is registered."
    else
        case $answer in
        *"[code: 23]"*) echo "$site was registered before." ;;
        *) printf '%s\\n' "$site could not be registered." "$answer" >&2; exit 1 ;;
        esac
    fi
done
"""
)
"""A site that is known already is no error."""

RUN_SCRIPT = (
    _HEAD % "Train. More options, such as --run-config 'rounds=50', can be given."
    + f""". ./flower/environment.sh
mkdir -p runs
until out="$PWD/runs/$(date +%Y-%m-%d-%H%M%S)" && mkdir "$out" 2>/dev/null; do
    [ -d "$out" ] || mkdir "$out"  # which says why it cannot be made, and ends this
    sleep 1  # another run began in this very second
done
echo "Results: $out"
for option; do printf '%s\\n' "$option"; done > "$out.options"  # for resume.sh
{RUN} "$@" | check_run
"""
)

RESUME_SCRIPT = (
    _HEAD % "Go on with the latest run, or with the one whose folder comes first: runs/NAME."
    + f""". ./flower/environment.sh
case ${{1:-}} in
'' | -*)
    folder=$(ls -d runs/*/checkpoint/ 2>/dev/null | tail -n 1)
    folder=${{folder%checkpoint/}}
    ;;
*) folder=$1; shift ;;
esac
if [ ! -d "$folder" ]; then
    echo "There is no run to go on with in ${{folder:-runs}}." >&2
    exit 2
fi
out=$(CDPATH= cd -- "$folder" && pwd)
echo "Results: $out"
# The options that the run had, then those given now, which win.
new=$#
if [ -f "$out.options" ]; then
    while IFS= read -r option; do set -- "$@" "$option"; done < "$out.options"
fi
while [ "$new" -gt 0 ]; do
    set -- "$@" "$1"
    shift
    new=$((new - 1))
done
{RESUME} "$@" | check_run
"""
)
"""Names of runs are dates, so that the last by name is the latest."""
