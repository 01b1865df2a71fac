"""``history.jsonl``: a line for each round, written as the round ends."""

import hashlib
import json
from dataclasses import dataclass, fields
from pathlib import Path

from cadis.server import RoundRecord
from cadis.store.checkpoint import HistoryMark
from cadis.store.storage import DamagedError, damaged, digest_of, read_as, sync_file


@dataclass(frozen=True)
class _OldRecord(RoundRecord):
    """A round as it was stored before methods told named arrays: CADIS's had places of their own.

    Attributes:
        clusters: the cluster of each participant.
        similarity: how alike they are.
        threshold: how alike neighbours must be.
    """

    clusters: list[int] | None = None
    similarity: list[list[float]] | None = None
    threshold: float | None = None

    def lifted(self) -> RoundRecord:
        """The same with these arrays in the report, if there are any."""
        told = {name: getattr(self, name) for name in ("clusters", "similarity", "threshold")}
        report = {name: array for name, array in told.items() if array is not None}
        kept = {field.name: getattr(self, field.name) for field in fields(RoundRecord)}
        return RoundRecord(**kept | {"report": report})


def _read_record(line: bytes, where: str) -> RoundRecord:
    """A round, in the form of today or in the old one, which has no report."""
    if b'"report":' in line:
        return read_as(RoundRecord, line, where)
    return read_as(_OldRecord, line, where).lifted()


def read_records(content: bytes, where: Path) -> list[RoundRecord]:
    """All rounds in a history. A last line that was not finished is passed over."""
    lines = content.splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(b"\n")]
    records = [
        _read_record(line, f"Line {number} of {where}")
        for number, line in enumerate(whole, start=1)
    ]
    for number, record in enumerate(records, start=1):
        if record.round != number:
            raise DamagedError(
                f"Line {number} of {where} is damaged: it is round {record.round}, not {number}."
            )
    return records


def check_history(content: bytes, mark: HistoryMark, where: Path) -> None:
    """Refuse a history that does not begin with what was written."""
    if digest_of(content[: mark.size]) != mark.sha256:
        raise damaged(where)


def mark_after(rounds: int, content: bytes) -> HistoryMark:
    """How far a history goes in which so many rounds were written."""
    kept = b"".join(content.splitlines(keepends=True)[:rounds])
    return HistoryMark(len(kept), digest_of(kept))


class HistoryWriter:
    """Adds rounds to a history, and knows how far it goes."""

    def __init__(self, path: Path) -> None:
        self._path, self._size, self._digest = path, 0, hashlib.sha256()

    @property
    def mark(self) -> HistoryMark:
        """How many bytes the history has by now, and their digest."""
        return HistoryMark(self._size, self._digest.hexdigest())

    def append(self, record: RoundRecord) -> None:
        """Add a round, and bring it to the disk."""
        line = (json.dumps(record.to_json(), allow_nan=False) + "\n").encode()
        with self._path.open("ab") as file:
            file.write(line)
            sync_file(file)
        self._add(line)

    def go_on(self, content: bytes) -> None:
        """Go on after what the history begins with, and drop what was written later."""
        with self._path.open("ab") as file:
            file.truncate(len(content))
            sync_file(file)
        self._add(content)

    def _add(self, content: bytes) -> None:
        self._digest.update(content)
        self._size += len(content)
