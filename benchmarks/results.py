"""Results that are kept: one small JSON file for each time that all was measured."""

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.measure import Measured
from cadis.errors import CadisError

FOLDER = Path(__file__).parent / "results"
_PACKAGES = ("torch", "numpy", "flwr", "ray")


@dataclass(frozen=True)
class Results:
    """What was measured, when, where and of which code.

    Attributes:
        date: when it was measured, UTC.
        commit: of which code, short.
        changed: whether files differed from that commit.
        machine: processor and cores.
        versions: of Python and of what the speed depends on.
        rows: the figures.
        note: what else to know, such as how busy the machine was.
    """

    date: str
    commit: str
    changed: bool
    machine: str
    versions: dict[str, str]
    rows: tuple[Measured, ...]
    note: str = ""


def results_now(rows: list[Measured], note: str = "") -> Results:
    """Results of this code on this machine."""
    return Results(
        date=datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S"),
        commit=_git("rev-parse", "--short", "HEAD") or "unknown",
        changed=bool(_git("status", "--porcelain", "--untracked-files=no")),
        machine=machine(),
        versions=versions(),
        rows=tuple(rows),
        note=note,
    )


def save(results: Results, folder: Path = FOLDER) -> Path:
    """Write them to a file whose name says when and of what; names sort by time."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{results.date}-{results.commit}.json"
    path.write_text(json.dumps(asdict(results), indent=1) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> Results:
    """Results that were saved."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        rows = tuple(Measured(**row) for row in found.pop("rows"))
        return Results(**found, rows=rows)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CadisError(f"{path} holds no results of make bench-save: {error}.") from None


def newest(folder: Path = FOLDER) -> tuple[Path, Path]:
    """The last two that were saved, the older one first."""
    paths = sorted(folder.glob("*.json"))
    if len(paths) < 2:
        raise CadisError(f"There are {len(paths)} results in {folder}; make bench-save adds one.")
    return paths[-2], paths[-1]


def machine() -> str:
    """What this is measured on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"


def versions() -> dict[str, str]:
    """Of Python, and of the packages that are there."""
    found = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _git(*arguments: str) -> str:
    """What Git says of this folder; nothing where there is no Git."""
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()
