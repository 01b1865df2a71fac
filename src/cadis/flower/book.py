"""A Flower run in a folder of the same kind as the embedded engine's."""

from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import MetricRecord

from cadis.core import CadisError
from cadis.flower.arrays import ArrayLayout
from cadis.flower.gathering import LOGGER
from cadis.flower.record import evaluation_in
from cadis.flower.settings import StrategySettings
from cadis.methods import Method
from cadis.options import options_of
from cadis.runs import Member, RoundRecord, RunFolder, RunState, RunWriter


class Book:
    """Keeps a run, if there is a folder for it."""

    def __init__(self, settings: StrategySettings, method: Method, layout: ArrayLayout) -> None:
        self._settings, self._method, self._layout = settings, method, layout
        self._keeper = RunWriter(RunFolder(settings.out)) if settings.out is not None else None

    def close(self) -> None:
        """Let others go on with the run."""
        if self._keeper is not None:
            self._keeper.close()

    def begin(self, start: RunState, rounds: int, config: Mapping[str, Any]) -> RunState:
        """What to go on from: the start, or where the run in the folder stopped."""
        if self._keeper is None:
            if self._settings.resume:
                raise CadisError("Give the folder of the run to resume as out.")
            return start
        settings = self._settings
        scalars = {k.replace("-", "_"): v for k, v in config.items() if not _holds_bytes(v)}
        described = {
            "runner": "flower",
            "rounds": rounds,
            "seed": settings.seed,
            "per_round": settings.per_round,
            "fraction_train": settings.fraction_train,
            "num_clients": settings.num_clients,
        }
        options = options_of(self._method, {**scalars, **settings.notes, **described})
        return self._keeper.begin(start, options, self._federation, settings.resume, LOGGER.warning)

    def keep(self, record: RoundRecord, state: RunState) -> None:
        """Keep a finished round."""
        if self._keeper is not None:
            self._keeper.keep(record, state, self._layout.to_tensors)

    def finish(self, state: RunState, metrics: MetricRecord | None) -> None:
        """Keep the last model and the summary."""
        if self._keeper is not None and self._keeper.history:
            model = self._layout.to_tensors(state.model)
            self._keeper.finish(self._method, model, evaluation_in(metrics))

    def _federation(self, members: Iterable[Member]) -> dict[str, Any]:
        """Who has what: what the server was told, and who else was ever there."""
        classes = [str(number) for number in range(self._layout.num_classes)]
        told = self._settings.federation or {"classes": classes, "clients": []}
        known = {client["id"] for client in told["clients"]}
        others = [
            {"id": member.client, "cluster": None, "samples": None}
            for member in members
            if member.client not in known
        ]
        return {**told, "clients": [*told["clients"], *others]}


def _holds_bytes(value: object) -> bool:
    """Whether this is nothing that a file of options can hold."""
    return isinstance(value, bytes) or (
        isinstance(value, list) and any(isinstance(part, bytes) for part in value)
    )
