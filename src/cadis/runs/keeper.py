"""Keeping a run on disk as it goes, and going on with one."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from torch import Tensor

from cadis.core import CadisError, ModelState
from cadis.methods import Method
from cadis.runs.folder import RunFolder
from cadis.runs.measures import summarise
from cadis.runs.record import RoundRecord, RunState
from cadis.runs.toml import to_toml
from cadis.training import Evaluation

MAY_CHANGE = ("rounds", "workers", "device", "data_dir", "offline", "test_clients")
"""What may differ when a run is resumed: none of it changes the rounds themselves."""


@dataclass
class Keeper:
    """Every round is on disk as it ends.

    Attributes:
        folder: where.
        history: the rounds so far.
    """

    folder: RunFolder
    history: list[RoundRecord] = field(default_factory=list)
    _lock: IO[str] | None = field(default=None, init=False)

    def begin(
        self,
        start: RunState,
        options: Mapping[str, Any],
        federation: Mapping[str, Any],
        resume: bool = False,
    ) -> RunState:
        """What to go on from: ``start``, or where the run in the folder stopped.

        Args:
            start: the state before the first round.
            options: what ``config.toml`` is to hold; a resumed run must have had the same.
            federation: what ``federation.json`` is to hold; the same.
            resume: whether to go on with the run in the folder.
        """
        if resume:
            self.folder.read_config()  # there must be a run
            self.folder.checkpoint.create()  # a copy of a run may lack its empty folders
            self._lock = self.folder.checkpoint.lock()
            start = self._go_on(start, options, federation)
        else:
            self.folder.create()
            self._lock = self.folder.checkpoint.lock()
        self.folder.write_config(options)
        self.folder.write_json("federation.json", federation)
        return start

    def close(self) -> None:
        """Let others go on with the run."""
        if self._lock is not None:
            self._lock.close()

    def keep(
        self,
        record: RoundRecord,
        state: RunState,
        state_dict_of: Callable[[ModelState], Mapping[str, Tensor]],
    ) -> None:
        """Keep a finished round; the global model's state dict is made only if it is the best."""
        accuracies = [past.accuracy for past in self.history if past.accuracy is not None]
        self.history.append(record)
        self.folder.append_history(record)
        if record.accuracy is not None and record.accuracy > max(accuracies, default=-1.0):
            self.folder.save_model("best.safetensors", state_dict_of(state.model))
        self.folder.checkpoint.save(state)

    def finish(
        self,
        method: Method,
        model: Mapping[str, Tensor],
        evaluation: Evaluation | None,
    ) -> dict[str, Any]:
        """Keep the last model and the summary; returns the latter."""
        self.folder.save_model("model.safetensors", model)
        federation = self.folder.read_json("federation.json")
        summary = summarise(method, self.history, federation, evaluation)
        self.folder.write_json("summary.json", summary)
        return summary

    def _go_on(
        self, start: RunState, options: Mapping[str, Any], federation: Mapping[str, Any]
    ) -> RunState:
        """Where the run in the folder stopped; it must have been the same run."""
        place = self.folder.path
        before, given = self.folder.read_config(), tomllib.loads(to_toml(options))
        for key in sorted(before.keys() | given.keys()):
            was, now = before.get(key), given.get(key)
            moved = key == "dataset" and all(str(v).startswith("images:") for v in (was, now))
            if key not in MAY_CHANGE and was != now and not moved:
                raise CadisError(
                    f"The run in {place} has {key} = {was}, not {now}; "
                    "resume it with the same options, or start a new one."
                )
        if self.folder.read_json("federation.json") != federation:
            raise CadisError(f"The run in {place} has other clients or data; start a new one.")
        state = self.folder.checkpoint.load() or start
        if state.model.parameters.shape != start.model.parameters.shape:
            raise CadisError(f"The run in {place} has a model of another size; start a new one.")
        if state.round > options["rounds"]:
            raise CadisError(
                f"The run in {place} has {state.round} rounds already; ask for at least as many."
            )
        self.history = self.folder.keep_history(state.round)
        return state
