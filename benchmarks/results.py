"""Results of the benchmarks, stored as one small JSON file each."""

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.measure import Measurement
from cadis.errors import CadisError

FOLDER = Path(__file__).parent / "results"
_PACKAGES = ("torch", "numpy", "flwr", "ray")


@dataclass(frozen=True)
class Results:
    """Measurements with date, commit, machine and versions.

    Attributes:
        date: date and time of the measurement, UTC.
        commit: short hash of the commit.
        changed: whether files differed from that commit.
        machine: processor and number of cores.
        versions: versions of Python and of relevant packages.
        rows: the measurements.
        note: further information, such as the load of the machine.
    """

    date: str
    commit: str
    changed: bool
    machine: str
    versions: dict[str, str]
    rows: tuple[Measurement, ...]
    note: str = ""


def collect_results(rows: list[Measurement], note: str = "") -> Results:
    """Return results with the current date, commit, machine and versions."""
    return Results(
        date=datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S"),
        commit=_git("rev-parse", "--short", "HEAD") or "unknown",
        changed=bool(_git("status", "--porcelain", "--untracked-files=no")),
        machine=describe_machine(),
        versions=collect_versions(),
        rows=tuple(rows),
        note=note,
    )


def save(results: Results, folder: Path = FOLDER) -> Path:
    """Write results to a file named by date and commit, so that names sort by time."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{results.date}-{results.commit}.json"
    path.write_text(json.dumps(asdict(results), indent=1) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> Results:
    """Read saved results."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        rows = tuple(Measurement(**row) for row in found.pop("rows"))
        return Results(**found, rows=rows)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CadisError(f"{path} does not contain results of make bench-save: {error}.") from None


def find_newest(folder: Path = FOLDER) -> tuple[Path, Path]:
    """Return the paths of the last two results, the older one first."""
    paths = sorted(folder.glob("*.json"))
    if len(paths) < 2:
        raise CadisError(f"There are {len(paths)} results in {folder}; make bench-save adds one.")
    return paths[-2], paths[-1]


def describe_machine() -> str:
    """Return the processor and the number of cores."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"


def collect_versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages."""
    found = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _git(*arguments: str) -> str:
    """Return the output of a git command, or "" without git."""
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()
