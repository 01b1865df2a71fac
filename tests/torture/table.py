"""The table of outcomes in the documentation."""

import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from torture.outcomes import GOOD, Attack, Outcome, Verdict

_COLUMNS = ("attack", "trials", "same result", "error message", "accepted", "failed", "minutes")
_BEGIN, _END = "<!-- make torture writes this -->", "<!-- until here -->"


@dataclass(frozen=True)
class Row:
    attack: Attack
    outcomes: Sequence[Outcome]
    seconds: float
    skipped: str | None = None

    @property
    def failed(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if not outcome.finding.is_good]

    @property
    def verdicts(self) -> Counter[Verdict]:
        counts = Counter(outcome.finding.verdict for outcome in self.outcomes)
        for outcome in self.outcomes:
            counts.update(outcome.finding.others)
        return counts

    def to_cells(self) -> list[str]:
        name = f"{self.attack.name}: {self.attack.title}"
        if self.skipped is not None:
            return [name, f"skipped: {self.skipped}", *[""] * 5]
        verdicts = self.verdicts
        bad = ", ".join(f"{n} {verdict}" for verdict, n in verdicts.items() if verdict not in GOOD)
        good = [f"{verdicts[verdict]:,}" if verdicts[verdict] else "" for verdict in GOOD]
        minutes = f"{self.seconds / 60:.1f}"
        return [name, f"{verdicts.total():,}", *good, bad or "0", minutes]


def format_markdown(rows: Sequence[Row], seed: int) -> str:
    """Return the table for the documentation, and the seed and versions."""
    lines = ["| " + " | ".join(_COLUMNS) + " |", "| --- |" + " ---: |" * (len(_COLUMNS) - 1)]
    lines += ["| " + " | ".join(row.to_cells()) + " |" for row in rows]
    trials = sum(row.verdicts.total() for row in rows)
    failed = sum(len(row.failed) for row in rows)
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    lines += ["", f"{trials:,} trials, {failed:,} of them failed; seed {seed}, "]
    lines[-1] += f"{os.cpu_count()} cores, {platform.system()}, {versions}."
    return "\n".join(lines)


def write_markdown(path: Path, text: str) -> None:
    """Write the table between the two comments of a page, or into a new file."""
    page = path.read_text(encoding="utf-8") if path.exists() else f"{_BEGIN}\n{_END}\n"
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{path} has no lines '{_BEGIN}' and '{_END}' for the table.")
    path.write_text(f"{before}{_BEGIN}\n{text}\n{_END}{after}", encoding="utf-8")
