"""What a client remembers from round to round, on its own disk."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from platformdirs import user_state_path
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from cadis.core import CadisError, ClientId
from cadis.methods import TensorState
from cadis.runs.checkpoint import replace_file

_RUN = re.compile("[0-9a-f]{16}")


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
        """The state after a round; None if it is lost."""
        try:
            return load_file(self._file(number))
        except (OSError, SafetensorError):
            return None

    def save(self, number: int, state: TensorState, began_with: int) -> None:
        """Keep the state after a round, and that before it; drop all others."""
        path = self._file(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, lambda draft: save_file(dict(state), draft))
        for other in path.parent.glob("round-*.safetensors"):
            if other not in (path, self._file(began_with)):
                other.unlink(missing_ok=True)

    def _file(self, number: int) -> Path:
        name = quote(json.dumps(self.client), safe="")
        return self.folder / self.run / name / f"round-{number}.safetensors"
