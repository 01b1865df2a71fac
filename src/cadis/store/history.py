"""``history.jsonl``: a line for each round, written as the round ends."""

import hashlib
import json
from pathlib import Path

from cadis.server import RoundRecord
from cadis.store.checkpoint import HistoryMark
from cadis.store.storage import DamagedError, damaged, digest_of, read_as, sync_file


def read_records(content: bytes, where: Path) -> list[RoundRecord]:
    """All rounds in a history. A last line that was not finished is passed over."""
    lines = content.splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(b"\n")]
    records = [
        read_as(RoundRecord, line, f"Line {number} of {where}")
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
