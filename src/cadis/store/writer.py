"""Keeping a run on disk as it goes, and going on with one."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

from cadis._io import NO_CALLBACKS, object_text, parse_toml, to_toml
from cadis.algorithm import Algorithm
from cadis.errors import CadisError, RunError
from cadis.models import Layout
from cadis.options import MAY_CHANGE
from cadis.server import Member, RoundRecord, RunState
from cadis.store.checkpoint import Manifest
from cadis.store.description import ModelDescription, ModelInputs
from cadis.store.folder import RunFolder
from cadis.store.history import HistoryWriter, check_history, read_records
from cadis.store.lock import Lock
from cadis.store.metrics import measured, summarise
from cadis.store.model_card import CARD, model_card
from cadis.store.model_file import model_bytes
from cadis.store.option_changes import differ, difference
from cadis.store.storage import DamagedError, digest_of, read_file
from cadis.training import Evaluation
from cadis.types import ClientId

Say: TypeAlias = Callable[[str], None]
Federation: TypeAlias = Callable[[tuple[Member, ...]], Mapping[str, Any]]
"""What ``federation.json`` is to hold, given who was seen in a deployment so far."""

_BEST, _FEDERATION = "best.safetensors", "federation.json"


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
        self._writer, self._federation = HistoryWriter(self.folder.history_path), federation
        self._options = options
        self._lock = self.folder.reopen() if resume else self.folder.claim()
        found = _Stored(self.folder, say)
        state, manifest = start, Manifest(0, self._writer.mark, "", run=start.run)
        if resume:
            state, manifest = found.restore(start)
            self._check_same(manifest, state, start, options)
        config = to_toml(options)
        files = {"config.toml": config.encode(), _FEDERATION: self._who_has_what(state)}
        with self._writing():
            manifest = found.tidy_up(manifest)
            self._go_on(manifest)
            self._commit(replace(manifest, config=config), files)
        return state

    def close(self) -> None:
        """Let others go on with the run."""
        if self._lock is not None:
            self._lock.close()

    def keep(self, record: RoundRecord, state: RunState) -> None:
        """Keep a finished round, and its model if it is the best."""
        found, past = self._headline(record), map(self._headline, self.history)
        best = found is not None and found > max(
            (value for value in past if value is not None), default=-inf
        )
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
            files = {_BEST: self._model_bytes(state)} if best else {}
            if _clients(state.members) != _clients(self._manifest.members):
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
        _check_best(self.folder.path / _BEST, self._manifest)
        return summary

    def _headline(self, record: RoundRecord) -> float | None:
        """What the best model is told by."""
        return measured(record, self.algorithm.task.headline)

    def _model_bytes(self, state: RunState) -> bytes:
        models = state.server.models
        return model_bytes(self.layout.unpack_all(models), self._described(state))

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

    def _check_same(
        self, manifest: Manifest, state: RunState, start: RunState, options: Mapping[str, Any]
    ) -> None:
        """Refuse to go on with another run than the one in the folder."""
        place = self.folder.path
        before = _flat(parse_toml(manifest.config, place / "config.toml"))
        given = _flat(parse_toml(to_toml(options), place / "config.toml"))
        for key in [*before, *(key for key in given if key not in before)]:
            was, now = before.get(key), given.get(key)
            if key not in MAY_CHANGE and differ(key, was, now):
                raise CadisError(difference(place, key, was, now))
        if manifest.files.get(_FEDERATION) not in (None, digest_of(self._who_has_what(state))):
            raise CadisError(
                f"The run in {place} has other clients or data; put back what it began with, or "
                "start a new one."
            )
        if _sizes(state) != _sizes(start):
            raise CadisError(f"The run in {place} has a model of another size; start a new one.")
        if state.round > options["rounds"]:
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


@dataclass(frozen=True)
class _Stored:
    """What a run that was stopped has left.

    Attributes:
        folder: where.
        say: called with a sentence about anything that is damaged.
        problems: what was found damaged.
    """

    folder: RunFolder
    say: Say
    problems: list[str] = field(default_factory=list)

    def restore(self, start: RunState) -> tuple[RunState, Manifest]:
        """The last round of which nothing is damaged, and its manifest."""
        problems = self.problems
        for path in self.folder.checkpoint.manifests():
            try:
                state, manifest = self._restore(path, start)
            except DamagedError as error:
                problems.append(str(error))
                continue
            for problem in problems:
                self.say(f"{problem} Going on from round {state.round}.")
            return state, manifest
        if problems:
            raise DamagedError(
                f"{problems[0]} Nor is any other round of the run in {self.folder.path} whole; "
                "put back a copy of the file, or start a new run."
            )
        raise DamagedError(
            f"The checkpoint of the run in {self.folder.path} is gone; put back a copy of it, or "
            "start a new run."
        )

    def tidy_up(self, manifest: Manifest) -> Manifest:
        """Put in place what was about to be, and drop what a kill has left.

        Returns:
            The manifest, of files that are what it says.
        """
        best, digest = self.folder.path / _BEST, manifest.files.get(_BEST)
        self.folder.publish_late(manifest)
        self.folder.sweep()
        if digest and not best.exists():
            self.say(f"{best} is missing; it is written again when a round is better than all.")
        if self.problems and digest and best.exists() and digest_of(read_file(best)) != digest:
            # It is that of the damaged round, which comes again.
            others = {name: other for name, other in manifest.files.items() if name != _BEST}
            return replace(manifest, files=others)
        if self.folder.history_size() == manifest.history.size:  # no later round has begun
            _check_best(best, manifest)
        return manifest

    def _restore(self, path: Path, start: RunState) -> tuple[RunState, Manifest]:
        checkpoint, history = self.folder.checkpoint, self.folder.history_path
        manifest = checkpoint.read(path)
        content = read_file(history) if manifest.round else b""
        check_history(content, manifest.history, history)
        if len(read_records(content[: manifest.history.size], history)) != manifest.round:
            raise DamagedError(f"{history} has another number of rounds than {path}.")
        if manifest.state is None:
            return replace(start, run=manifest.run, members=manifest.members), manifest
        return checkpoint.load(manifest), manifest


def _flat(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options side by side, names of parts first; those of a table under ``table.name``."""
    flat = {key: value for key, value in options.items() if not isinstance(value, Mapping)}
    for table, values in options.items():
        if isinstance(values, Mapping):
            flat |= {f"{table}.{name}": value for name, value in values.items()}
    return flat


def _clients(members: Iterable[Member]) -> list[ClientId]:
    """Who they are; in which round each took part last is no matter of ``federation.json``."""
    return [member.client for member in members]


def _sizes(state: RunState) -> set[int]:
    """How many parameters the models have."""
    return {len(model.parameters) for model in state.server.models.values()}


def _check_best(path: Path, manifest: Manifest) -> None:
    """Refuse a best model that is not the one that was written."""
    digest = manifest.files.get(path.name)
    if digest and path.exists() and digest_of(read_file(path)) != digest:
        raise DamagedError(
            f"{path} is damaged: it is not what was written. Put back a copy, or delete it to go "
            "on without it."
        )
