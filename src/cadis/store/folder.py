"""The folder of a run: its files, their verification, and its lock.

:class:`~cadis.store.RunWriter` writes the folder; analyses, reports and predictors read it.

A file is replaced in three steps. ``stage`` writes its new content to a draft. Then the manifest of
the checkpoint is written, with the digest of the draft: from now on, the new content is valid. Then
``publish`` renames the draft to the file. If the process is killed between the last two steps, the
draft has the valid content.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cadis._io import (
    check_output,
    check_single_name,
    format_json,
    get_draft_path,
    has_name,
    parse_toml,
    replace_text,
    write_draft,
)
from cadis.errors import CadisError
from cadis.server import RoundRecord
from cadis.store.checkpoint import Checkpoint, Manifest
from cadis.store.history import check_history, parse_records
from cadis.store.lock import Lock
from cadis.store.schemas import SCHEMAS
from cadis.store.storage import (
    DamagedError,
    catch_write_errors,
    compute_digest,
    make_damage_error,
    parse_json,
    read_file,
    retry_if_damaged,
    sync_folder,
)

_MARKER = ".cadis-run"
_MARKER_TEXT = "This folder was made for a run of cadis.\n"
_EARLY_FILE = re.compile(
    r"\.cadis-(run|signature)|config\.toml|federation\.json|history\.jsonl|checkpoint/lock|"
    r"checkpoint/round-0\.json|checkpoint/clients/client-\d+-round-1\.safetensors"
)
"""Names of the files that a run writes before its first round ends."""
_DRAFT = re.compile(
    r"\.(\.cadis-(run|signature)|config\.toml|(federation|summary|tracking)\.json|"
    r"(best|model)\.safetensors|report\.html|MODEL_CARD\.md)\.draft|"
    r"checkpoint/\.round-\d+\.(json|safetensors)\.draft|"
    r"checkpoint/clients/\.client-\d+-round-\d+\.safetensors\.draft"
)
"""Names of drafts: the content of a file is written to a draft, which is then renamed."""
_SUFFIXES = {".json", ".jsonl", ".safetensors", ".toml"}
"""Suffixes of all files that a run writes."""
_NAMES = {_MARKER, "checkpoint"}
"""Names without such a suffix."""


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
        return has_name(self.path / "config.toml") or bool(self.checkpoint.list_manifests())

    def has_marker(self) -> bool:
        """Return whether cadis created the folder for a run."""
        return has_name(self.path / _MARKER)

    def has_rounds(self) -> bool:
        """Return whether a round has finished, even if its history is lost."""
        manifest = self._read_manifest()
        return self.get_history_size() > 0 or (manifest is not None and manifest.round > 0)

    def has_state(self) -> bool:
        """Return whether the checkpoint has the state to resume from."""
        manifest = self._read_manifest()
        return manifest is not None and not manifest.lacks_state

    def has_summary(self) -> bool:
        """Return whether the run has finished, even if its summary is lost."""
        return has_name(self.path / "summary.json") or "summary.json" in self._read_digests()

    def get_history_size(self) -> int:
        """Return the size of the history in bytes, which grows with every round."""
        return self.history_path.stat().st_size if self.history_path.exists() else 0

    def lock_new(self) -> Lock:
        """Lock a folder for a new run.

        The folder must be missing or empty, or have a run that stopped before the end of its first
        round; the files of such a run are deleted.
        """
        with catch_write_errors(self.path):
            check_output(self.path)
            self._list_early_files()
            lock = self.checkpoint.lock()
            try:
                # Check again: another process may have written files before this one got the lock.
                for path in self._list_early_files():
                    path.unlink()
                replace_text(self.path / _MARKER, _MARKER_TEXT, self.path)
            except BaseException:
                lock.close()
                raise
        return lock

    def lock_existing(self) -> Lock:
        """Lock the folder of a run that is resumed."""
        with catch_write_errors(self.path):
            check_output(self.path)
            self._check_has_run()
            self._check_files()
        with catch_write_errors(self.path):
            return self.checkpoint.lock()  # creates folders that are missing in a copy

    def read_config(self) -> dict[str, Any]:
        """Return all options, from ``config.toml`` or, if it is missing, from the checkpoint."""
        self._check_has_run()
        path = self.path / "config.toml"
        if not has_name(path) and (manifest := self._read_manifest()) is not None:
            return parse_toml(manifest.config, path)
        try:
            return parse_toml(self._read(path.name).decode(), path)
        except (DamagedError, UnicodeDecodeError):
            raise DamagedError(
                f"{path} is damaged or was edited; delete it to resume the run from its "
                "checkpoint, and give new options on the command line."
            ) from None

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the object in a file such as ``federation.json`` or ``summary.json``."""
        try:
            content = self._read(name)
            if name in SCHEMAS:
                parse_json(SCHEMAS[name], content, self.path / name)
            return parse_json(dict[str, Any], content, self.path / name)
        except DamagedError as error:
            if name not in SCHEMAS:
                raise
            raise DamagedError(
                f"{str(error).removesuffix('.')}; resume the run to write it again."
            ) from None

    def read_model(self, best: bool = False) -> bytes:
        """Return the content of the file of the last model, or of the best model so far."""
        name = "best.safetensors" if best else "model.safetensors"
        self._check_has_run()
        if not has_name(self.path / name):
            reason = "it has not finished: resume it, or use its best model so far"
            if best:
                reason = "no round was tested yet: resume it"
            raise CadisError(f"The run in {self.path} has no {name}; {reason}.")
        return self._read(name)

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write an object to a JSON file."""
        replace_text(self.path / name, format_json(content), self.path)

    @retry_if_damaged
    def read_history(self) -> list[RoundRecord]:
        """Return the records of all rounds; an incomplete last line is ignored."""
        manifest = self._read_manifest()
        content = read_file(self.history_path) if has_name(self.history_path) else b""
        if manifest is not None:
            check_history(content, manifest.history, self.history_path)
        return parse_records(content, self.history_path)

    def stage(self, files: Mapping[str, bytes]) -> dict[str, str]:
        """Write the contents of files to drafts; return their digests for the next manifest."""
        for name, content in files.items():
            write_draft(self.path / name, content, self.path)
        if files:
            sync_folder(self.path)
        return {name: compute_digest(content) for name, content in files.items()}

    def may_overwrite(self, name: str) -> bool:
        """Return whether a file is missing or still has the content that the run wrote.

        Else the user has replaced or edited it, or it is damaged.
        """
        path = self.path / name
        if path.is_symlink() or not path.exists():
            return not path.is_symlink()
        try:
            digest = self._read_digests().get(name)
            return path.is_file() and compute_digest(read_file(path)) == digest
        except DamagedError:
            return False

    def publish(self, names: Iterable[str]) -> None:
        """Rename drafts to their final names."""
        for name in names:
            get_draft_path(self.path / name).replace(self.path / name)

    def publish_pending(self, manifest: Manifest) -> None:
        """Rename the drafts of a killed process, if their digests are in the manifest."""
        drafts = {name: get_draft_path(self.path / name) for name in manifest.files}
        self.publish(
            name
            for name, draft in drafts.items()
            if has_name(draft)
            and not draft.is_symlink()
            and compute_digest(read_file(draft)) == manifest.files[name]
        )

    def delete_drafts(self) -> None:
        """Delete the drafts that a killed process left behind."""
        for name, path in self._list_paths().items():
            if _DRAFT.fullmatch(name):
                path.unlink()

    @retry_if_damaged
    def _read(self, name: str) -> bytes:
        """Return the content of a file, or of its draft if the draft was not renamed yet.

        The digest in the manifest shows which of the two is valid.
        """
        content = read_file(self.path / name)
        digest = self._read_digests().get(name)
        if digest in (None, compute_digest(content)):
            return content
        draft = get_draft_path(self.path / name)
        staged = read_file(draft) if has_name(draft) else b""
        if compute_digest(staged) != digest:
            raise make_damage_error(self.path / name)
        return staged

    def _read_manifest(self) -> Manifest | None:
        """Return the newest manifest that is not damaged; None if there is none."""
        for path in self.checkpoint.list_manifests():
            try:
                return self.checkpoint.read(path)
            except DamagedError:
                continue
        return None

    def _read_digests(self) -> Mapping[str, str]:
        """Return the digests of all files; empty if the newest manifest is damaged."""
        paths = self.checkpoint.list_manifests()
        try:
            return self.checkpoint.read(paths[0]).files if paths else {}
        except DamagedError:
            return {}

    def _check_has_run(self) -> None:
        if not self.has_run():
            hint = "; a run stopped there before it wrote anything: start it again without resume"
            raise CadisError(
                f"There is no run in the folder {self.path}{hint if self.has_marker() else ''}."
            )

    def _list_paths(self) -> dict[str, Path]:
        """Return all paths in the folders of the run, by their names relative to the run folder."""
        if not self.path.exists():
            return {}
        run_folders = [self.path, self.path / "checkpoint", self.client_folder]
        folders = [folder for folder in run_folders if folder.is_dir() and not folder.is_symlink()]
        paths = (path for folder in folders for path in folder.iterdir() if path not in folders)
        return {path.relative_to(self.path).as_posix(): path for path in paths}

    def _check_files(self) -> None:
        """Raise an error if a file of the run is a folder or a pipe, or would change another file.

        This is checked before the first round, not when the file is written.
        """
        check_output(self.figures)
        for name, path in self._list_paths().items():
            is_ours = path.suffix in _SUFFIXES or name in _NAMES or path.parent != self.path
            if not is_ours or _DRAFT.fullmatch(name):
                continue
            check_output(path)
            if path.is_dir() and path.suffix in _SUFFIXES:
                raise DamagedError(f"{path} is a folder but must be a file; move the folder away.")
            if path in (self.history_path, self.checkpoint.lock_file):  # not replaced
                check_single_name(path)

    def _list_early_files(self) -> list[Path]:
        """Return the files of a run that stopped before its first round ended.

        Raise an error if the folder has any other files. The lock file is not returned.
        """
        files = self._list_paths()
        # A run writes these files before its marker, so they do not need the marker.
        before_marker = {"checkpoint/lock", get_draft_path(Path(_MARKER)).name}
        is_known = all(
            (_EARLY_FILE.fullmatch(name) or _DRAFT.fullmatch(name))
            and path.is_file()
            and not path.is_symlink()
            for name, path in files.items()
        )
        is_ours = _MARKER in files or files.keys() <= before_marker
        if not is_known or not is_ours or self.has_rounds():
            hint = ", or resume the run in it" if self.has_run() else ""
            raise CadisError(f"The folder {self.path} is not empty; choose another folder{hint}.")
        return [path for name, path in files.items() if name != "checkpoint/lock"]
