"""``history.jsonl``: a line for each round, written as the round ends."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from cadis.server import RoundRecord
from cadis.store.storage import DamagedError, damaged, digest_of, read_as, sync_file


@dataclass(frozen=True)
class HistoryMark:
    """How far the history went when a round was kept: its bytes, and their digest."""

    size: int
    sha256: str


def read_records(content: bytes, where: Path) -> list[RoundRecord]:
    """All rounds in a history. A last line that was not finished is passed over."""
    lines = content.splitlines(keepends=True)
    records = []
    for number, line in enumerate((line for line in lines if line.endswith(b"\n")), start=1):
        place = f"Line {number} of {where}"
        records.append(read_as(RoundRecord, line, place))
        if (found := records[-1].round) != number:
            raise DamagedError(f"{place} is damaged: it is round {found}, not {number}.")
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
