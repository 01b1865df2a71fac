"""A folder with everything to run a federation on machines of its own, by Flower with TLS."""

import shutil
from datetime import UTC, datetime, timedelta
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from cadis.errors import CadisError
from cadis.flower import deployment_scripts as scripts
from cadis.flower.certificates import (
    SERVER_DAYS,
    make_authority,
    make_server,
    make_site,
    write_private,
)
from cadis.flower.deployment_scripts import DeploymentPlan

__all__ = ["DeploymentPlan", "write_deployment"]


def write_deployment(folder: Path, plan: DeploymentPlan, app: Traversable | None = None) -> Path:
    """Write the folder, and return its absolute path; one that holds anything is refused.

    Args:
        folder: where to.
        plan: sites and server.
        app: the Flower app; that of this package if none.
    """
    folder = folder.resolve()
    app = files("cadis.flower") / "app" if app is None else app
    try:
        _check_folder(folder)
        if not app.is_dir():
            raise CadisError("This installation of cadis lacks its Flower app; install it again.")
        folder.mkdir(parents=True, exist_ok=True)
        with as_file(app) as path:
            left_out = shutil.ignore_patterns("__pycache__", "*.pyc", "runs")
            shutil.copytree(path, folder / "app", ignore=left_out)
        _write_keys(folder, plan)
        _write_texts(folder, plan)
    except OSError as error:
        reason = error.strerror or error
        raise CadisError(f"Cannot write the deployment to {folder}: {reason}.") from error
    return folder


def _check_folder(folder: Path) -> None:
    if "'" in str(folder) or "\n" in str(folder):
        raise CadisError(f"Flower cannot read a path with quotes such as {folder}; take another.")
    if folder.exists() and not folder.is_dir():
        raise CadisError(f"{folder} is a file; give the name of a new folder.")
    if folder.is_dir() and any(folder.iterdir()):
        raise CadisError(f"{folder} is not empty, and nothing is overwritten; give a new folder.")


def _write_keys(folder: Path, plan: DeploymentPlan) -> None:
    authority = make_authority()
    server = make_server(authority, [plan.host])
    trusted = authority.files()
    for name in ("ca", "superlink", "sites", *(f"sites/{site}" for site in plan.sites)):
        (folder / name).mkdir(mode=0o700)
    write_private(folder / "ca" / "ca.key", trusted.private)
    write_private(folder / "superlink" / "server.key", server.private)
    (folder / "superlink" / "server.crt").write_bytes(server.public)
    (folder / "flower").mkdir()
    for place in (folder / "flower", folder / "superlink"):
        (place / "ca.crt").write_bytes(trusted.public)
    for name in plan.sites:
        site, pair = folder / "sites" / name, make_site()
        write_private(site / "supernode.key", pair.private)
        (site / "supernode.pub").write_bytes(pair.public)
        (site / "ca.crt").write_bytes(trusted.public)


def _write_texts(folder: Path, plan: DeploymentPlan) -> None:
    certificate = str(folder / "flower" / "ca.crt")
    texts = {
        "README.md": _readme(plan),
        "flower/config.toml": scripts.connection(plan.address, certificate),
        "flower/environment.sh": scripts.environment_script(plan),
    }
    programs = {
        "superlink/start.sh": scripts.superlink_script(plan),
        "register.sh": scripts.REGISTER_SCRIPT,
        "run.sh": scripts.RUN_SCRIPT,
        "resume.sh": scripts.RESUME_SCRIPT,
        **{f"sites/{s}/start.sh": scripts.supernode_script(plan, s) for s in plan.sites},
    }
    for name, text in (texts | programs).items():
        (folder / name).write_text(text, encoding="utf-8")
    for name in programs:
        (folder / name).chmod(0o755)
    (folder / "runs").mkdir()


def _readme(plan: DeploymentPlan) -> str:
    text = (files("cadis.flower") / "deployment.md").read_text(encoding="utf-8")
    return Template(text).substitute(
        sites=", ".join(plan.sites),
        site=plan.sites[0],
        address=plan.address,
        host=plan.host,
        port=plan.port,
        quiet=scripts.QUIET,
        superlink=scripts.superlink_command(plan),
        register=scripts.register_command(plan.sites[0]),
        supernode=scripts.supernode_command(plan, plan.sites[0]),
        run=scripts.RUN,
        resume=scripts.RESUME,
        check=scripts.CHECK,
        days=SERVER_DAYS,
        expires=datetime.now(UTC).date() + timedelta(days=SERVER_DAYS - 2),
    )
