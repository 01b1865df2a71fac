"""TensorBoard: event files in the folder ``tensorboard`` of the run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from cadis.server import RoundRecord
from cadis.trackers.protocol import Past, TrackedRun, need
from cadis.trackers.scalars import flatten, scalars, summary_scalars


class TensorBoard:
    """Writes event files; a run that is resumed writes further ones beside them."""

    name: ClassVar[str] = "tensorboard"

    def __init__(self, run: TrackedRun) -> None:
        self._module = need("torch.utils.tensorboard")
        self._run = run
        self._folder = run.folder / "tensorboard"
        self._resumed = any(self._folder.glob("events.*"))
        self._past = Past.read(run.folder, self.name) if self._resumed else Past(self.name)
        self._writer: Any = None

    def log(
        self, record: RoundRecord, rare_classes: Sequence[int], class_names: Sequence[str]
    ) -> None:
        """Keep a finished round; it is on disk when this returns."""
        if record.round <= self._past.round:
            return
        writer = self._open(record.round if self._resumed else None)
        for name, value in scalars(record, rare_classes, class_names).items():
            writer.add_scalar(name, value, record.round)
        writer.flush()
        self._past = self._past.then(self._run.folder, round=record.round)

    def finish(self, summary: Mapping[str, Any], figures: Sequence[Path]) -> None:
        """Keep options and summary for the tab of hyper-parameters, and the pictures."""
        rounds = summary["rounds"]
        if self._past.finished == rounds:
            return
        writer, options = self._open(None), flatten(self._run.options())
        for path in figures:
            with Image.open(path) as picture:
                pixels = np.asarray(picture.convert("RGB"))
            writer.add_image(f"figures/{path.stem}", pixels, rounds, dataformats="HWC")
        writer.add_hparams(options, summary_scalars(summary), run_name=".", global_step=rounds)
        writer.flush()
        self._past = self._past.then(self._run.folder, finished=rounds)

    def close(self) -> None:
        """Write what is left. TensorBoard does not know whether a run is complete."""
        if self._writer is not None:
            self._writer.close()

    def _open(self, purge_step: int | None) -> Any:
        """The writer.

        Args:
            purge_step: the round from which on earlier points are to be forgotten.
        """
        if self._writer is None:
            self._writer = self._module.SummaryWriter(str(self._folder), purge_step=purge_step)
            rows = [f"| {key} | {value} |" for key, value in flatten(self._run.options()).items()]
            self._writer.add_text(
                "options", "\n".join(["| option | value |", "| --- | --- |", *rows])
            )
        return self._writer
