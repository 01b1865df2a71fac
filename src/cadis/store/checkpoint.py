"""Checkpoints: folders with the state of a run after a round, without pickle.

:class:`~cadis.store.RunWriter` saves one after each round. A resumed run gives the same results as
a run that was never interrupted.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from cadis._io import replace_file
from cadis.algorithm import ServerState
from cadis.server import STRICT, Member, RunState
from cadis.store.history import HistoryPrefix
from cadis.store.lock import Lock, lock
from cadis.store.storage import (
    DamagedError,
    compute_digest,
    make_damage_error,
    make_folder,
    parse_json,
    parse_tensor_metadata,
    read_file,
    read_verified,
    sync_folder,
    to_json,
)
from cadis.types import ModelState, StoredFile, TensorState, ids_from_tensor, ids_to_tensor

_MANIFEST = re.compile(r"round-(0|[1-9][0-9]*)\.json")
_DELETABLE = re.compile(r"round-.*\.(json|safetensors)|client-.*\.safetensors")
"""Names of the files that are deleted when no manifest lists them."""
_FALLBACK = "fallback/"
"""Prefix of the names of the tensors of ``RunState.fallback``."""
_ORDER = "order"
"""Metadata key under which a file stores the order of its tensors."""


@dataclass(frozen=True)
class Manifest:
    """List of the files of a run after a round, with their digests.

    Attributes:
        round: the last finished round; 0 before the first.
        history: size and digest of the history at the end of the round.
        config: text of ``config.toml``, from which that file can be restored.
        files: digest of each other file of the run, by file name.
        state: file of the models and the states of all parts; None before the first round, and
            after the last round of a run with ``--no-profiles``.
        clients: file of the state of each client, by client index.
        run: id of the run in a deployment.
        members: clients of a deployment.
        clock: simulated time.
    """

    __pydantic_config__: ClassVar = STRICT
    round: int
    history: HistoryPrefix
    config: str
    files: Mapping[str, str] = field(default_factory=dict)
    state: StoredFile | None = None
    clients: Mapping[int, StoredFile] = field(default_factory=dict)
    run: str = ""
    members: tuple[Member, ...] = ()
    clock: float = 0.0

    @property
    def lacks_state(self) -> bool:
        """Return whether the state was deleted at the end of the run."""
        return self.round > 0 and self.state is None

    def to_bytes(self) -> bytes:
        """Return the content of the manifest file, which includes a digest of itself."""
        text = to_json(self)
        return f'{{"manifest": {text},\n"sha256": "{compute_digest(text.encode())}"}}\n'.encode()

    @classmethod
    def from_bytes(cls, content: bytes, path: Path) -> "Manifest":
        """Parse the content of a manifest file and verify its digest; errors name ``path``."""
        sealed = parse_json(_SealedManifest, content, path)
        text = json.dumps(sealed.manifest, sort_keys=True)
        if compute_digest(text.encode()) != sealed.sha256:
            raise make_damage_error(path)
        return parse_json(cls, text, path)


@dataclass(frozen=True)
class _SealedManifest:
    """A manifest file before its digest is verified."""

    manifest: dict[str, Any]
    sha256: str


class Checkpoint:
    """A folder with the state after the last round and after the round before it.

    Each round has a manifest with the names and digests of its files. The manifest is written after
    these files are on the disk, and older rounds are deleted after that. So a complete round
    remains if the process is killed or the machine loses power at any moment. If the files of the
    last round are damaged, the round before it remains.

    Attributes:
        client_folder: folder of the clients' states.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.client_folder = folder / "clients"

    @property
    def lock_file(self) -> Path:
        """Path of the lock of the process that writes the run."""
        return self._folder / "lock"

    def lock(self) -> Lock:
        """Create missing folders and lock the run."""
        make_folder(self.client_folder, self._folder.parent)
        return lock(self.lock_file, f"The run in {self._folder.parent}")

    def list_manifests(self) -> list[Path]:
        """Return the paths of the manifests, the newest first."""
        paths = self._folder.glob("round-*.json")
        matches = {path: _MANIFEST.fullmatch(path.name) for path in paths}
        rounds = {path: int(match[1]) for path, match in matches.items() if match}
        return sorted(rounds, key=lambda path: -rounds[path])

    def read(self, path: Path) -> Manifest:
        """Read a manifest."""
        return Manifest.from_bytes(read_file(path), path)

    def save_state(self, state: RunState) -> StoredFile:
        """Write the models and states of a round, which :meth:`commit` then makes valid."""
        path = self._folder / f"round-{state.round}.safetensors"
        return store_tensors(path, dict(_iter_tensors(state)))

    def commit(self, manifest: Manifest, previous: Manifest | None = None) -> None:
        """Write the manifest to resume from; keep the round before it, and delete older files.

        If the manifest has rounds but no state, the round before it is deleted too.

        Args:
            manifest: manifest of the round.
            previous: manifest of the round before; if it is not given, it is read from its file.
        """
        if manifest.clients:
            sync_folder(self.client_folder)
        replace_file(self._folder / f"round-{manifest.round}.json", manifest.to_bytes())
        sync_folder(self._folder)
        if manifest.lacks_state:
            previous = None
        elif previous is None or previous.round != manifest.round - 1:
            previous = self._read_round(manifest.round - 1)
        self._delete_all_but([manifest] if previous is None else [manifest, previous])

    def load(self, manifest: Manifest) -> RunState:
        """Read the state after a round and verify all its files."""
        assert manifest.state is not None
        tensors = read_tensors(self._folder, manifest.state)
        for stored in manifest.clients.values():
            read_verified(self.client_folder, stored)
        state = _make_state(tensors, manifest.round, self._folder / manifest.state.name)
        return replace(
            state,
            client_files=dict(manifest.clients),
            run=manifest.run,
            members=manifest.members,
            clock=manifest.clock,
        )

    def _read_round(self, round_number: int) -> Manifest | None:
        """Return the manifest of a round; None if it cannot be read."""
        try:
            return self.read(self._folder / f"round-{round_number}.json")
        except DamagedError:
            return None

    def _delete_all_but(self, manifests: list[Manifest]) -> None:
        names = {f"round-{manifest.round}.json" for manifest in manifests}
        names |= {manifest.state.name for manifest in manifests if manifest.state}
        names |= {stored.name for manifest in manifests for stored in manifest.clients.values()}
        for folder in (self._folder, self.client_folder):
            entries = os.scandir(folder) if folder.is_dir() else ()  # glob takes ten times as long
            for name in {entry.name for entry in entries} - names:
                if _DELETABLE.fullmatch(name) and (folder / name).is_file():
                    (folder / name).unlink()


