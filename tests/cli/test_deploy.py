"""``cadis deploy``, as a user types it."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from cli_support import call, refuse, succeed

INIT = ("deploy", "init")


def test_init_creates_three_sites_and_prints_the_next_steps(tmp_path: Path) -> None:
    lines = succeed(*INIT, tmp_path / "d").splitlines()
    order = ["superlink/start.sh", "register.sh"]
    order += [f"sites/site-{number}/start.sh" for number in (1, 2, 3)] + ["run.sh", "README.md"]
    for line, name in zip(lines[1:], order, strict=True):
        assert f"{tmp_path / 'd'}/{name}" in line
        assert (tmp_path / "d" / name).is_file()
    assert (tmp_path / "d" / "app" / "pyproject.toml").is_file()
    assert not list(tmp_path.rglob("__pycache__"))


def test_init_with_named_sites_and_host(tmp_path: Path) -> None:
    options = ("--host", "flower.example.org", "--port", "8443")
    output = succeed(*INIT, tmp_path / "a", "--site", "berlin", "--site", "bern", *options)
    assert "only the sites can connect to port 8443 of the server" in output
    assert {path.name for path in (tmp_path / "a" / "sites").iterdir()} == {"berlin", "bern"}
    assert "flower.example.org:8443" in (tmp_path / "a" / "sites/bern/start.sh").read_text()
    assert "--listen 0.0.0.0:8443 " in (tmp_path / "a" / "gateway/start.sh").read_text()
    assert "--host 127.0.0.1 --port 8444" in (tmp_path / "a" / "superlink/start.sh").read_text()
    succeed(*INIT, tmp_path / "b", "--sites", "1")
    assert {path.name for path in (tmp_path / "b" / "sites").iterdir()} == {"site-1"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--site", "a", "--site", "a"], "given twice"),
        (["--site", "a b"], "must consist of letters"),
        (["--site", "a", "--sites", "2"], "not both"),
        (["--host", "https://x"], "without port or scheme"),
        (["--port", "65533"], "--port must be"),
        (["--sites", "0"], "--sites"),
        (["--sites", "1000000000"], "--sites"),
        (["--port", f"1{'0' * 30}"], "--port must be"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: list[str], sentence: str) -> None:
    result = call(*INIT, tmp_path / "d", *options)
    assert result.exit_code == 2
    assert sentence in result.output
    assert not (tmp_path / "d").exists()


def test_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    assert "is not empty" in refuse(*INIT, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("package", ["flwr", "cryptography"])
def test_without_flower_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    message = refuse(*INIT, tmp_path / "d")
    assert message.endswith("install it with: pip install 'cadis[flower]'\n")
