"""The folder of a deployment: what is in it, and what is refused. No process of Flower's."""

import os
import re
import shlex
import stat
import subprocess
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
# Stands for Flower's programs: says by which name, where and with what it was called.
STAND_IN = """#!/bin/sh
printf '%s\\n' "$(basename "$0")" "$PWD" "$FLWR_HOME" "$FLWR_TELEMETRY_ENABLED" "$@" >> "$CALLS"
echo "$ANSWER"
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


def call(
    script: Path, *arguments: str, answer: str = f'{STARTED}"finished:completed"', code: int = 0
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run a script with stand-ins for Flower's programs; what it did, and how they were called."""
    programs = script.parent / "stand-ins"
    programs.mkdir(exist_ok=True)
    for name in ("flwr", "flower-superlink", "flower-supernode"):
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)
    calls = programs / "calls"
    calls.unlink(missing_ok=True)
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "CALLS": str(calls),
        "ANSWER": answer,
        "CODE": str(code),
    }
    done = subprocess.run(
        [script, *arguments], env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    return done, calls.read_text().splitlines() if calls.exists() else []


def test_what_is_in_the_folder(folder: Path) -> None:
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    of_a_site = ("ca.crt", "start.sh", "supernode.key", "supernode.pub")
    assert names == {
        "README.md",
        *("app/pyproject.toml", "app/module/client.py"),
        "ca/ca.key",
        *(f"superlink/{name}" for name in ("ca.crt", "server.crt", "server.key", "start.sh")),
        *(f"sites/{site}/{name}" for site in SITES for name in of_a_site),
        *(f"flower/{name}" for name in ("ca.crt", "config.toml", "environment.sh")),
        *("register.sh", "run.sh", "resume.sh"),
    }
    assert (folder / "runs").is_dir()


def test_secrets_are_for_their_owner(folder: Path) -> None:
    keys = list(folder.rglob("*.key"))
    assert len(keys) == 2 + len(SITES)
    for key in keys:
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "sites").stat().st_mode) == 0o700


def test_keys_belong_together(folder: Path) -> None:
    authority = x509.load_pem_x509_certificate((folder / "flower" / "ca.crt").read_bytes())
    server = x509.load_pem_x509_certificate((folder / "superlink" / "server.crt").read_bytes())
    server.verify_directly_issued_by(authority)
    key = load_pem_private_key((folder / "ca" / "ca.key").read_bytes(), None)
    assert key.public_key() == authority.public_key()
    publics = set()
    for site in SITES:
        place = folder / "sites" / site
        private = load_ssh_private_key((place / "supernode.key").read_bytes(), None)
        public = (place / "supernode.pub").read_bytes()
        assert isinstance(private, EllipticCurvePrivateKey)
        assert isinstance(private.curve, SECP384R1)
        assert private.public_key() == load_ssh_public_key(public)
        assert (place / "ca.crt").read_bytes() == (folder / "flower" / "ca.crt").read_bytes()
        publics.add(public)
    assert len(publics) == len(SITES)


def test_scripts_are_shell_and_show_what_the_readme_shows(folder: Path) -> None:
    readme = (folder / "README.md").read_text()
    assert "$" not in re.sub(r"\$out|\$PWD|\$sites", "", readme)
    scripts = list(folder.rglob("*.sh"))
    assert len(scripts) == 5 + len(SITES)
    for script in scripts:
        subprocess.run(["sh", "-n", script], check=True)
    for name in ("superlink/start.sh", "sites/berlin/start.sh", "run.sh", "resume.sh"):
        text = (folder / name).read_text()
        shown = r'^(?:exec )?((?:flower-|flwr run).*?) "\$@"(?: \| check_run)?$'
        command = re.search(shown, text, re.M | re.S)
        assert command is not None
        assert command[1] in readme


