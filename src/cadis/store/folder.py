"""What a run leaves behind: a folder that reports read."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, TypeVar

from cadis._io import object_text, parse_toml
from cadis.errors import CadisError
from cadis.server import STRICT, RoundRecord
from cadis.store.checkpoint import Checkpoint, Manifest
from cadis.store.history import check_history, read_records
from cadis.store.lock import Lock
from cadis.store.storage import (
    DamagedError,
    damaged,
    digest_of,
    draft_of,
    read_as,
    read_file,
    replace_text,
    sync_folder,
    write_draft,
)
from cadis.types import ClientId

_MARKER = ".cadis-run"
_MARKER_TEXT = "This folder was made for a run of cadis.\n"
_BEGINNING = re.compile(
    r"\.cadis-run|config\.toml|federation\.json|history\.jsonl|checkpoint/lock|"
    r"checkpoint/round-0\.json|checkpoint/clients/client-\d+-round-1\.safetensors"
)
"""Files of a run before its first round has ended."""
_DRAFT = re.compile(
    r"\.(\.cadis-run|config\.toml|(federation|summary|tracking)\.json|(best|model)\.safetensors|"
    r"report\.html|MODEL_CARD\.md)\.draft|checkpoint/\.round-\d+\.(json|safetensors)\.draft|"
    r"checkpoint/clients/\.client-\d+-round-\d+\.safetensors\.draft"
)
"""What is written under another name first."""


@dataclass(frozen=True)
class ClientShape:
    """A client in ``federation.json``: its samples per class and its true cluster, if known.

    Samples are those that it trains on; those that it has held out to be tested on, if any were
    asked for, are counted apart.
    """

    __pydantic_config__: ClassVar = STRICT
    id: ClientId
    cluster: int | None
    samples: list[int] | None
    test_samples: list[int] | None = None


@dataclass(frozen=True)
class FederationShape:
    """What ``federation.json`` must look like."""

    __pydantic_config__: ClassVar = STRICT
    classes: list[str]
    clients: list[ClientShape]


@dataclass(frozen=True)
class SummaryShape:
    """What ``summary.json`` must look like, as far as anybody relies on it."""

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
"""Those of all files that are written while a run works."""
_LOOKS = 4
"""How often a file is looked at, at most: it may be written just then."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _look_again(read: Callable[_P, _T]) -> Callable[_P, _T]:
    """Read again what seems damaged: the process that runs may just then be writing it."""

    @wraps(read)
    def reading(*arguments: _P.args, **options: _P.kwargs) -> _T:
        for _ in range(_LOOKS - 1):
            try:
                return read(*arguments, **options)
            except DamagedError:
                time.sleep(0.05)
        return read(*arguments, **options)

    return reading


