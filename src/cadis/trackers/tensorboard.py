"""Tracker for TensorBoard: event files in the folder ``tensorboard`` of the run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from cadis._io import check_output
from cadis.trackers.scalars import collect_summary_scalars, flatten_options
from cadis.trackers.tracker import Tracker, TrackingState, import_optional


class TensorBoard(Tracker):
    """Writes event files; a resumed run adds further files."""

    name: ClassVar[str] = "tensorboard"

    def _connect(self) -> None:
        self._module = import_optional("torch.utils.tensorboard")
        self._events = self._folder / "tensorboard"
        check_output(self._events)
        self._is_resumed = any(self._events.glob("events.*"))
        if not self._is_resumed:
            self._state = TrackingState()
        self._writer: Any = None

    def _close_run(self, *, complete: bool) -> None:  # noqa: ARG002
        """Write remaining events. TensorBoard has no status of a run, so ``complete`` is unused."""
        if self._writer is not None:
            self._writer.close()

    def _log_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Write the scalars of a round and flush them to disk."""
        writer = self._open(step if self._is_resumed else None)
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    def _log_summary(self, summary: Mapping[str, Any], figures: Sequence[Path]) -> None:
        """Write options and summary as hyperparameters, and the figures as images."""
        writer, options, rounds = self._open(), flatten_options(self._options()), summary["rounds"]
        for path in figures:
            with Image.open(path) as image:
                pixels = np.asarray(image.convert("RGB"))
            writer.add_image(f"figures/{path.stem}", pixels, rounds, dataformats="HWC")
        scalars = collect_summary_scalars(summary)
        writer.add_hparams(options, scalars, run_name=".", global_step=rounds)
        writer.flush()

    def _open(self, purge_step: int | None = None) -> Any:
        """Return the writer; create it at the first call.

        If the run was resumed, ``purge_step`` is its first new round. TensorBoard then ignores
        events of this and later rounds in the older files.
        """
        if self._writer is None:
            self._writer = self._module.SummaryWriter(str(self._events), purge_step=purge_step)
            options = flatten_options(self._options())
            rows = [f"| {key} | {value} |" for key, value in options.items()]
            table = "\n".join(["| option | value |", "| --- | --- |", *rows])
            self._writer.add_text("options", table)
        return self._writer
