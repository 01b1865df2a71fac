"""A Flower run in a folder of the same kind as the embedded engine's."""

import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import MetricRecord

from cadis.core import CadisError
from cadis.flower.arrays import ArrayLayout
from cadis.flower.record import evaluation_in
from cadis.flower.settings import StrategySettings
from cadis.methods import Method
from cadis.options import options_of
from cadis.runs import Keeper, RoundRecord, RunFolder, RunState


class Book:
    """Keeps a run, if there is a folder for it."""

    def __init__(self, settings: StrategySettings, method: Method, layout: ArrayLayout) -> None:
        self._settings, self._method, self._layout = settings, method, layout
        self._keeper = Keeper(RunFolder(settings.out)) if settings.out is not None else None

    @property
    def place(self) -> Path | None:
        """The folder."""
        return self._settings.out

    def begin(self, start: RunState, rounds: int, config: Mapping[str, Any]) -> RunState:
        """What to go on from: the start, or where the run in the folder stopped."""
        start = replace(start, run=secrets.token_hex(8))
        if self._keeper is None:
            if self._settings.resume:
                raise CadisError("Give the folder of the run to resume as out.")
            return start
        settings = self._settings
        scalars = {k: v for k, v in config.items() if not isinstance(v, bytes)}
        described = {
            "runner": "flower",
            "rounds": rounds,
            "seed": settings.seed,
            "per_round": settings.per_round,
            "fraction_train": settings.fraction_train,
            "num_clients": settings.num_clients,
        }
        options = options_of(self._method, {**scalars, **settings.notes, **described})
        return self._keeper.begin(start, options, self._federation(), settings.resume)

    def keep(self, record: RoundRecord, state: RunState) -> None:
        """Keep a finished round."""
        if self._keeper is not None:
            if self._settings.federation is None:
                self._keeper.folder.write_json("federation.json", self._known(state))
            self._keeper.keep(record, state, self._layout.to_tensors(state.model))

    def finish(self, state: RunState, metrics: MetricRecord | None) -> None:
        """Keep the last model and the summary."""
        if self._keeper is not None and self._keeper.history:
            model = self._layout.to_tensors(state.model)
            self._keeper.finish(self._method, model, evaluation_in(metrics))

    def _federation(self) -> Mapping[str, Any]:
        """Who has what, as far as the server knows."""
        if self._settings.federation is not None:
            return self._settings.federation
        if self._settings.resume and self._keeper is not None:
            return self._keeper.folder.read_json("federation.json")
        return self._known(None)

    def _known(self, state: RunState | None) -> dict[str, Any]:
        """Who was ever there; what they have is their own business."""
        members = state.members if state is not None else ()
        return {
            "classes": [str(number) for number in range(self._layout.num_classes)],
            "clients": [{"id": m.client, "cluster": None, "samples": None} for m in members],
        }
