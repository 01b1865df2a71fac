"""The file ``history.jsonl``, which has one line per round.

:class:`~cadis.store.RunWriter` appends to it when a round ends; the run folder reads it.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from cadis._io import open_for_append, sync_file
from cadis.server import RoundRecord
from cadis.store.storage import (
    DamagedError,
    compute_digest,
    make_damage_error,
    parse_json,
)


@dataclass(frozen=True)
class HistoryPrefix:
    """The history up to the end of a round: its size in bytes and the digest of these bytes."""

    size: int
    sha256: str


def parse_records(content: bytes, path: Path) -> list[RoundRecord]:
    """Return the records in a history; an incomplete last line is ignored."""
    lines = content.splitlines(keepends=True)
    records = []
    complete = (line for line in lines if line.endswith(b"\n"))
    for round_number, line in enumerate(complete, start=1):
        source = f"Line {round_number} of {path}"
        record = parse_json(RoundRecord, line, source)
        if record.round != round_number:
            raise DamagedError(
                f"{source} is damaged: it has round {record.round}, not {round_number}."
            )
        records.append(record)
    return records


def check_history(content: bytes, prefix: HistoryPrefix, path: Path) -> None:
    """Raise an error unless the history begins with the bytes that ``prefix`` describes."""
    if compute_digest(content[: prefix.size]) != prefix.sha256:
        raise make_damage_error(path)


class HistoryWriter:
    """Appends rounds to a history."""

    def __init__(self, path: Path) -> None:
        self._path, self._size, self._digest = path, 0, hashlib.sha256()

    @property
    def prefix(self) -> HistoryPrefix:
        """Size and digest of the history as it is now."""
        return HistoryPrefix(self._size, self._digest.hexdigest())

    def append(self, record: RoundRecord) -> None:
        """Append a round and flush it to the disk."""
        line = (json.dumps(record.to_json(), allow_nan=False) + "\n").encode()
        with open_for_append(self._path) as file:
            file.write(line)
            sync_file(file)
        self._add(line)

    def resume_after(self, content: bytes) -> None:
        """Continue after ``content``, the beginning of the history; delete all that follows."""
        with open_for_append(self._path) as file:
            file.truncate(len(content))
            sync_file(file)
        self._add(content)

    def _add(self, content: bytes) -> None:
        self._digest.update(content)
        self._size += len(content)
