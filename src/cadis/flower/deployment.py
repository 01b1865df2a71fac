"""Write the folder of a deployment: app, keys, certificates, scripts and a README."""

import shutil
from datetime import UTC, datetime, timedelta
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from cadis._io import check_output
from cadis.errors import CadisError
from cadis.flower import deployment_scripts as scripts
from cadis.flower.certificates import (
    SERVER_CERTIFICATE_DAYS,
    make_authority,
    make_server_key,
    make_site_key,
    write_private_file,
)
from cadis.flower.deployment_gateway import (
    make_gateway_command,
    make_gateway_script,
    make_nginx_config,
)
from cadis.flower.deployment_scripts import DeploymentPlan

__all__ = ["DeploymentPlan", "write_deployment"]


def write_deployment(folder: Path, plan: DeploymentPlan, app: Traversable | None = None) -> Path:
    """Write the folder of a deployment.

    Args:
        folder: path of a new or empty folder.
        plan: sites and address of the server.
        app: folder of the Flower app, by default the app of this package.

    Returns:
        The absolute path of the folder.

    Raises:
        CadisError: if the folder is not empty or cannot be written.
    """
    check_output(folder)
    folder = folder.resolve()
    app = files("cadis.flower") / "app" if app is None else app
    try:
        _check_folder(folder)
        if not app.is_dir():
            raise CadisError(
                "The Flower app is missing in this installation of cadis; install cadis again."
            )
        folder.mkdir(parents=True, exist_ok=True)
        with as_file(app) as path:
            ignore = shutil.ignore_patterns("__pycache__", "*.pyc", "runs")
            shutil.copytree(path, folder / "app", ignore=ignore)
        _write_keys(folder, plan)
        _write_texts(folder, plan)
    except OSError as error:
        reason = error.strerror or error
        raise CadisError(f"Cannot write the deployment to {folder}: {reason}.") from error
    return folder


def _check_folder(folder: Path) -> None:
    if "'" in str(folder) or "\n" in str(folder):
        raise CadisError(
            f"Flower cannot read the path {folder}, which contains a quote or a line break; choose "
            "another folder."
        )
    if folder.exists() and not folder.is_dir():
        raise CadisError(f"{folder} is a file; give the path of a new folder.")
    if folder.is_dir() and any(folder.iterdir()):
        raise CadisError(f"{folder} is not empty; give a new or empty folder.")


def _write_keys(folder: Path, plan: DeploymentPlan) -> None:
    authority = make_authority()
    # Only the key of the gateway proves to sites that it is the server.
    servers = {
        "gateway": make_server_key(authority, [plan.host]),
        "superlink": make_server_key(authority, []),
    }
    authority_files = authority.to_files()
    for name in ("ca", *servers, "sites", *(f"sites/{site}" for site in plan.sites)):
        (folder / name).mkdir(mode=0o700)
    write_private_file(folder / "ca" / "ca.key", authority_files.private)
    for name, server in servers.items():
        write_private_file(folder / name / "server.key", server.private)
        (folder / name / "server.crt").write_bytes(server.public)
    (folder / "flower").mkdir()
    for name in ("flower", *servers):
        (folder / name / "ca.crt").write_bytes(authority_files.public)
    for name in plan.sites:
        site, pair = folder / "sites" / name, make_site_key()
        write_private_file(site / "supernode.key", pair.private)
        (site / "supernode.pub").write_bytes(pair.public)
        (site / "ca.crt").write_bytes(authority_files.public)


def _write_texts(folder: Path, plan: DeploymentPlan) -> None:
    certificate = str(folder / "flower" / "ca.crt")
    texts = {
        "README.md": _make_readme(plan),
        "flower/config.toml": scripts.make_connection_config(plan.superlink_address, certificate),
        "flower/environment.sh": scripts.make_environment_script(plan),
        "gateway/nginx.conf": make_nginx_config(plan),
    }
    programs = {
        "superlink/start.sh": scripts.make_superlink_script(plan),
        "gateway/start.sh": make_gateway_script(plan),
        "register.sh": scripts.REGISTER_SCRIPT,
        "run.sh": scripts.RUN_SCRIPT,
        "resume.sh": scripts.RESUME_SCRIPT,
        **{f"sites/{s}/start.sh": scripts.make_supernode_script(plan, s) for s in plan.sites},
    }
    for name, text in (texts | programs).items():
        (folder / name).write_text(text, encoding="utf-8")
    for name in programs:
        (folder / name).chmod(0o755)
    (folder / "runs").mkdir(mode=0o700)


def _make_readme(plan: DeploymentPlan) -> str:
    text = (files("cadis.flower") / "deployment.md").read_text(encoding="utf-8")
    return Template(text).substitute(
        sites=", ".join(plan.sites),
        site=plan.sites[0],
        address=plan.address,
        host=plan.host,
        port=plan.port,
        superlink_address=plan.superlink_address,
        no_telemetry=scripts.NO_TELEMETRY,
        superlink=scripts.make_superlink_command(plan),
        gateway=make_gateway_command(plan),
        register=scripts.make_register_command(plan.sites[0]),
        supernode=scripts.make_supernode_command(plan, plan.sites[0]),
        run=scripts.RUN_COMMAND,
        resume=scripts.RESUME_COMMAND,
        check=scripts.STATUS_COMMAND,
        days=SERVER_CERTIFICATE_DAYS,
        # The validity began a day ago, and its last day is not a whole day.
        expires=datetime.now(UTC).date() + timedelta(days=SERVER_CERTIFICATE_DAYS - 2),
    )
