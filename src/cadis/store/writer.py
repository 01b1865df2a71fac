"""Keeping a run on disk as it goes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeAlias

from cadis._io import NO_CALLBACKS, object_text, to_toml
from cadis.algorithm import Algorithm
from cadis.errors import CadisError, RunError
from cadis.models import Layout
from cadis.server import Member, RoundRecord, RunState
from cadis.store.checkpoint import Manifest
from cadis.store.folder import RunFolder
from cadis.store.history import HistoryWriter, read_records
from cadis.store.lock import Lock
from cadis.store.metrics import measured, summarise
from cadis.store.model_card import CARD, model_card
from cadis.store.model_file import ModelDescription, ModelInputs, model_bytes
from cadis.store.resuming import BEST, Say, check_best, check_options, restore, tidy_up
from cadis.store.storage import digest_of, read_file
from cadis.training import Evaluation

Federation: TypeAlias = Callable[[tuple[Member, ...]], Mapping[str, Any]]
"""What ``federation.json`` is to hold, given who was seen in a deployment so far."""

_FEDERATION = "federation.json"


@dataclass
class RunWriter:
    """Every round is on disk as it ends.

    Attributes:
        folder: where.
        algorithm: how the run learns.
        layout: what is where in its models.
        inputs: what the models are given, if that is known.
        history: the rounds so far.
    """

    folder: RunFolder
    algorithm: Algorithm
    layout: Layout
    inputs: ModelInputs | None = None
    history: list[RoundRecord] = field(default_factory=list)
    _lock: Lock | None = field(default=None, init=False)
    _writer: HistoryWriter = field(init=False)
    _manifest: Manifest = field(init=False)
    _federation: Federation = field(init=False)
    _options: Mapping[str, Any] = field(init=False)

    def begin(
        self,
        start: RunState,
        options: Mapping[str, Any],
        federation: Federation,
        resume: bool = False,
        say: Say = NO_CALLBACKS.say,
    ) -> RunState:
        """What to go on from: ``start``, or where the run in the folder stopped.

        Args:
            start: the state before the first round.
            options: what ``config.toml`` is to hold; a resumed run must have had the same.
            federation: what ``federation.json`` is to hold; the same.
            resume: whether to go on with the run in the folder.
            say: called with a sentence about anything that was found damaged.
        """
        self._writer = HistoryWriter(self.folder.history_path)
        self._options, self._federation = options, federation
        self._lock = self.folder.reopen() if resume else self.folder.claim()
        state, manifest, damaged = start, Manifest(0, self._writer.mark, "", run=start.run), False
        if resume:
            state, manifest, damaged = restore(self.folder, start, say)
            self._check_same(manifest, state, start)
        config = to_toml(options)
        files = {"config.toml": config.encode(), _FEDERATION: self._who_has_what(state)}
        with self._writing():
            manifest = tidy_up(self.folder, manifest, damaged, say)
            self._go_on(manifest)
            self._commit(replace(manifest, config=config), files)
        return state

    def close(self) -> None:
        """Let others go on with the run."""
        if self._lock is not None:
            self._lock.close()

    def keep(self, record: RoundRecord, state: RunState) -> None:
        """Keep a finished round, and its model if it is the best."""
        headline = self.algorithm.task.headline
        found = [measured(each, headline) for each in [record, *self.history]]
        value, *past = (-inf if each is None else each for each in found)
        with self._writing():
            stored = self.folder.checkpoint.save_state(state)
            self._writer.append(record)
            manifest = replace(
                self._manifest,
                round=state.round,
                history=self._writer.mark,
                state=stored,
                clients=state.client_files,
                run=state.run,
                members=state.members,
                clock=state.clock,
            )
            files = {}
            if value > max(past, default=-inf):
                files[BEST] = self._model_bytes(state)
            # In which round each took part last is no matter of federation.json.
            now, before = state.members, self._manifest.members
            if [member.client for member in now] != [member.client for member in before]:
                files[_FEDERATION] = self._who_has_what(state)
            self._commit(manifest, files, last=self._manifest)
        self.history.append(record)

    def finish(self, state: RunState, evaluation: Evaluation | None) -> dict[str, Any]:
        """Keep the last model, its card and the summary; returns the latter."""
        federation = dict(self._federation(self._manifest.members))
        method, headline = self.algorithm.method.name, self.algorithm.task.headline
        summary = summarise(method, self.history, federation, evaluation, headline=headline)
        files = {
            "model.safetensors": self._model_bytes(state),
            "summary.json": object_text(summary).encode(),
        }
        if self.folder.is_unchanged(CARD):  # what a user has written there stays
            files[CARD] = model_card(self._described(state), summary, federation).encode()
        with self._writing():
            self._commit(self._manifest, files)
        check_best(self.folder.path / BEST, self._manifest)
        return summary

    def _model_bytes(self, state: RunState) -> bytes:
        return model_bytes(self.layout.unpack_all(state.server.models), self._described(state))

    def _described(self, state: RunState) -> ModelDescription:
        """What the model file says of itself."""
        classes = self._federation(state.members)["classes"]
        outputs = self.algorithm.task.num_outputs(len(classes))
        start = ModelDescription.of_run(self._options, outputs, classes, self.inputs)
        return start.after(state.round, list(state.server.models))

    def _commit(
        self, manifest: Manifest, files: Mapping[str, bytes], last: Manifest | None = None
    ) -> None:
        """Make these files, and what the manifest says besides, what the run now is."""
        digests = self.folder.stage(files)
        self._manifest = replace(manifest, files={**manifest.files, **digests})
        self.folder.checkpoint.commit(self._manifest, last)
        self.folder.publish(files)

    def _who_has_what(self, state: RunState) -> bytes:
        """The content of ``federation.json``."""
        return object_text(self._federation(state.members)).encode()

    def _go_on(self, manifest: Manifest) -> None:
        """Go on with the history of a round, and drop what was written after it."""
        path, size = self.folder.history_path, manifest.history.size
        content = read_file(path)[:size] if size else b""
        self.history = read_records(content, path)
        self._writer.go_on(content)

    def _check_same(self, manifest: Manifest, state: RunState, start: RunState) -> None:
        """Refuse to go on with another run than the one in the folder."""
        place = self.folder.path
        check_options(place, manifest.config, self._options)
        if manifest.files.get(_FEDERATION) not in (None, digest_of(self._who_has_what(state))):
            raise CadisError(
                f"The run in {place} has other clients or data; put back what it began with, or "
                "start a new one."
            )
        if _sizes(state) != _sizes(start):
            raise CadisError(f"The run in {place} has a model of another size; start a new one.")
        if state.round > self._options["rounds"]:
            raise CadisError(
                f"The run in {place} has {state.round} rounds already; ask for at least as many."
            )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A full disk or a folder that is gone ends the run, which goes on from where it was."""
        try:
            yield
        except OSError as error:
            raise RunError(
                f"The folder {self.folder.path} cannot be written: {error.strerror}; put that "
                "right and resume the run, which goes on from its last finished round."
            ) from None


def _sizes(state: RunState) -> set[int]:
    """How many parameters the models have."""
    return {len(model.parameters) for model in state.server.models.values()}
