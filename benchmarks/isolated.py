"""A line measured in a process of its own, so that it finds nothing that others left behind."""

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measure import Measured, SkippedError

_SHOWN = 15
"""Lines of what a failed process said that are worth showing."""


@dataclass(frozen=True)
class Outcome:
    """What came of a line.

    Attributes:
        rows: what it measured.
        skipped: why it did not measure anything, if it cannot here.
        failure: the end of what it said before it failed, if it did.
    """

    rows: tuple[Measured, ...] = ()
    skipped: str = ""
    failure: str = ""


def measure_apart(line: str) -> Outcome:
    """Measure one of the lines in a fresh process, which may fail."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told.json"
        command = [sys.executable, "-m", "benchmarks.isolated", line, str(told)]
        done = subprocess.run(
            command,
            cwd=Path(__file__).parents[1],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode or not told.exists():
            said = done.stdout.splitlines()[-_SHOWN:]
            return Outcome(failure="\n".join([*said, f"exit code {done.returncode}"]))
        answer = json.loads(told.read_text(encoding="utf-8"))
    return Outcome(tuple(Measured(**row) for row in answer["rows"]), answer["skipped"])


def main(line: str, path: str) -> None:
    """Measure in this process, and write what came of it."""
    from benchmarks.lines import LINES  # noqa: PLC0415 - torch, which the parent does not need

    try:
        measured, skipped = LINES[line](), ""
    except SkippedError as error:
        measured, skipped = [], str(error)
    rows = measured if isinstance(measured, list) else [measured]
    answer = {"rows": [asdict(row) for row in rows], "skipped": skipped}
    Path(path).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
