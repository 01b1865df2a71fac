"""Weights & Biases: files in the run's folder, sent if you have a key."""

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from cadis.errors import CadisError, RunError
from cadis.server import RoundRecord
from cadis.trackers.protocol import Past, TrackedRun, need
from cadis.trackers.scalars import flatten, scalars, summary_scalars

_SETTINGS = {
    "silent": True,
    "console": "off",
    "init_timeout": 20.0,  # seconds to wait for a server
    "disable_code": True,
    "disable_git": True,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}
"""No word on the screen, and nothing of the machine, only of the run."""


class WandB:
    """Keeps runs in the project "cadis", or the one that ``WANDB_PROJECT`` names.

    They stay in the run's folder, for ``wandb sync``, unless there is a key or ``WANDB_MODE`` says
    something else. Nobody is ever asked for a key.
    """

    name: ClassVar[str] = "wandb"

    def __init__(self, run: TrackedRun) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # that is for W&B's own errors
        self._wandb = need("wandb")
        self._run = run
        self._past = Past.read(run.folder, self.name)
        self._mode = self._choose_mode()
        self._open_run: Any = None

    def log(
        self, record: RoundRecord, rare_classes: Sequence[int], class_names: Sequence[str]
    ) -> None:
        """Keep a finished round."""
        if record.round <= self._past.round:
            return
        self._open().log(scalars(record, rare_classes, class_names), step=record.round)
        self._past = self._past.then(self._run.folder, round=record.round)

    def finish(self, summary: Mapping[str, Any], figures: Sequence[Path]) -> None:
        """Keep the summary's numbers in the run's summary, and the pictures with the last round."""
        rounds = summary["rounds"]
        if self._past.finished != rounds:
            run = self._open()
            pictures = {f"figures/{path.stem}": self._wandb.Image(str(path)) for path in figures}
            run.log(pictures, step=rounds)
            run.summary.update(summary_scalars(summary))
            self._past = self._past.then(self._run.folder, finished=rounds)
        self._end(0)

    def close(self) -> None:
        """Mark a run that is not complete as failed."""
        self._end(1)

    def _end(self, exit_code: int) -> None:
        run, self._open_run = self._open_run, None
        if run is not None:
            run.finish(exit_code=exit_code)

    def _choose_mode(self) -> str:
        """Online with a key, offline without; what the user says is done if it can be."""
        mode = os.environ.get("WANDB_MODE", "")
        if mode in ("offline", "dryrun", "disabled"):
            return mode
        try:
            self._wandb.setup(settings=self._settings())
            has_key = self._wandb.login(prompt=False, verify=False)
        except self._wandb.errors.Error as error:
            raise CadisError(f"W&B cannot be used: {_first_line(error)}.") from None
        if mode and not has_key:
            raise CadisError(
                f"WANDB_MODE={mode} wants a key; say 'wandb login' first, or unset WANDB_MODE."
            )
        return mode or ("online" if has_key else "offline")

    def _open(self) -> Any:
        """The run, begun or gone on with under the same id."""
        if self._open_run is None:
            if not self._past.id:
                self._past = self._past.then(self._run.folder, id=uuid4().hex[:8])
            try:
                self._open_run = self._begin(self._mode)
            except self._wandb.errors.CommError:
                warnings.warn(
                    "W&B cannot be reached; the run stays in its folder, for 'wandb sync'.",
                    stacklevel=2,
                )
                self._wandb.teardown()  # else it goes on trying, under the same id
                self._open_run = self._begin("offline")
        return self._open_run

    def _begin(self, mode: str) -> Any:
        try:
            return self._wandb.init(
                project=os.environ.get("WANDB_PROJECT", "cadis"),
                dir=str(self._run.folder),
                id=self._past.id,
                name=self._run.name,
                group=self._run.group,
                config=flatten(self._run.options()),
                allow_val_change=True,  # more rounds
                mode=mode,
                resume="allow",
                reinit="create_new",
                settings=self._settings(),
            )
        except self._wandb.errors.CommError:
            raise
        except self._wandb.errors.Error as error:
            raise RunError(
                f"W&B failed, and the run was stopped; it can be resumed: {_first_line(error)}."
            ) from None

    def _settings(self) -> Any:
        """Those that this version of W&B knows."""
        kind = self._wandb.Settings
        return kind(**{key: value for key, value in _SETTINGS.items() if key in kind.model_fields})


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")
