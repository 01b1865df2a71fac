"""Plan of a deployment, and its commands and shell scripts."""

import re
from dataclasses import dataclass
from ipaddress import ip_address

from cadis.errors import CadisError

_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# Parts of a host name between dots; the last one is not a number.
_HOST_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:{_HOST_LABEL}\.)*(?!\d+$){_HOST_LABEL}")
_LAST_PORT = 65535
SUPERLINK_HOST = "127.0.0.1"

NO_TELEMETRY = "FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1"

VERSION_COMMAND = "python -m cadis.flower.version"
"""Command that fails if the installed Flower is not supported."""

SCRIPT_HEADER = f"""#!/bin/sh
# %s
set -eu
CDPATH= cd -- "$(dirname -- "$0")"
export {NO_TELEMETRY}
{VERSION_COMMAND}
"""

STATUS_COMMAND = "flwr list deployment --run-id RUN-ID --format json"
RUN_COMMAND = """flwr run app deployment --stream \\
    --run-config "out='$out' clients=$sites\""""
"""Command that trains. ``$out`` is an absolute path, because the app runs in another folder."""
RESUME_COMMAND = RUN_COMMAND.replace("'$out'", "'$out' resume=true")


@dataclass(frozen=True)
class DeploymentPlan:
    """Names of the sites and address of the server.

    Attributes:
        sites: names of the sites.
        host: host name or IP address of the server.
        port: port of the server for sites. The SuperLink uses the next port, on 127.0.0.1 only.
            Site number n uses the port ``port + 1 + n`` on its own machine.

    Example:
        >>> DeploymentPlan(("berlin", "boston"), "flower.example.org").address
        'flower.example.org:8000'
    """

    sites: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000

    def __post_init__(self) -> None:
        _check_sites(self.sites)
        _check_host(self.host)
        last = _LAST_PORT - 1 - len(self.sites)
        if not 1 <= self.port <= last:
            raise CadisError(
                f"--port must be from 1 to {last}, because the SuperLink and the sites use the "
                "next ports."
            )

    @property
    def address(self) -> str:
        """Address to which sites connect: ``host:port``."""
        return join_address(self.host, self.port)

    @property
    def superlink_port(self) -> int:
        """Port of the SuperLink, to which the gateway and the operator connect."""
        return self.port + 1

    @property
    def superlink_address(self) -> str:
        """Address of the SuperLink, which other machines cannot reach."""
        return join_address(SUPERLINK_HOST, self.superlink_port)

    @property
    def bind_address(self) -> str:
        """Address on which the gateway listens: all interfaces, unless ``host`` is local."""
        if self.is_local:
            return self.host
        return "::" if ":" in self.host else "0.0.0.0"

    @property
    def is_local(self) -> bool:
        """Return whether the server accepts connections from this machine only."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    def get_site_port(self, site: str) -> int:
        """Return the port of a site; ports differ, so that sites can share a machine."""
        return self.superlink_port + 1 + self.sites.index(site)


def join_address(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _check_sites(sites: tuple[str, ...]) -> None:
    if not sites:
        raise CadisError("A deployment needs at least one site.")
    seen: set[str] = set()
    for site in sites:
        if not _SITE.fullmatch(site):
            raise CadisError(
                f"The site name {site!r} must consist of letters, digits, '-', '_' and '.', and "
                "start with a letter or a digit."
            )
        if site.casefold() in seen:  # some file systems ignore case
            raise CadisError(
                f"The site name {site!r} is given twice; each site needs its own name."
            )
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
        raise CadisError(f"Sites cannot connect to --host {host}; give the address of the server.")


def make_superlink_command(plan: DeploymentPlan) -> str:
    """Return the command that starts the SuperLink; it installs no packages during a run.

    It uses TLS although only this machine can connect, because Flower checks the keys of sites only
    with TLS.
    """
    return f"""flower-superlink --host {SUPERLINK_HOST} --port {plan.superlink_port} \\
    --ssl-ca-certfile ca.crt --ssl-certfile server.crt --ssl-keyfile server.key \\
    --enable-supernode-auth --database state.db \\
    --disable-runtime-dependency-installation"""


def make_supernode_command(plan: DeploymentPlan, site: str) -> str:
    """Return the command that starts a site.

    It has no --node-config, because the site adds one, and Flower uses only the last.
    """
    return f"""flower-supernode --superlink {plan.address} \\
    --root-certificates ca.crt --auth-supernode-private-key supernode.key \\
    --host 127.0.0.1 --port {plan.get_site_port(site)}"""


def make_register_command(site: str) -> str:
    """Return the command that registers the public key of a site with the name of the site."""
    return f'flwr supernode register "sites/{site}/supernode.pub" deployment --name "{site}"'


def make_superlink_script(plan: DeploymentPlan) -> str:
    """Return the content of ``superlink/start.sh``."""
    command = make_superlink_command(plan)
    purpose = "Start the server. Arguments are passed on to flower-superlink. Ctrl-C stops it."
    return (
        SCRIPT_HEADER % purpose
        + f"""export FLWR_HOME="$PWD/home"
# With CADIS_GATEWAY=separate, another user or nginx runs the gateway.
if [ "${{CADIS_GATEWAY:-}}" != separate ]; then
    ../gateway/start.sh --parent $$ &
