"""Measure a line in a separate process, so that lines do not affect each other."""

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measure import Measurement, SkippedError

_MAX_LINES = 15
"""Number of output lines of a failed process to show."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a line.

    Attributes:
        rows: the measurements.
        skipped: the reason why the line was skipped, or "".
        failure: the last output of the line if it failed, or "".
    """

    rows: tuple[Measurement, ...] = ()
    skipped: str = ""
    failure: str = ""


def measure_in_process(line: str) -> Outcome:
    """Measure a line in a new process, which may fail."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outcome.json"
        command = [sys.executable, "-m", "benchmarks.isolated", line, str(path)]
        done = subprocess.run(
            command,
            cwd=Path(__file__).parents[1],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode or not path.exists():
            lines = done.stdout.splitlines()[-_MAX_LINES:]
            return Outcome(failure="\n".join([*lines, f"exit code {done.returncode}"]))
        answer = json.loads(path.read_text(encoding="utf-8"))
    return Outcome(tuple(Measurement(**row) for row in answer["rows"]), answer["skipped"])


def main(line: str, path: str) -> None:
    """Measure a line in this process, and write the outcome to a file."""
    from benchmarks.lines import LINES  # noqa: PLC0415 - imports torch, which the parent does not need

    try:
        measured, skipped = LINES[line](), ""
    except SkippedError as error:
        measured, skipped = [], str(error)
    rows = measured if isinstance(measured, list) else [measured]
    answer = {"rows": [asdict(row) for row in rows], "skipped": skipped}
    Path(path).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
