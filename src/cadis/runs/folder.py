"""What a run leaves behind: a folder that reports read."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from cadis.core import CadisError
from cadis.runs.checkpoint import Checkpoint, replace_file, replace_text
from cadis.runs.record import Rejection, RoundRecord, Seconds
from cadis.runs.toml import read_toml, to_toml


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run.

    ``config.toml`` (resolved), ``federation.json`` (who has what), ``history.jsonl`` (an object
    a round), ``summary.json``, ``model.safetensors`` (the last), ``best.safetensors``,
    ``checkpoint/`` and ``figures/``.
    """

    path: Path

    @property
    def checkpoint(self) -> Checkpoint:
        """Where to go on from."""
        return Checkpoint(self.path / "checkpoint")

    @property
    def client_folder(self) -> Path:
        """Where clients' memories are kept."""
        return self.checkpoint.client_folder

    @property
    def figures(self) -> Path:
        """Where pictures go."""
        return self.path / "figures"

    def holds_run(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / "config.toml").exists()

    def has_rounds(self) -> bool:
        """Whether a round has ended."""
        return self.history_size() > 0

    def history_size(self) -> int:
        """Bytes of history; they grow with every round."""
        path = self.path / "history.jsonl"
        return path.stat().st_size if path.exists() else 0

    def create(self) -> None:
        """Make the folder; refuse one that holds something already, or cannot be written.

        A run that ended before its first round was done makes room.
        """
        try:
            if self.holds_run() and not self.read_history():  # it never got anywhere
                shutil.rmtree(self.path)
            if self.path.is_dir() and any(self.path.iterdir()):
                raise CadisError(
                    f"The folder {self.path} is not empty; choose another, or resume the run in it."
                )
            self.checkpoint.create()
        except OSError as error:
            raise CadisError(
                f"The folder {self.path} cannot be written: {error.strerror}."
            ) from None

    def write_config(self, options: Mapping[str, Any]) -> None:
        """Keep the resolved options."""
        replace_text(self.path / "config.toml", to_toml(options))

    def read_config(self) -> dict[str, Any]:
        """The resolved options."""
        if not self.holds_run():
            raise CadisError(f"There is no run in the folder {self.path}.")
        return read_toml(self.path / "config.toml")

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Keep ``federation.json`` or ``summary.json``."""
        lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
        replace_text(self.path / name, "{\n" + ",\n".join(lines) + "\n}\n")

    def read_json(self, name: str) -> dict[str, Any]:
        """The inverse of :meth:`write_json`."""
        content: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        return content

    def append_history(self, record: RoundRecord) -> None:
        """Keep a round, as soon as it ends."""
        with (self.path / "history.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record.to_json()) + "\n")

    def read_history(self) -> list[RoundRecord]:
        """All rounds. A last line that was not finished is passed over."""
        path = self.path / "history.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(True) if path.exists() else []
        return [_record(json.loads(line)) for line in lines if line.endswith("\n")]

    def keep_history(self, rounds: int) -> list[RoundRecord]:
        """Drop what was written after the last checkpoint; returns what is left."""
        records = self.read_history()[:rounds]
        text = "".join(json.dumps(record.to_json()) + "\n" for record in records)
        replace_text(self.path / "history.jsonl", text)
        return records

    def save_model(self, name: str, model: Mapping[str, Tensor]) -> None:
        """Keep a model's state dict under its usual names."""
        contiguous = torch.contiguous_format
        tensors = {
            key: value.detach().cpu().clone(memory_format=contiguous)
            for key, value in model.items()
        }
        replace_file(self.path / name, lambda draft: save_file(tensors, draft))


def _record(line: dict[str, Any]) -> RoundRecord:
    rejected = [Rejection(**rejection) for rejection in line.pop("rejected")]
    return RoundRecord(**line | {"rejected": rejected, "seconds": Seconds(**line["seconds"])})