fi
exec {command} "$@"
"""
    )


def make_supernode_script(plan: DeploymentPlan, site: str) -> str:
    """Return the content of ``sites/<name>/start.sh``."""
    command = make_supernode_command(plan, site)
    return (
        SCRIPT_HEADER % f"Start the site {site}. Name its data with --node-config. Ctrl-C stops it."
        + f'export FLWR_HOME="$PWD/home" CADIS_STATE="$PWD/state"\nexec {command} "$@"\n'
    )


def make_connection_config(address: str, certificate: str) -> str:
    """Return the content of ``flower/config.toml``; Flower requires an absolute path."""
    return f"""[superlink]
default = "deployment"

[superlink.deployment]
address = "{address}"
root-certificates = '{certificate}'
"""


def make_environment_script(plan: DeploymentPlan) -> str:
    """Return the content of ``flower/environment.sh``, which the operator's scripts source."""
    status = STATUS_COMMAND.replace("RUN-ID", '"$id"')
    return f"""# register.sh, run.sh and resume.sh source this file in the folder of the deployment.
export FLWR_HOME="$PWD/flower" PYTHONUNBUFFERED=1
# Flower requires an absolute path to the certificate: rewrite it if the folder was moved.
if ! grep -qsF "'$PWD/flower/ca.crt'" flower/config.toml; then
    cat > flower/config.toml <<END
{make_connection_config(plan.superlink_address, "$PWD/flower/ca.crt")}END
fi
sites=$(($(ls -d sites/*/ | wc -l)))
# Usage: flwr run ... | check_run. Print what "flwr run" prints, and exit with 1 if the run failed,
# because "flwr run" itself exits with 0 even then.
check_run() {{
    log="flower/run-$$.log"
    tee "$log"
    id=$(sed -n 's/^Successfully started run \\([0-9]*\\).*/\\1/p' "$log")
    rm -f "$log"
    if [ -z "$id" ]; then
        echo "No run was started." >&2
        remove_empty_run || :
    elif {status} | grep -q '"status": "finished:completed"'; then
        return
    elif remove_empty_run || [ ! -s "$out/history.jsonl" ]; then
        echo "The run failed before its first round." >&2
    else
        echo "The run did not complete. Resume it with: ./resume.sh '$out'" >&2
    fi
    exit 1
}}
# Delete the folder of a run without rounds, which cannot be resumed.
remove_empty_run() {{
    rmdir "$out" 2>/dev/null && rm -f "$out.options"
}}
# Ctrl-C ends the log output; the run continues.
trap 'rm -f "flower/run-$$.log"
if [ -n "${{out:-}}" ]; then
    echo "The run continues. Show its log: FLWR_HOME=$FLWR_HOME flwr log RUN-ID"
    echo "Stop it: FLWR_HOME=$FLWR_HOME flwr stop RUN-ID"
fi
exit 130' INT
"""


REGISTER_SCRIPT = (
    SCRIPT_HEADER
    % "Register the public keys of the sites at the server. You can repeat this at any time."
    + f""". ./flower/environment.sh
for folder in sites/*/; do
    site=$(basename "$folder")
    if output=$({make_register_command("$site")} 2>&1); then
        echo "$site is registered."
    else
        case $output in
        *"[code: 23]"*) echo "$site is already registered." ;;
        *) printf '%s\\n' "$site could not be registered." "$output" >&2; exit 1 ;;
        esac
    fi
done
"""
)
"""Script that registers all sites; a site that is already registered is not an error."""

RUN_SCRIPT = (
    SCRIPT_HEADER % "Train. Arguments are passed on to flwr run, such as --run-config 'rounds=50'."
    + f""". ./flower/environment.sh
mkdir -p -m 700 runs
until out="$PWD/runs/$(date +%Y-%m-%d-%H%M%S)" && mkdir -m 700 "$out" 2>/dev/null; do
    [ -d "$out" ] || mkdir -m 700 "$out"  # shows the error and exits
    sleep 1  # another run started in the same second
done
echo "Results: $out"
for option; do printf '%s\\n' "$option"; done > "$out.options"  # for resume.sh
{RUN_COMMAND} "$@" | check_run
"""
)

RESUME_SCRIPT = (
    SCRIPT_HEADER % "Resume the latest run, or the run in the folder that is the first argument."
    + f""". ./flower/environment.sh
case ${{1:-}} in
'' | -*)
    folder=$(ls -d runs/*/checkpoint/ 2>/dev/null | tail -n 1)
    folder=${{folder%checkpoint/}}
    ;;
*) folder=$1; shift ;;
esac
if [ ! -d "$folder" ]; then
    echo "There is no run to resume in ${{folder:-runs}}." >&2
    exit 2
fi
out=$(CDPATH= cd -- "$folder" && pwd)
echo "Results: $out"
# First the options of the run, then the new options, which take precedence.
new=$#
if [ -f "$out.options" ]; then
    while IFS= read -r option; do set -- "$@" "$option"; done < "$out.options"
fi
while [ "$new" -gt 0 ]; do
    set -- "$@" "$1"
    shift
    new=$((new - 1))
done
{RESUME_COMMAND} "$@" | check_run
"""
)
"""Script that resumes a run. Folder names are dates, so the last name is the latest run."""
