"""TensorBoard: event files in the folder ``tensorboard`` of the run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from cadis.trackers.scalars import flatten, summary_scalars
from cadis.trackers.tracker import Logged, Tracker, need


class TensorBoard(Tracker):
    """Writes event files; a run that is resumed writes further ones beside them."""

    name: ClassVar[str] = "tensorboard"

    def _connect(self) -> None:
        self._module = need("torch.utils.tensorboard")
        self._events = self._folder / "tensorboard"
        self._resumed = any(self._events.glob("events.*"))
        if not self._resumed:
            self._logged = Logged()
        self._writer: Any = None

    def _end(self, *, complete: bool) -> None:  # noqa: ARG002
        """Write what is left. TensorBoard does not know whether a run is complete."""
        if self._writer is not None:
            self._writer.close()

    def _put(self, values: Mapping[str, float], step: int) -> None:
        """Keep the numbers of a round; they are on disk when this returns."""
        writer = self._open(step if self._resumed else None)
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    def _put_summary(self, summary: Mapping[str, Any], figures: Sequence[Path]) -> None:
        """Keep options and summary for the tab of hyper-parameters, and the pictures."""
        writer, options, rounds = self._open(), flatten(self._options()), summary["rounds"]
        for path in figures:
            with Image.open(path) as picture:
                pixels = np.asarray(picture.convert("RGB"))
            writer.add_image(f"figures/{path.stem}", pixels, rounds, dataformats="HWC")
        writer.add_hparams(options, summary_scalars(summary), run_name=".", global_step=rounds)
        writer.flush()

    def _open(self, purge_step: int | None = None) -> Any:
        """Return the writer; points of earlier writers from ``purge_step`` on are forgotten."""
        if self._writer is None:
            self._writer = self._module.SummaryWriter(str(self._events), purge_step=purge_step)
            rows = [f"| {key} | {value} |" for key, value in flatten(self._options()).items()]
            table = "\n".join(["| option | value |", "| --- | --- |", *rows])
            self._writer.add_text("options", table)
        return self._writer