@contextmanager
def cannot_be_written(folder: Path) -> Iterator[None]:
    """What the system refuses becomes a sentence."""
    try:
        yield
    except OSError as error:
        raise CadisError(f"The folder {folder} cannot be written: {error.strerror}.") from None


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run.

    ``config.toml`` (resolved), ``federation.json`` (who has what), ``history.jsonl`` (an object
    a round), ``summary.json``, ``model.safetensors`` (the last), ``best.safetensors``,
    ``MODEL_CARD.md``, ``checkpoint/`` and ``figures/``.
    """

    path: Path

    @property
    def checkpoint(self) -> Checkpoint:
        """Where to go on from."""
        return Checkpoint(self.path / "checkpoint")

    @property
    def client_folder(self) -> Path:
        """Where clients' memories are kept."""
        return self.checkpoint.client_folder

    @property
    def figures(self) -> Path:
        """Where pictures go."""
        return self.path / "figures"

    @property
    def history_path(self) -> Path:
        """The file that has a line for each round."""
        return self.path / "history.jsonl"

    def holds_run(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / "config.toml").exists() or bool(self.checkpoint.manifests())

    def is_ours(self) -> bool:
        """Whether the folder was made for a run."""
        return (self.path / _MARKER).exists()

    def has_rounds(self) -> bool:
        """Whether a round has ended, be its history lost."""
        manifest = self._manifest()
        return self.history_size() > 0 or (manifest is not None and manifest.round > 0)

    def has_summary(self) -> bool:
        """Whether the run has come to an end, be its summary lost."""
        return (self.path / "summary.json").exists() or "summary.json" in self._digests()

    def history_size(self) -> int:
        """Bytes of history; they grow with every round."""
        return self.history_path.stat().st_size if self.history_path.exists() else 0

    def claim(self) -> Lock:
        """Lock a folder that is new, empty, or of a run that ended before its first round did."""
        with cannot_be_written(self.path):
            self._beginning()
            held = self.checkpoint.lock()
            try:
                for path in self._beginning():  # looked at again: others may have been quicker
                    path.unlink()
                replace_text(self.path / _MARKER, _MARKER_TEXT)
            except BaseException:
                held.close()
                raise
        return held

    def reopen(self) -> Lock:
        """Lock the folder of a run that is to go on."""
        self._check_begun()
        for path in self._files().values():
            if path.is_dir() and path.suffix in _SUFFIXES:
                raise DamagedError(f"{path} is a folder where a file belongs; move it away.")
        with cannot_be_written(self.path):
            return self.checkpoint.lock()  # which makes empty folders that a copy may lack

    def read_config(self) -> dict[str, Any]:
        """The resolved options; if their file is gone, those that the checkpoint remembers."""
        self._check_begun()
        path = self.path / "config.toml"
        if not path.exists() and (manifest := self._manifest()) is not None:
            return parse_toml(manifest.config, path)
        try:
            return parse_toml(self._read(path.name).decode(), path)
        except (DamagedError, UnicodeDecodeError):
            raise DamagedError(
                f"{path} is not what the run has written; change options on the command line. "
                "If the file is deleted, a run that has a checkpoint goes on without it."
            ) from None

    def read_json(self, name: str) -> dict[str, Any]:
        """An object in a file of its own: ``federation.json`` or ``summary.json``."""
        try:
            content = self._read(name)
            if name in _SHAPES:
                read_as(_SHAPES[name], content, self.path / name)
            return read_as(dict[str, Any], content, self.path / name)
        except DamagedError as error:
            if name not in _SHAPES:
                raise
            raise DamagedError(
                f"{str(error).removesuffix('.')}; resume the run, and it is written again."
            ) from None

    def read_model(self, best: bool = False) -> bytes:
        """The file of the last model, or of the best one so far."""
        name = "best.safetensors" if best else "model.safetensors"
        self._check_begun()
        if not (self.path / name).exists():
            instead = "it has not come to its end: resume it, or take its best model so far"
            if best:
                instead = "no round of it was tested"
            raise CadisError(f"The run in {self.path} has no {name}; {instead}.")
        return self._read(name)

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Keep an object in a file of its own."""
        replace_text(self.path / name, object_text(content))

    @_look_again
    def read_history(self) -> list[RoundRecord]:
        """All rounds. A last line that was not finished is passed over."""
        manifest = self._manifest()
        content = read_file(self.history_path) if self.history_path.exists() else b""
        if manifest is not None:
            check_history(content, manifest.history, self.history_path)
        return read_records(content, self.history_path)

    def stage(self, files: Mapping[str, bytes]) -> dict[str, str]:
        """Bring files to the disk for the next manifest to put in place; return their digests."""
        for name, content in files.items():
            write_draft(self.path / name, content)
        if files:
            sync_folder(self.path)
        return {name: digest_of(content) for name, content in files.items()}

    def is_unchanged(self, name: str) -> bool:
        """Whether a file is what the run has written, or not there; else it is a user's."""
        path = self.path / name
        if path.is_symlink() or not path.exists():
            return not path.is_symlink()
        try:
            return path.is_file() and self._digests().get(name) == digest_of(read_file(path))
        except DamagedError:
            return False

    def publish(self, names: Iterable[str]) -> None:
        """Put staged files in place."""
        for name in names:
            draft_of(self.path / name).replace(self.path / name)

    def publish_late(self, manifest: Manifest) -> None:
        """Put in place what was staged when a process was killed, if the manifest speaks of it."""
        drafts = {name: draft_of(self.path / name) for name in manifest.files}
        self.publish(
            name
            for name, draft in drafts.items()
            if draft.exists() and digest_of(read_file(draft)) == manifest.files[name]
        )

    def sweep(self) -> None:
        """Drop what a process that was killed had begun to write."""
        for name, path in self._files().items():
            if _DRAFT.fullmatch(name):
                path.unlink()

    @_look_again
    def _read(self, name: str) -> bytes:
        """A file, which must be what the newest manifest says; it may be staged as yet."""
        content = read_file(self.path / name)
        digest = self._digests().get(name)
        if digest in (None, digest_of(content)):
            return content
        draft = draft_of(self.path / name)
        staged = read_file(draft) if draft.exists() else b""
        if digest_of(staged) != digest:
            raise damaged(self.path / name)
        return staged

    def _manifest(self) -> Manifest | None:
        """The newest manifest that can be read; None if there is none."""
        for path in self.checkpoint.manifests():
            try:
                return self.checkpoint.read(path)
            except DamagedError:
                continue
        return None

    def _digests(self) -> Mapping[str, str]:
        """What files must hold; nothing is known if the newest manifest is damaged."""
        paths = self.checkpoint.manifests()
        try:
            return self.checkpoint.read(paths[0]).files if paths else {}
        except DamagedError:
            return {}

    def _check_begun(self) -> None:
        if not self.holds_run():
            hint = "; the one there was has not begun: start it without resume"
            ours = self.is_ours()
            raise CadisError(f"There is no run in the folder {self.path}{hint if ours else ''}.")

    def _files(self) -> dict[str, Path]:
        """Everything in the run's folders but these themselves, by its name within the run's."""
        if not self.path.exists():
            return {}
        own = [self.path, self.path / "checkpoint", self.client_folder]
        folders = [folder for folder in own if folder.is_dir() and not folder.is_symlink()]
        found = (path for folder in folders for path in folder.iterdir() if path not in folders)
        return {path.relative_to(self.path).as_posix(): path for path in found}

    def _beginning(self) -> list[Path]:
        """Files of a run that ended before its first round was done; all others are refused."""
        files = self._files()
        nothing = {"checkpoint/lock", draft_of(Path(_MARKER)).name}
        known = all(
            (_BEGINNING.fullmatch(name) or _DRAFT.fullmatch(name))
            and path.is_file()
            and not path.is_symlink()
            for name, path in files.items()
        )
        marked = _MARKER in files or files.keys() <= nothing
        if not known or not marked or self.has_rounds():
            hint = ", or resume the run in it" if self.holds_run() else ""
            raise CadisError(f"The folder {self.path} is not empty; choose another{hint}.")
        return [path for name, path in files.items() if name != "checkpoint/lock"]
