"""Weights & Biases: files in the run's folder, sent if you have a key."""

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from cadis.errors import CadisError, RunError
from cadis.trackers.scalars import flatten, summary_scalars
from cadis.trackers.tracker import Tracker, need

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


class WandB(Tracker):
    """Keeps runs in the project "cadis", or the one that ``WANDB_PROJECT`` names.

    They stay in the run's folder, for ``wandb sync``, unless there is a key or ``WANDB_MODE`` says
    something else. Nobody is ever asked for a key.
    """

    name: ClassVar[str] = "wandb"

    def _connect(self) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # that is for W&B's own errors
        self._wandb = need("wandb")
        self._mode = self._choose_mode()
        self._open_run: Any = None

    def _put(self, values: Mapping[str, float], step: int) -> None:
        self._open().log(values, step=step)

    def _put_summary(self, summary: Mapping[str, Any], figures: Sequence[Path]) -> None:
        """Keep the summary's numbers in the run's summary, and the pictures with the last round."""
        run = self._open()
        pictures = {f"figures/{path.stem}": self._wandb.Image(str(path)) for path in figures}
        run.log(pictures, step=summary["rounds"])
        run.summary.update(summary_scalars(summary))

    def _end(self, *, complete: bool) -> None:
        """Mark a run that is not complete as failed."""
        run, self._open_run = self._open_run, None
        if run is not None:
            run.finish(exit_code=0 if complete else 1)

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
        if self._open_run is None:
            if not self._logged.id:
                self._remember(id=uuid4().hex[:8])
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
                dir=str(self._folder),
                id=self._logged.id,
                name=self._run_name,
                group=self._group,
                config=flatten(self._options()),
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
