"""Tracker for Weights & Biases: files in the folder of the run, uploaded if there is an API key."""

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from cadis._io import check_output
from cadis.errors import CadisError, RunError
from cadis.trackers.scalars import collect_summary_scalars, flatten_options
from cadis.trackers.tracker import Tracker, import_optional

_SETTINGS = {
    "silent": True,
    "console": "off",
    "init_timeout": 20.0,  # seconds to wait for the server
    "disable_code": True,
    "disable_git": True,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}
"""Settings for no output in the terminal and no data about the machine."""


class WandB(Tracker):
    """Logs runs to the project in ``WANDB_PROJECT``, by default "cadis".

    Without an API key, the data stay in the folder of the run, and you can upload them with
    ``wandb sync``. ``WANDB_MODE`` overrides this. The tracker never asks for a key.
    """

    name: ClassVar[str] = "wandb"

    def _connect(self) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # do not send error reports to W&B
        self._wandb = import_optional("wandb")
        check_output(self._folder / "wandb")
        self._mode = self._choose_mode()
        self._open_run: Any = None

    def _log_scalars(self, values: Mapping[str, float], step: int) -> None:
        self._open().log(values, step=step)

    def _log_summary(self, summary: Mapping[str, Any], figures: Sequence[Path]) -> None:
        """Log the summary of the run, and the figures with the last round."""
        run = self._open()
        images = {f"figures/{path.stem}": self._wandb.Image(str(path)) for path in figures}
        run.log(images, step=summary["rounds"])
        run.summary.update(collect_summary_scalars(summary))

    def _close_run(self, *, complete: bool) -> None:
        """Mark a run that is not complete as failed."""
        run, self._open_run = self._open_run, None
        if run is not None:
            run.finish(exit_code=0 if complete else 1)

    def _choose_mode(self) -> str:
        """Return ``WANDB_MODE`` if it is set, else "online" with an API key, "offline" without."""
        mode = os.environ.get("WANDB_MODE", "")
        if mode in ("offline", "dryrun", "disabled"):
            return mode
        try:
            self._wandb.setup(settings=self._make_settings())
            has_key = self._wandb.login(prompt=False, verify=False)
        except self._wandb.errors.Error as error:
            raise CadisError(f"W&B cannot be used: {_get_first_line(error)}.") from None
        if mode and not has_key:
            raise CadisError(
                f"WANDB_MODE={mode} needs an API key; run 'wandb login' first, or unset WANDB_MODE."
            )
        return mode or ("online" if has_key else "offline")

    def _open(self) -> Any:
        if self._open_run is None:
            if not self._state.id:
                self._save_state(id=uuid4().hex[:8])
            try:
                self._open_run = self._init_run(self._mode)
            except self._wandb.errors.CommError:
                warnings.warn(
                    "Cannot connect to W&B; data stay in the folder of the run, for 'wandb sync'.",
                    stacklevel=2,
                )
                self._wandb.teardown()  # else W&B retries in the background with the same id
                self._open_run = self._init_run("offline")
        return self._open_run

    def _init_run(self, mode: str) -> Any:
        try:
            return self._wandb.init(
                project=os.environ.get("WANDB_PROJECT", "cadis"),
                dir=str(self._folder),
                id=self._state.id,
                name=self._run_name,
                group=self._group,
                config=flatten_options(self._options()),
                allow_val_change=True,  # a resumed run may have more rounds
                mode=mode,
                resume="allow",
                reinit="create_new",
                settings=self._make_settings(),
            )
        except self._wandb.errors.CommError:
            raise
        except self._wandb.errors.Error as error:
            raise RunError(
                f"W&B failed: {_get_first_line(error)}; the run was stopped, and you can resume it."
            ) from None

    def _make_settings(self) -> Any:
        """Return the settings that the installed version of W&B supports."""
        supported = self._wandb.Settings.model_fields
        settings = {key: value for key, value in _SETTINGS.items() if key in supported}
        return self._wandb.Settings(**settings)


def _get_first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")
