"""The folder of a run: its files, their verification, and its lock.

:class:`~cadis.store.RunWriter` writes the folder; analyses, reports and predictors read it.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, TypeVar

from cadis._io import format_json, parse_toml
from cadis.errors import CadisError
from cadis.server import STRICT, RoundRecord
from cadis.store.checkpoint import Checkpoint, Manifest
from cadis.store.history import check_history, parse_records
from cadis.store.lock import Lock
from cadis.store.storage import (
    DamagedError,
    compute_digest,
    get_draft_path,
    make_damage_error,
    parse_json,
    read_file,
    replace_text,
    sync_folder,
    write_draft,
)
from cadis.types import ClientId

_MARKER = ".cadis-run"
_MARKER_TEXT = "This folder was made for a run of cadis.\n"
_EARLY_FILE = re.compile(
    r"\.cadis-run|config\.toml|federation\.json|history\.jsonl|checkpoint/lock|"
    r"checkpoint/round-0\.json|checkpoint/clients/client-\d+-round-1\.safetensors"
)
"""Files of a run before the end of its first round."""
_DRAFT = re.compile(
    r"\.(\.cadis-run|config\.toml|(federation|summary|tracking)\.json|(best|model)\.safetensors|"
    r"report\.html|MODEL_CARD\.md)\.draft|checkpoint/\.round-\d+\.(json|safetensors)\.draft|"
    r"checkpoint/clients/\.client-\d+-round-\d+\.safetensors\.draft"
)
"""Drafts: files that are written under this name and then renamed."""


@dataclass(frozen=True)
class ClientShape:
    """A client in ``federation.json``.

    Attributes:
        id: id of the client.
        cluster: true cluster, if known.
        samples: number of training samples per class, if known.
        test_samples: number of held-out samples per class, if samples are held out.
    """

    __pydantic_config__: ClassVar = STRICT
    id: ClientId
    cluster: int | None
    samples: list[int] | None
    test_samples: list[int] | None = None


@dataclass(frozen=True)
class FederationShape:
    """Schema of ``federation.json``."""

    __pydantic_config__: ClassVar = STRICT
    classes: list[str]
    clients: list[ClientShape]


@dataclass(frozen=True)
class SummaryShape:
    """Schema of ``summary.json``: the keys that other packages read."""

    method: str
    rounds: int
    accuracy: float | None
    loss: float | None
    best_accuracy: float | None
    best_round: int
    rare_classes: list[int]
    rare_accuracy: float | None
    rejected: int
    confusion: list[list[int]] | None
    seconds: dict[str, float]
    versions: dict[str, str]
    clusters_found: int = 0
    clusters_among: int | None = None
    cluster_agreement: float | None = None
    round_agreement: float | None = None


_SHAPES: dict[str, type] = {"federation.json": FederationShape, "summary.json": SummaryShape}
_SUFFIXES = {".json", ".jsonl", ".safetensors", ".toml"}
"""Suffixes of all files that a run writes."""
_READ_ATTEMPTS = 4
"""Number of attempts to read a file, since another process may be writing it."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _retry_if_damaged(read: Callable[_P, _T]) -> Callable[_P, _T]:
    """Repeat a read that finds damage, since the process of the run may be writing the file."""

    @wraps(read)
    def read_repeatedly(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        for _ in range(_READ_ATTEMPTS - 1):
            try:
                return read(*args, **kwargs)
            except DamagedError:
                time.sleep(0.05)
        return read(*args, **kwargs)

    return read_repeatedly


@contextmanager
def catch_write_errors(folder: Path) -> Iterator[None]:
    """Turn an OSError into an error message that names the folder."""
    try:
        yield
    except OSError as error:
        raise CadisError(f"The folder {folder} cannot be written: {error.strerror}.") from None


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run.

    It has ``config.toml`` (all options), ``federation.json`` (samples of each client),
    ``history.jsonl`` (one object per round), ``summary.json``, ``model.safetensors`` (the last
    model), ``best.safetensors``, ``MODEL_CARD.md``, ``checkpoint/`` and ``figures/``.
    """

    path: Path

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint to resume from."""
        return Checkpoint(self.path / "checkpoint")

    @property
    def client_folder(self) -> Path:
        """Folder of the clients' states."""
        return self.checkpoint.client_folder

    @property
    def figures(self) -> Path:
        """Folder of the figures."""
        return self.path / "figures"

    @property
    def history_path(self) -> Path:
        """File with one line per round."""
        return self.path / "history.jsonl"

    def has_run(self) -> bool:
        """Return whether the folder has a run, finished or not."""
        return (self.path / "config.toml").exists() or bool(self.checkpoint.manifests())

    def has_marker(self) -> bool:
        """Return whether cadis created the folder for a run."""
        return (self.path / _MARKER).exists()

    def has_rounds(self) -> bool:
        """Return whether a round has finished, even if its history is lost."""
        manifest = self._manifest()
        return self.history_size() > 0 or (manifest is not None and manifest.round > 0)

    def has_summary(self) -> bool:
        """Return whether the run has finished, even if its summary is lost."""
        return (self.path / "summary.json").exists() or "summary.json" in self._digests()

    def history_size(self) -> int:
        """Return the size of the history in bytes, which grows with every round."""
        return self.history_path.stat().st_size if self.history_path.exists() else 0

    def lock_new(self) -> Lock:
        """Lock a folder for a new run.

        The folder must be missing or empty, or have a run that stopped before the end of its first
        round; the files of such a run are deleted.
        """
        with catch_write_errors(self.path):
            self._list_early_files()
            lock = self.checkpoint.lock()
            try:
                for path in self._list_early_files():  # again, since another process may have won
                    path.unlink()
                replace_text(self.path / _MARKER, _MARKER_TEXT)
            except BaseException:
                lock.close()
                raise
        return lock

    def lock_existing(self) -> Lock:
        """Lock the folder of a run that is resumed."""
        self._check_has_run()
        for path in self._files().values():
            if path.is_dir() and path.suffix in _SUFFIXES:
                raise DamagedError(f"{path} is a folder but must be a file; move the folder away.")
        with catch_write_errors(self.path):
            return self.checkpoint.lock()  # creates empty folders, which a copy may lack

    def read_config(self) -> dict[str, Any]:
        """Return all options, from ``config.toml`` or, if it is missing, from the checkpoint."""
        self._check_has_run()
        path = self.path / "config.toml"
        if not path.exists() and (manifest := self._manifest()) is not None:
            return parse_toml(manifest.config, path)
        try:
            return parse_toml(self._read(path.name).decode(), path)
        except (DamagedError, UnicodeDecodeError):
            raise DamagedError(
                f"{path} is not what the run has written; change options on the command line. "
                "A run with a checkpoint can be resumed after the file is deleted."
            ) from None

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the object in a file such as ``federation.json`` or ``summary.json``."""
        try:
            content = self._read(name)
            if name in _SHAPES:
                parse_json(_SHAPES[name], content, self.path / name)
            return parse_json(dict[str, Any], content, self.path / name)
        except DamagedError as error:
            if name not in _SHAPES:
                raise
            raise DamagedError(
                f"{str(error).removesuffix('.')}; resume the run to write it again."
            ) from None

    def read_model(self, best: bool = False) -> bytes:
        """Return the content of the file of the last model, or of the best model so far."""
        name = "best.safetensors" if best else "model.safetensors"
        self._check_has_run()
        if not (self.path / name).exists():
            reason = "it has not finished: resume it, or use its best model so far"
            if best:
                reason = "no round was tested yet: resume it"
            raise CadisError(f"The run in {self.path} has no {name}; {reason}.")
        return self._read(name)

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write an object to a JSON file."""
        replace_text(self.path / name, format_json(content))

    @_retry_if_damaged
    def read_history(self) -> list[RoundRecord]:
        """Return the records of all rounds, without a last line that is incomplete."""
        manifest = self._manifest()
        content = read_file(self.history_path) if self.history_path.exists() else b""
        if manifest is not None:
            check_history(content, manifest.history, self.history_path)
        return parse_records(content, self.history_path)

    def stage(self, files: Mapping[str, bytes]) -> dict[str, str]:
        """Write drafts of files for the next manifest to the disk; return their digests."""
        for name, content in files.items():
            write_draft(self.path / name, content)
        if files:
            sync_folder(self.path)
        return {name: compute_digest(content) for name, content in files.items()}

    def is_unchanged(self, name: str) -> bool:
        """Return whether a file is missing or as the run has written it, not changed by a user."""
        path = self.path / name
        if path.is_symlink() or not path.exists():
            return not path.is_symlink()
        try:
            return path.is_file() and self._digests().get(name) == compute_digest(read_file(path))
        except DamagedError:
            return False

    def publish(self, names: Iterable[str]) -> None:
        """Rename drafts to their final names."""
        for name in names:
            get_draft_path(self.path / name).replace(self.path / name)

    def publish_pending(self, manifest: Manifest) -> None:
        """Rename the drafts that a killed process has left, if the manifest lists them."""
        drafts = {name: get_draft_path(self.path / name) for name in manifest.files}
        self.publish(
            name
            for name, draft in drafts.items()
            if draft.exists() and compute_digest(read_file(draft)) == manifest.files[name]
        )

    def delete_drafts(self) -> None:
        """Delete the drafts that a killed process has left."""
        for name, path in self._files().items():
            if _DRAFT.fullmatch(name):
                path.unlink()

    @_retry_if_damaged
    def _read(self, name: str) -> bytes:
        """Return the content of a file, or of its draft, that the newest manifest lists."""
        content = read_file(self.path / name)
        digest = self._digests().get(name)
        if digest in (None, compute_digest(content)):
            return content
        draft = get_draft_path(self.path / name)
        staged = read_file(draft) if draft.exists() else b""
        if compute_digest(staged) != digest:
            raise make_damage_error(self.path / name)
        return staged

    def _manifest(self) -> Manifest | None:
        """Return the newest manifest that can be read; None if no manifest can."""
        for path in self.checkpoint.manifests():
            try:
                return self.checkpoint.read(path)
            except DamagedError:
                continue
        return None

    def _digests(self) -> Mapping[str, str]:
        """Return the digests of all files; empty if the newest manifest is damaged."""
        paths = self.checkpoint.manifests()
        try:
            return self.checkpoint.read(paths[0]).files if paths else {}
        except DamagedError:
            return {}

    def _check_has_run(self) -> None:
        if not self.has_run():
            hint = "; a run there stopped before it wrote anything: start it without resume"
            is_started = self.has_marker()
            raise CadisError(
                f"There is no run in the folder {self.path}{hint if is_started else ''}."
            )

    def _files(self) -> dict[str, Path]:
        """Return all paths in the folders of the run, by their names relative to the run."""
        if not self.path.exists():
            return {}
        run_folders = [self.path, self.path / "checkpoint", self.client_folder]
        folders = [folder for folder in run_folders if folder.is_dir() and not folder.is_symlink()]
        paths = (path for folder in folders for path in folder.iterdir() if path not in folders)
        return {path.relative_to(self.path).as_posix(): path for path in paths}

    def _list_early_files(self) -> list[Path]:
        """Return the files of a run that stopped before its first round ended.

        Raise an error if the folder has any other files.
        """
        files = self._files()
        empty = {"checkpoint/lock", get_draft_path(Path(_MARKER)).name}
        is_known = all(
            (_EARLY_FILE.fullmatch(name) or _DRAFT.fullmatch(name))
            and path.is_file()
            and not path.is_symlink()
            for name, path in files.items()
        )
        is_ours = _MARKER in files or files.keys() <= empty
        if not is_known or not is_ours or self.has_rounds():
            hint = ", or resume the run in it" if self.has_run() else ""
            raise CadisError(f"The folder {self.path} is not empty; choose another{hint}.")
        return [path for name, path in files.items() if name != "checkpoint/lock"]
