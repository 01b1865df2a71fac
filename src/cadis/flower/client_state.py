"""What a client remembers from round to round, on its own disk."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from platformdirs import user_state_path

from cadis.errors import CadisError
from cadis.store import DamagedError, read_tensors, store_tensors, sync_folder
from cadis.types import ClientId, StoredFile, TensorState

_RUN = re.compile("[0-9a-f]{16}")
_FILE = re.compile(r"round-(\d+)-([0-9a-f]{64})\.safetensors")
"""The round, and the digest of the content."""


def memory_folder() -> Path:
    """Where clients' memories are kept: ``$CADIS_STATE``, else the user's folder for such."""
    given = os.environ.get("CADIS_STATE")
    return Path(given).expanduser() if given else user_state_path("cadis") / "clients"


@dataclass(frozen=True)
class Memory:
    """The memory of one client in one run: the state after each round that may be gone on from.

    A server that was killed may ask for a round again, and must find the client as it was before
    it. So the state that a round began with is kept until the next round begins.

    Attributes:
        folder: where clients' memories are kept.
        run: name of the run.
        client: whose it is.
    """

    folder: Path
    run: str
    client: ClientId

    def __post_init__(self) -> None:
        if not _RUN.fullmatch(self.run):  # it comes from elsewhere, and becomes a path
            raise CadisError(f"'{self.run}' is not the name of a run.")

    def load(self, number: int) -> TensorState | None:
        """The state after a round; None if it is lost or damaged."""
        for path, (found, digest) in self._files().items():
            if found == number:
                try:
                    return read_tensors(path.parent, StoredFile(path.name, digest))
                except DamagedError:
                    return None
        return None

    def save(self, number: int, state: TensorState, began_with: int) -> None:
        """Keep the state after a round, and that before it; drop all others."""
        self._folder.mkdir(parents=True, exist_ok=True)
        stored = store_tensors(self._folder / "new.safetensors", state)
        path = self._folder / f"round-{number}-{stored.sha256}.safetensors"
        (self._folder / stored.name).replace(path)
        sync_folder(self._folder)
        for other, (found, _) in self._files().items():
            if other != path and (found == number or found != began_with):
                other.unlink(missing_ok=True)

    @property
    def _folder(self) -> Path:
        return self.folder / self.run / quote(json.dumps(self.client), safe="")

    def _files(self) -> dict[Path, tuple[int, str]]:
        """The round and the digest of each file, the newest first."""
        found = {path: _FILE.fullmatch(path.name) for path in self._folder.glob("round-*")}
        told = {path: (int(match[1]), match[2]) for path, match in found.items() if match}
        return dict(sorted(told.items(), key=lambda item: -item[1][0]))