def store_tensors(path: Path, tensors: Mapping[str, Tensor]) -> StoredFile:
    """Write named tensors to a file, together with their order.

    Safetensors needs contiguous tensors that do not share storage. Models may share storage if a
    method has just copied one from another.
    """
    separate, storages = {}, set[int]()
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        separate[name] = tensor.clone() if storage in storages else tensor.contiguous()
        storages.add(storage)
    content = save(separate, metadata={_ORDER: json.dumps(list(separate))})
    replace_file(path, content)
    return StoredFile(path.name, compute_digest(content))


def read_tensors(folder: Path, stored: StoredFile) -> dict[str, Tensor]:
    """Read the tensors that :func:`store_tensors` wrote, in the same order."""
    content = read_verified(folder, stored)
    try:
        tensors = load(content)  # in an arbitrary order
        return {name: tensors[name] for name in json.loads(parse_tensor_metadata(content)[_ORDER])}
    except (SafetensorError, ValueError, KeyError) as error:
        raise DamagedError(f"{folder / stored.name} is damaged: {error}.") from None


def _iter_tensors(state: RunState) -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors of a state, each with a name such as ``models/model/parameters``."""
    optimizer = state.server_optimizer.items()
    parts: dict[str, TensorState] = {
        **{f"models/{name}": model.vectors() for name, model in state.server.models.items()},
        **{f"averages/{name}": model.vectors() for name, model in state.averages.items()},
        "method": state.server.tensors,
        "sampler": state.sampler,
        **{f"server_optimizer/{name}": part_state for name, part_state in optimizer},
    }
    for part, tensors in parts.items():
        for key, tensor in tensors.items():
            yield f"{part}/{key}", tensor
    if state.fallback is not None:
        yield f"{_FALLBACK}round", torch.tensor(state.fallback.round)
        yield f"{_FALLBACK}suspects", ids_to_tensor(state.suspects)
        for name, tensor in _iter_tensors(state.fallback):
            yield f"{_FALLBACK}{name}", tensor


def _make_state(tensors: Mapping[str, Tensor], round_number: int, file: Path) -> RunState:
    """Build the state after a round from tensors with the names of :func:`_iter_tensors`."""
    length = len(_FALLBACK)
    earlier = {name[length:]: t for name, t in tensors.items() if name.startswith(_FALLBACK)}
    if earlier:
        newest = {name: t for name, t in tensors.items() if not name.startswith(_FALLBACK)}
        number, suspects = earlier.pop("round"), earlier.pop("suspects")
        return replace(
            _make_state(newest, round_number, file),
            fallback=_make_state(earlier, int(number), file),
            suspects=ids_from_tensor(suspects),
        )
    parts: dict[str, dict[str, Tensor]] = {"method": {}, "sampler": {}}
    nested: dict[str, dict[str, dict[str, Tensor]]] = {
        "models": {},
        "averages": {},
        "server_optimizer": {},
    }
    for full_name, tensor in tensors.items():
        part, _, name = full_name.partition("/")
        if part in nested:
            model, _, key = name.rpartition("/")
            nested[part].setdefault(model, {})[key] = tensor
        else:
            parts.setdefault(part, {})[name] = tensor
    try:
        models, averages = (
            {name: ModelState(**fields) for name, fields in nested[part].items()}
            for part in ("models", "averages")
        )
    except TypeError:
        models = averages = {}
    if not models:
        raise DamagedError(f"{file} is damaged: it has no model.")
    server = ServerState(models, parts["method"])
    return RunState(
        round_number, server, parts["sampler"], nested["server_optimizer"], averages=averages
    )
