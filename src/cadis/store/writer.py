"""Writing a run to its folder, round by round.

:mod:`cadis.experiment` and the Flower strategy use :class:`RunWriter` for every run.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeAlias

from cadis._io import NO_CALLBACKS, format_json, to_toml
from cadis.algorithm import Algorithm
from cadis.errors import CadisError, RunError
from cadis.models import Layout
from cadis.server import Member, RoundRecord, RunState
from cadis.store.checkpoint import Manifest
from cadis.store.folder import RunFolder
from cadis.store.history import HistoryWriter, parse_records
from cadis.store.lock import Lock
from cadis.store.metrics import get_metric, summarize
from cadis.store.model_card import CARD_FILE, format_model_card
from cadis.store.model_file import ModelDescription, ModelInputs, encode_model
from cadis.store.resuming import (
    BEST_MODEL_FILE,
    Say,
    check_best_model,
    check_options,
    clean_up,
    restore,
)
from cadis.store.signature import sign
from cadis.store.storage import compute_digest, read_file
from cadis.training import Evaluation

DescribeFederation: TypeAlias = Callable[[tuple[Member, ...]], Mapping[str, Any]]
"""A function that returns the content of ``federation.json``, given the members of a deployment."""

_FEDERATION = "federation.json"


@dataclass
class RunWriter:
    """Writes a run to its folder; every round is on the disk when it ends.

    Attributes:
        folder: folder of the run.
        algorithm: the method, sampler and other parts.
        layout: position of each tensor of the model in its flat vectors.
        inputs: description of the models' inputs, if known.
        history: records of the rounds so far.
    """

    folder: RunFolder
    algorithm: Algorithm
    layout: Layout
    inputs: ModelInputs | None = None
    history: list[RoundRecord] = field(default_factory=list)
    _lock: Lock | None = field(default=None, init=False)
    _writer: HistoryWriter = field(init=False)
    _manifest: Manifest = field(init=False)
    _describe_federation: DescribeFederation = field(init=False)
    _options: Mapping[str, Any] = field(init=False)

    def begin(
        self,
        start: RunState,
        options: Mapping[str, Any],
        describe_federation: DescribeFederation,
        resume: bool = False,
        say: Say = NO_CALLBACKS.say,
    ) -> RunState:
        """Lock the folder and return the state to start from.

        Args:
            start: state before the first round.
            options: content of ``config.toml``; it must not change when a run is resumed, except
                for options such as ``rounds``.
            describe_federation: returns the content of ``federation.json``, which must not change
                when a run is resumed.
            resume: whether to resume the run in the folder.
            say: called with a message about damaged files.

        Returns:
            ``start``, or the state after the last complete round of a resumed run.
        """
        self._writer = HistoryWriter(self.folder.history_path)
        self._options, self._describe_federation = options, describe_federation
        self._lock = self.folder.lock_existing() if resume else self.folder.lock_new()
        if resume:
            state, manifest, has_damaged_later_round = restore(self.folder, start, say)
            self._check_same(manifest, state, start)
        else:
            state, has_damaged_later_round = start, False
            manifest = Manifest(0, self._writer.prefix, "", run=start.run)
        config = to_toml(options)
        files = {"config.toml": config.encode(), _FEDERATION: self._encode_federation(state)}
        with self._catch_disk_errors():
            if not resume:
                sign(self.folder.path, options)
            manifest = clean_up(self.folder, manifest, has_damaged_later_round, say)
            self._resume_history(manifest)
            self._commit(replace(manifest, config=config), files)
        return state

    def close(self) -> None:
        """Release the lock of the folder."""
        if self._lock is not None:
            self._lock.close()

    def save_round(self, record: RoundRecord, state: RunState) -> None:
        """Write a finished round, and its model if it is the best so far.

        Args:
            record: record of the round.
            state: state after the round.
        """
        if not self._keeps_profiles:
            record = record.without_profiles()
        main_metric = self.algorithm.task.main_metric
        metrics = [get_metric(r, main_metric) for r in (*self.history, record)]
        *earlier_values, value = (-inf if metric is None else metric for metric in metrics)
        with self._catch_disk_errors():
            stored = self.folder.checkpoint.save_state(state)
            self._writer.append(record)
            manifest = replace(
                self._manifest,
                round=state.round,
                history=self._writer.prefix,
                state=stored,
                clients=state.client_files,
                run=state.run,
                members=state.members,
                clock=state.clock,
            )
            files = {}
            if value > max(earlier_values, default=-inf):
                files[BEST_MODEL_FILE] = self._encode_models(state)
            # federation.json does not depend on Member.last_round, which changes in every round.
            members, old_members = state.members, self._manifest.members
            if [member.client for member in members] != [member.client for member in old_members]:
                files[_FEDERATION] = self._encode_federation(state)
            self._commit(manifest, files, previous=self._manifest)
        self.history.append(record)

    def finish(self, state: RunState, evaluation: Evaluation | None) -> dict[str, Any]:
        """Write the last model, its card and the summary.

        Args:
            state: state after the last round.
            evaluation: evaluation on the test set after the last round, if there was one.

        Returns:
            The content of ``summary.json``.
        """
        federation = dict(self._describe_federation(self._manifest.members))
        method, main_metric = self.algorithm.method.name, self.algorithm.task.main_metric
        summary = summarize(method, self.history, federation, evaluation, main_metric=main_metric)
        files = {
            "model.safetensors": self._encode_models(state),
            "summary.json": format_json(summary).encode(),
        }
        if self.folder.may_overwrite(CARD_FILE):  # else the user has edited the card
            card = format_model_card(self._describe(state), summary, federation)
            files[CARD_FILE] = card.encode()
        with self._catch_disk_errors():
            self._commit(self._manifest, files)
            if not self._keeps_profiles:
                self._commit(replace(self._manifest, state=None, clients={}), {})
        check_best_model(self.folder.path / BEST_MODEL_FILE, self._manifest)
        return summary

    @property
    def _keeps_profiles(self) -> bool:
        return bool(self._options.get("profiles", True))

    def _encode_models(self, state: RunState) -> bytes:
        return encode_model(self.layout.unpack_models(state.global_models), self._describe(state))

    def _describe(self, state: RunState) -> ModelDescription:
        """Return the description of the models for their file."""
        classes = self._describe_federation(state.members)["classes"]
        outputs = self.algorithm.task.num_outputs(len(classes))
        initial = ModelDescription.from_options(self._options, outputs, classes, self.inputs)
        return initial.with_rounds(state.round, list(state.global_models))

    def _commit(
        self, manifest: Manifest, files: Mapping[str, bytes], previous: Manifest | None = None
    ) -> None:
        """Write files, and a manifest that lists them in addition to its other files.

        The files are written as drafts, then the manifest with their digests, and then the drafts
        are renamed. So files and manifest always match: if the process is killed before the
        manifest is written, the old files are unchanged; if it is killed after that, resuming the
        run renames the drafts.

        Args:
            manifest: manifest of the round.
            files: contents of the files by name.
            previous: manifest of the round before, if it is in memory.
        """
        digests = self.folder.stage(files)
        self._manifest = replace(manifest, files={**manifest.files, **digests})
        self.folder.checkpoint.commit(self._manifest, previous)
        self.folder.publish(files)

    def _encode_federation(self, state: RunState) -> bytes:
        """Return the content of ``federation.json``."""
        return format_json(self._describe_federation(state.members)).encode()

    def _resume_history(self, manifest: Manifest) -> None:
        """Read the history up to the round of a manifest, and delete later rounds."""
        path, size = self.folder.history_path, manifest.history.size
        content = read_file(path)[:size] if size else b""
        self.history = parse_records(content, path)
        if any(record.has_profiles() for record in self.history) and not self._keeps_profiles:
            raise CadisError(
                f"The run in {self.folder.path} has kept class profiles of earlier rounds; resume "
                "it without --no-profiles, or start a new run."
            )
        self._writer.resume_after(content)

    def _check_same(self, manifest: Manifest, state: RunState, start: RunState) -> None:
        """Raise an error if options, clients or models differ from those of the run to resume."""
        path = self.folder.path
        check_options(path, manifest.config, self._options)
        digest = compute_digest(self._encode_federation(state))
        if manifest.files.get(_FEDERATION) not in (None, digest):
            raise CadisError(
                f"The run in {path} has other clients or data; use the same clients and data, or "
                "start a new run."
            )
        if _count_parameters(state) != _count_parameters(start):
            raise CadisError(
                f"The run in {path} has a model of another size; use the same model, or start a "
                "new run."
            )
        if state.round > self._options["rounds"]:
            raise CadisError(
                f"The run in {path} already has {state.round} rounds; set rounds to at least "
                f"{state.round}."
            )

    @contextmanager
    def _catch_disk_errors(self) -> Iterator[None]:
        """Convert an OSError, such as a full disk, to an error that says how to resume the run."""
        try:
            yield
        except OSError as error:
            raise RunError(
                f"The folder {self.folder.path} cannot be written: {error.strerror}; solve this "
                "problem and resume the run, which continues after its last finished round."
            ) from None


def _count_parameters(state: RunState) -> set[int]:
    """Return the set of the numbers of parameters of the models."""
    return {len(model.parameters) for model in state.server.models.values()}
