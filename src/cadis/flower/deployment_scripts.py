"""The commands of a deployment, and the small scripts around them."""

from cadis.flower.deployment_plan import DeploymentPlan

QUIET = "FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1"  # sites phone nobody

_HEAD = f"""#!/bin/sh
# %s
set -eu
CDPATH= cd -- "$(dirname -- "$0")"
export {QUIET}
"""

CHECK = "flwr list deployment --run-id RUN-ID --format json"


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


def run_command(*, resume: bool) -> str:
    """Train; ``$out`` is an absolute path, as the app runs in a folder of the server's."""
    goes_on = " resume=true" if resume else ""
    return f"""flwr run app deployment --stream \\
    --run-config "out='$out'{goes_on} clients=$sites\""""


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


def register_script() -> str:
    """``register.sh``; a site that is known already is no error."""
    command = register_command("$site")
    return (
        _HEAD % "Make the sites' public keys known to the server; safe to run again."
        + f""". ./flower/environment.sh
for folder in sites/*/; do
    site=$(basename "$folder")
    if answer=$({command} 2>&1); then
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


def run_script() -> str:
    """``run.sh``."""
    return (
        _HEAD % "Train. More options, such as --run-config 'rounds=50', can be given."
        + f""". ./flower/environment.sh
mkdir -p runs
until out="$PWD/runs/$(date +%Y-%m-%d-%H%M%S)" && mkdir "$out" 2>/dev/null; do
    [ -d "$out" ] || mkdir "$out"  # which says why it cannot be made, and ends this
    sleep 1  # another run began in this very second
done
echo "Results: $out"
for option; do printf '%s\\n' "$option"; done > "$out.options"  # for resume.sh
{run_command(resume=False)} "$@" | check_run
"""
    )


def resume_script() -> str:
    """``resume.sh``; names of runs are dates, so that the last by name is the latest."""
    return (
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
{run_command(resume=True)} "$@" | check_run
"""
    )
