"""Stop at any time, go on exactly: the state after a round, in a folder, without pickle."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import IO

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from cadis.core import CadisError, ModelState
from cadis.runs.lock import lock
from cadis.runs.record import Member, RunState

_INDEX = "checkpoint.json"


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under another name, then put it in place: it is there whole, or not at all."""
    draft = path.with_name(f".{path.name}.draft")
    write(draft)
    draft.replace(path)


def replace_text(path: Path, text: str) -> None:
    """Put a text file in place, whole or not at all."""
    replace_file(path, lambda draft: draft.write_text(text, encoding="utf-8"))


class Checkpoint:
    """A checkpoint folder.

    The index names the files that belong to the last finished round. It is replaced in one
    step, so a run that is killed at any moment is found as it was after some round.

    Attributes:
        client_folder: where clients' memories are written while a round is under way.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.client_folder = folder / "clients"

    def create(self) -> None:
        """Make the folders."""
        self.client_folder.mkdir(parents=True, exist_ok=True)

    @property
    def lock_file(self) -> Path:
        """Held by whoever works on the run."""
        return self._folder / "lock"

    def lock(self) -> IO[str]:
        """Keep other processes from going on with the same run, while what is returned is open."""
        return lock(self.lock_file, f"The run in {self._folder.parent}")

    def save(self, state: RunState) -> None:
        """Make ``state`` the one to go on from, and drop what it supersedes."""
        name = f"round-{state.round}.safetensors"
        model = {f"model.{key}": value for key, value in vars(state.model).items()}
        method = {f"method.{key}": value for key, value in state.method_state.items()}
        save_file(model | method, self._folder / name)
        index = {
            "round": state.round,
            "state": name,
            "clients": {str(client): file for client, file in state.client_files.items()},
            "run": state.run,
            "members": [vars(member) for member in state.members],
        }
        replace_text(self._folder / _INDEX, json.dumps(index, indent=1))
        self._drop_all_but(name, set(state.client_files.values()))

    def load(self) -> RunState | None:
        """The state to go on from; None if no round was finished."""
        path = self._folder / _INDEX
        if not path.exists():
            return None
        try:
            index = json.loads(path.read_text(encoding="utf-8"))
            tensors = load_file(self._folder / index["state"])
            clients = {int(client): file for client, file in index["clients"].items()}
            members = tuple(Member(**member) for member in index["members"])
            run = index["run"]
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise CadisError(f"The checkpoint in {self._folder} cannot be read: {error}") from None
        model, method = (
            {
                key.removeprefix(prefix): value
                for key, value in tensors.items()
                if key.startswith(prefix)
            }
            for prefix in ("model.", "method.")
        )
        return RunState(index["round"], ModelState(**model), method, clients, run, members)

    def _drop_all_but(self, state_file: str, client_files: set[str]) -> None:
        for path in self._folder.glob("round-*.safetensors"):
            if path.name != state_file:
                path.unlink()
        for path in self.client_folder.iterdir():
            if path.name not in client_files:
                path.unlink()