def test_the_server_starts_in_its_folder(folder: Path) -> None:
    _, (name, place, home, telemetry, *options) = call(
        folder / "superlink" / "start.sh", "--log-file", "a b"
    )
    assert (name, telemetry) == ("flower-superlink", "0")
    assert (place, home) == (str(folder / "superlink"), str(folder / "superlink" / "home"))
    expected = (
        "--host 127.0.0.1 --port 8400 --ssl-ca-certfile ca.crt --ssl-certfile server.crt "
        "--ssl-keyfile server.key --enable-supernode-auth --database state.db "
        "--disable-runtime-dependency-installation --log-file 'a b'"
    )
    assert options == shlex.split(expected)


def test_sites_have_ports_of_their_own_and_their_own_data(folder: Path) -> None:
    data = "images='/data/my pills'"
    for number, site in enumerate(SITES, 1):
        script = folder / "sites" / site / "start.sh"
        _, (name, place, _, _, *options) = call(script, "--node-config", data)
        assert (name, place) == ("flower-supernode", str(script.parent))
        assert options[options.index("--port") + 1] == str(8400 + number)
        assert options[options.index("--superlink") + 1] == "127.0.0.1:8400"
        assert [o for o in options if o == "--node-config"] == ["--node-config"]
        assert options[-1] == data


def test_every_site_is_registered_by_its_name(folder: Path) -> None:
    done, called = call(folder / "register.sh")
    assert done.returncode == 0
    text = " ".join(called)
    for site in SITES:
        key = f"sites/{site}/supernode.pub"
        assert f"supernode register {key} deployment --name {site}" in text
        assert f"{site} is registered." in done.stdout


def test_registering_again_is_no_error_but_others_are(folder: Path) -> None:
    done, _ = call(folder / "register.sh", answer="[code: 23] Public key already in use.", code=1)
    assert done.returncode == 0
    assert done.stdout.count("was registered before.") == len(SITES)
    done, _ = call(folder / "register.sh", answer="no connection", code=1)
    assert done.returncode == 1
    assert "no connection" in done.stderr


def test_a_run_gets_a_folder_and_all_sites(folder: Path) -> None:
    done, called = call(folder / "run.sh", "--run-config", "rounds=5")
    assert done.returncode == 0
    name, place, home, _, *options = called[:12]
    assert (name, place, home) == ("flwr", str(folder), str(folder / "flower"))
    assert options[:5] == ["run", "app", "deployment", "--stream", "--run-config"]
    out = re.escape(str(folder / "runs"))
    assert re.fullmatch(rf"out='{out}/[\d-]+' clients=3", options[5])
    assert options[6:] == ["--run-config", "rounds=5"]
    (kept,) = (folder / "runs").glob("*.options")
    assert kept.read_text() == "--run-config\nrounds=5\n"


def test_runs_that_begin_in_one_second_have_folders_of_their_own(folder: Path) -> None:
    told = [call(folder / "run.sh")[0].stdout for _ in range(2)]
    assert len({text.partition("Results: ")[2].splitlines()[0] for text in told}) == 2


def test_a_folder_that_cannot_be_made_is_told(folder: Path) -> None:
    (folder / "runs").rmdir()
    (folder / "runs").write_text("in the way")
    done, called = call(folder / "run.sh")
    assert (done.returncode, called) == (1, [])
    assert "runs" in done.stderr


def test_a_run_that_failed_is_told_by_the_exit_code(folder: Path) -> None:
    run, failed = folder / "runs" / "2026-01-02-000000", f'{STARTED}"finished:failed"'
    (run / "checkpoint").mkdir(parents=True)
    done, called = call(folder / "resume.sh", answer=failed)
    assert done.returncode == 1
    assert f"go on with it by: ./resume.sh '{run}'" in done.stderr
    done, _ = call(folder / "run.sh", "--run-config", "rounds=5", answer=failed)
    assert done.returncode == 1
    assert "The run has failed before its first round." in done.stderr
    assert list((folder / "runs").iterdir()) == [run]  # nothing that resume.sh would find
    assert called[-6:-1] == ["list", "deployment", "--run-id", "7", "--format"]
    done, _ = call(folder / "run.sh", answer="no connection", code=1)
    assert done.returncode == 1
    assert "No run was started" in done.stderr
    assert not list(folder.glob("flower/run-*.log"))


