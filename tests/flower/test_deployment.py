"""Tests of the folder of a deployment, without processes of Flower."""

import os
import re
import shlex
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

from cadis.errors import CadisError
from cadis.flower.deployment import DeploymentPlan, write_deployment

SITES = ("berlin", "site_2", "St.Gallen-3")
# Replaces Flower's programs: records its name, folder, environment and arguments.
FAKE_PROGRAM = """#!/bin/sh
printf '%s\\n' "$(basename "$0")" "$PWD" "$FLWR_HOME" "$FLWR_TELEMETRY_ENABLED" "$@" >> "$CALLS"
echo "$OUTPUT"
exit "$CODE"
"""


STARTED = 'Successfully started run 7\n"status": '


@pytest.fixture
def app(tmp_path: Path) -> Path:
    folder = tmp_path / "the app"
    (folder / "module" / "__pycache__").mkdir(parents=True)
    for name in ("pyproject.toml", "module/client.py", "module/__pycache__/client.pyc"):
        (folder / name).write_text("")
    return folder


@pytest.fixture
def folder(tmp_path: Path, app: Path) -> Path:
    return write_deployment(tmp_path / "a deployment", DeploymentPlan(SITES, port=8400), app)


def run_script(
    script: Path, *arguments: str, output: str = f'{STARTED}"finished:completed"', code: int = 0
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run a script with fake programs of Flower; return its result and the recorded calls."""
    programs = script.parent / "fake-programs"
    programs.mkdir(exist_ok=True)
    for name in ("flwr", "flower-superlink", "flower-supernode"):
        (programs / name).write_text(FAKE_PROGRAM)
        (programs / name).chmod(0o755)
    calls = programs / "calls"
    calls.unlink(missing_ok=True)
    environment = os.environ | {
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CADIS_GATEWAY": "separate",
        "CALLS": str(calls),
        "OUTPUT": output,
        "CODE": str(code),
    }
    result = subprocess.run(
        [script, *arguments], env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    return result, calls.read_text().splitlines() if calls.exists() else []


def test_files_of_the_folder(folder: Path) -> None:
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    site_files = ("ca.crt", "start.sh", "supernode.key", "supernode.pub")
    server_files = ("ca.crt", "server.crt", "server.key", "start.sh")
    assert names == {
        "README.md",
        *("app/pyproject.toml", "app/module/client.py"),
        "ca/ca.key",
        *(f"{server}/{name}" for server in ("gateway", "superlink") for name in server_files),
        "gateway/nginx.conf",
        *(f"sites/{site}/{name}" for site in SITES for name in site_files),
        *(f"flower/{name}" for name in ("ca.crt", "config.toml", "environment.sh")),
        *("register.sh", "run.sh", "resume.sh"),
    }
    assert (folder / "runs").is_dir()


def test_keys_are_readable_by_their_owner_only(folder: Path) -> None:
    keys = list(folder.rglob("*.key"))
    assert len(keys) == 3 + len(SITES)
    for key in keys:
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "sites").stat().st_mode) == 0o700


def test_public_keys_match_private_keys(folder: Path) -> None:
    authority = x509.load_pem_x509_certificate((folder / "flower" / "ca.crt").read_bytes())
    for name in ("gateway", "superlink"):
        server = x509.load_pem_x509_certificate((folder / name / "server.crt").read_bytes())
        server.verify_directly_issued_by(authority)
    key = load_pem_private_key((folder / "ca" / "ca.key").read_bytes(), None)
    assert key.public_key() == authority.public_key()
    publics = set()
    for site in SITES:
        site_folder = folder / "sites" / site
        private = load_ssh_private_key((site_folder / "supernode.key").read_bytes(), None)
        public = (site_folder / "supernode.pub").read_bytes()
        assert isinstance(private, EllipticCurvePrivateKey)
        assert isinstance(private.curve, SECP384R1)
        assert private.public_key() == load_ssh_public_key(public)
        assert (site_folder / "ca.crt").read_bytes() == (folder / "flower" / "ca.crt").read_bytes()
        publics.add(public)
    assert len(publics) == len(SITES)


def test_scripts_are_valid_and_readme_shows_their_commands(folder: Path) -> None:
    readme = (folder / "README.md").read_text()
    assert "$" not in re.sub(r"\$out|\$PWD|\$sites", "", readme)
    scripts = list(folder.rglob("*.sh"))
    assert len(scripts) == 6 + len(SITES)
    for script in scripts:
        subprocess.run(["sh", "-n", script], check=True)
    names = ("superlink/start.sh", "gateway/start.sh", "sites/berlin/start.sh", "run.sh")
    for name in (*names, "resume.sh"):
        text = (folder / name).read_text()
        pattern = (
            r"^(?:exec )?((?:flower-|flwr run|python -m cadis\.flower\.gateway).*?) "
            r'"\$@"(?: \| check_run)?$'
        )
        command = re.search(pattern, text, re.M | re.S)
        assert command is not None
        assert command[1] in readme


def test_server_starts_in_its_folder(folder: Path) -> None:
    _, (name, cwd, home, telemetry, *options) = run_script(
        folder / "superlink" / "start.sh", "--log-file", "a b"
    )
    assert (name, telemetry) == ("flower-superlink", "0")
    assert (cwd, home) == (str(folder / "superlink"), str(folder / "superlink" / "home"))
    expected = (
        "--host 127.0.0.1 --port 8401 --ssl-ca-certfile ca.crt --ssl-certfile server.crt "
        "--ssl-keyfile server.key --enable-supernode-auth --database state.db "
        "--disable-runtime-dependency-installation --log-file 'a b'"
    )
    assert options == shlex.split(expected)


def test_each_site_has_its_own_port_and_data(folder: Path) -> None:
    data = "images='/data/my pills'"
    for number, site in enumerate(SITES, 1):
        script = folder / "sites" / site / "start.sh"
        _, (name, cwd, _, _, *options) = run_script(script, "--node-config", data)
        assert (name, cwd) == ("flower-supernode", str(script.parent))
        assert options[options.index("--port") + 1] == str(8401 + number)
        assert options[options.index("--superlink") + 1] == "127.0.0.1:8400"
        assert [o for o in options if o == "--node-config"] == ["--node-config"]
        assert options[-1] == data


def test_each_site_is_registered_under_its_name(folder: Path) -> None:
    result, called = run_script(folder / "register.sh")
    assert result.returncode == 0
    text = " ".join(called)
    for site in SITES:
        key = f"sites/{site}/supernode.pub"
        assert f"supernode register {key} deployment --name {site}" in text
        assert f"{site} is registered." in result.stdout


def test_repeated_registration_is_not_an_error_but_others_are(folder: Path) -> None:
    result, _ = run_script(
        folder / "register.sh", output="[code: 23] Public key already in use.", code=1
    )
    assert result.returncode == 0
    assert result.stdout.count("is already registered.") == len(SITES)
    result, _ = run_script(folder / "register.sh", output="no connection", code=1)
    assert result.returncode == 1
    assert "no connection" in result.stderr


def test_run_uses_a_new_folder_and_all_sites(folder: Path) -> None:
    result, called = run_script(folder / "run.sh", "--run-config", "rounds=5")
    assert result.returncode == 0
    name, cwd, home, _, *options = called[:12]
    assert (name, cwd, home) == ("flwr", str(folder), str(folder / "flower"))
    assert options[:5] == ["run", "app", "deployment", "--stream", "--run-config"]
    out = re.escape(str(folder / "runs"))
    assert re.fullmatch(rf"out='{out}/[\d-]+' clients=3", options[5])
    assert options[6:] == ["--run-config", "rounds=5"]
    (options_file,) = (folder / "runs").glob("*.options")
    assert options_file.read_text() == "--run-config\nrounds=5\n"


def test_runs_that_start_in_the_same_second_have_different_folders(folder: Path) -> None:
    outputs = [run_script(folder / "run.sh")[0].stdout for _ in range(2)]
    assert len({text.partition("Results: ")[2].splitlines()[0] for text in outputs}) == 2


def test_folder_that_cannot_be_created_is_an_error(folder: Path) -> None:
    (folder / "runs").rmdir()
    (folder / "runs").write_text("in the way")
    result, called = run_script(folder / "run.sh")
    assert (result.returncode, called) == (1, [])
    assert "runs" in result.stderr


def test_failed_run_has_exit_code_1(folder: Path) -> None:
    run, failed = folder / "runs" / "2026-01-02-000000", f'{STARTED}"finished:failed"'
    (run / "checkpoint").mkdir(parents=True)
    result, _ = run_script(folder / "resume.sh", output=failed)
    assert "The run failed before its first round." in result.stderr
    (run / "history.jsonl").write_text("{}\n")  # one round
    result, called = run_script(folder / "resume.sh", output=failed)
    assert result.returncode == 1
    assert f"Resume it with: ./resume.sh '{run}'" in result.stderr
    assert stat.S_IMODE((folder / "runs").stat().st_mode) == 0o700
    result, _ = run_script(folder / "run.sh", "--run-config", "rounds=5", output=failed)
    assert result.returncode == 1
    assert "The run failed before its first round." in result.stderr
    assert list((folder / "runs").iterdir()) == [run]  # resume.sh would not find another one
    assert called[-6:-1] == ["list", "deployment", "--run-id", "7", "--format"]
    result, _ = run_script(folder / "run.sh", output="no connection", code=1)
    assert result.returncode == 1
    assert "No run was started" in result.stderr
    assert not list(folder.glob("flower/run-*.log"))


def test_resume_continues_the_latest_run_or_the_given_one(folder: Path) -> None:
    result, called = run_script(folder / "resume.sh")
    assert (result.returncode, called) == (2, [])
    assert "There is no run to resume" in result.stderr
    for name in ("2026-01-02-000000", "2026-01-10-000000"):
        (folder / "runs" / name / "checkpoint").mkdir(parents=True)
    (folder / "runs" / "2026-02-01-000000").mkdir()  # it has no checkpoint
    expected = "out='{}' resume=true clients=3"
    _, called = run_script(folder / "resume.sh", "--run-config", "rounds=5")
    assert expected.format(folder / "runs" / "2026-01-10-000000") in called
    assert "rounds=5" in called
    (folder / "runs" / "2026-01-02-000000.options").write_text("--run-config\nlr=1 seed='a b'\n")
    _, called = run_script(
        folder / "resume.sh", "runs/2026-01-02-000000", "--run-config", "rounds=5"
    )
    position = called.index(expected.format(folder / "runs" / "2026-01-02-000000"))
    options = ["--run-config", "lr=1 seed='a b'", "--run-config", "rounds=5"]
    assert called[position + 1 : position + 5] == options


def test_folder_can_be_moved(folder: Path) -> None:
    def read_certificate_path(path: Path) -> str:
        config = tomllib.loads((path / "flower" / "config.toml").read_text())
        assert config["superlink"]["default"] == "deployment"
        assert config["superlink"]["deployment"]["address"] == "127.0.0.1:8401"
        return str(config["superlink"]["deployment"]["root-certificates"])

    assert read_certificate_path(folder) == str(folder / "flower" / "ca.crt")
    moved = folder.rename(folder.with_name("moved"))
    run_script(moved / "register.sh")
    assert read_certificate_path(moved) == str(moved / "flower" / "ca.crt")


def test_only_the_gateway_has_the_name_of_the_server(tmp_path: Path, app: Path) -> None:
    """Code of a run can read the other key, and must not be able to impersonate the server."""
    plan = DeploymentPlan(("one",), "flower.example.org")
    folder = write_deployment(tmp_path / "d", plan, app)
    for name, has_host in (("gateway", True), ("superlink", False)):
        text = (folder / name / "server.crt").read_bytes()
        names = x509.load_pem_x509_certificate(text).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
        hosts = names.value.get_values_for_type(x509.DNSName)
        assert ("flower.example.org" in hosts) == has_host
        assert "localhost" in hosts


@pytest.mark.parametrize(
    ("host", "bind", "address"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1:8000"),
        ("localhost", "localhost", "localhost:8000"),
        ("::1", "::1", "[::1]:8000"),
        ("10.0.0.7", "0.0.0.0", "10.0.0.7:8000"),
        ("flower.example.org", "0.0.0.0", "flower.example.org:8000"),
        ("fd00::2", "::", "[fd00::2]:8000"),
    ],
)
def test_addresses_of_the_server(host: str, bind: str, address: str) -> None:
    plan = DeploymentPlan(("one",), host)
    assert (plan.bind_address, plan.address) == (bind, address)


INVALID_SITES = [(), ("a b",), ("",), ("../x",), ("-a",), (".",), ("a", "a"), ("a", "A"), ("ä",)]
INVALID_HOSTS = [
    "",
    "http://a",
    "a:80",
    "a b",
    "a'",
    "300.1.1.1",
    "0.0.0.0",
    "::",
    "a..b",
    "-a",
    "a\n",
]


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        *(({"sites": sites}, "site") for sites in INVALID_SITES),
        *(({"host": host}, "--host") for host in INVALID_HOSTS),
        *(({"port": port}, "--port must be from 1 to 65532") for port in (0, 65533, 70000)),
    ],
)
def test_invalid_plan_is_an_error(plan: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CadisError, match=sentence):
        DeploymentPlan(**{"sites": ("a", "b"), **plan})


def test_existing_files_are_not_overwritten(folder: Path, tmp_path: Path, app: Path) -> None:
    before = (folder / "ca" / "ca.key").read_bytes()
    plan = DeploymentPlan(("a",))
    for path, sentence in (
        (folder, "is not empty"),
        (folder / "README.md", "is a file"),
        (tmp_path / "it's", "contains a quote"),
        (folder / "README.md" / "below", "Cannot write"),
    ):
        with pytest.raises(CadisError, match=sentence):
            write_deployment(path, plan, app)
    assert (folder / "ca" / "ca.key").read_bytes() == before
    with pytest.raises(CadisError, match="The Flower app is missing"):
        write_deployment(tmp_path / "new", plan, tmp_path / "no app")
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir()
    assert write_deployment(tmp_path / "empty", plan, app) == tmp_path / "empty"