def test_going_on_is_with_the_latest_run_or_the_one_named(folder: Path) -> None:
    done, called = call(folder / "resume.sh")
    assert (done.returncode, called) == (2, [])
    assert "There is no run to go on with" in done.stderr
    for name in ("2026-01-02-000000", "2026-01-10-000000"):
        (folder / "runs" / name / "checkpoint").mkdir(parents=True)
    (folder / "runs" / "2026-02-01-000000").mkdir()  # nothing to go on with
    expected = "out='{}' resume=true clients=3"
    _, called = call(folder / "resume.sh", "--run-config", "rounds=5")
    assert expected.format(folder / "runs" / "2026-01-10-000000") in called
    assert "rounds=5" in called
    (folder / "runs" / "2026-01-02-000000.options").write_text("--run-config\nlr=1 seed='a b'\n")
    _, called = call(folder / "resume.sh", "runs/2026-01-02-000000", "--run-config", "rounds=5")
    place = called.index(expected.format(folder / "runs" / "2026-01-02-000000"))
    given = ["--run-config", "lr=1 seed='a b'", "--run-config", "rounds=5"]
    assert called[place + 1 : place + 5] == given


def test_the_folder_can_be_moved(folder: Path) -> None:
    def certificate(place: Path) -> str:
        config = tomllib.loads((place / "flower" / "config.toml").read_text())
        assert config["superlink"]["default"] == "deployment"
        assert config["superlink"]["deployment"]["address"] == "127.0.0.1:8400"
        return str(config["superlink"]["deployment"]["root-certificates"])

    assert certificate(folder) == str(folder / "flower" / "ca.crt")
    moved = folder.rename(folder.with_name("moved"))
    call(moved / "register.sh")
    assert certificate(moved) == str(moved / "flower" / "ca.crt")


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
def test_where_the_server_listens_and_is_called(host: str, bind: str, address: str) -> None:
    plan = DeploymentPlan(("one",), host)
    assert (plan.bind, plan.address) == (bind, address)


BAD_SITES = [(), ("a b",), ("",), ("../x",), ("-a",), (".",), ("a", "a"), ("a", "A"), ("ä",)]
BAD_HOSTS = ["", "http://a", "a:80", "a b", "a'", "300.1.1.1", "0.0.0.0", "::", "a..b", "-a", "a\n"]


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        *(({"sites": sites}, "site") for sites in BAD_SITES),
        *(({"host": host}, "--host") for host in BAD_HOSTS),
        *(({"port": port}, "--port must be from 1 to 65533") for port in (0, 65534, 70000)),
    ],
)
def test_bad_plans_are_refused(plan: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CadisError, match=sentence):
        DeploymentPlan(**{"sites": ("a", "b"), **plan})


def test_nothing_is_overwritten(folder: Path, tmp_path: Path, app: Path) -> None:
    before = (folder / "ca" / "ca.key").read_bytes()
    plan = DeploymentPlan(("a",))
    for place, sentence in (
        (folder, "is not empty"),
        (folder / "README.md", "is a file"),
        (tmp_path / "it's", "quotes"),
        (folder / "README.md" / "below", "Cannot write"),
    ):
        with pytest.raises(CadisError, match=sentence):
            write_deployment(place, plan, app)
    assert (folder / "ca" / "ca.key").read_bytes() == before
    with pytest.raises(CadisError, match="lacks its Flower app"):
        write_deployment(tmp_path / "new", plan, tmp_path / "no app")
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir()
    assert write_deployment(tmp_path / "empty", plan, app) == tmp_path / "empty"
