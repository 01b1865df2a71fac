"""Stop at any time, go on exactly: the state after a round, in a folder, without pickle."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from cadis.algorithm import ServerState
from cadis.server import STRICT, Member, RunState
from cadis.store.history import HistoryMark
from cadis.store.lock import Lock, lock
from cadis.store.storage import (
    DamagedError,
    damaged,
    digest_of,
    make_folder,
    read_as,
    read_file,
    read_stored,
    replace_file,
    sync_folder,
    tensor_metadata,
    to_json,
)
from cadis.types import ModelState, StoredFile, TensorState

_MANIFEST = re.compile(r"round-(0|[1-9][0-9]*)\.json")
_OURS = re.compile(r"round-.*\.(json|safetensors)|client-.*\.safetensors")
"""Files that are dropped when no manifest speaks of them."""
_ORDER = "order"
"""Under which a file of tensors tells their order."""


@dataclass(frozen=True)
class Manifest:
    """All that a round left on the disk.

    Attributes:
        round: the last round done, 0 before the first one.
        history: how far the history goes.
        config: the text of ``config.toml``, from which that file can be restored.
        files: by name, the digest of every other file of the run that may be looked at.
        state: the model and the method's memory; None before the first round.
        clients: by client number, the file that holds its memory.
        run: a deployment's name for the run.
        members: who is who in a deployment.
        clock: the simulated time.
    """

    __pydantic_config__: ClassVar = STRICT
    round: int
    history: HistoryMark
    config: str
    files: Mapping[str, str] = field(default_factory=dict)
    state: StoredFile | None = None
    clients: Mapping[int, StoredFile] = field(default_factory=dict)
    run: str = ""
    members: tuple[Member, ...] = ()
    clock: float = 0.0

    def to_bytes(self) -> bytes:
        """As it is stored: with a digest of its own, since nothing else vouches for it."""
        text = to_json(self)
        return f'{{"manifest": {text},\n"sha256": "{digest_of(text.encode())}"}}\n'.encode()

    @classmethod
    def from_bytes(cls, content: bytes, where: Path) -> "Manifest":
        """The inverse of :meth:`to_bytes`; ``where`` is named if it is damaged."""
        sealed = read_as(_Sealed, content, where)
        text = json.dumps(sealed.manifest, sort_keys=True)
        if digest_of(text.encode()) != sealed.sha256:
            raise damaged(where)
        return read_as(cls, text, where)


@dataclass(frozen=True)
class _Sealed:
    """What is stored, before it is known to be a manifest."""

    manifest: dict[str, Any]
    sha256: str


class Checkpoint:
    """A checkpoint folder: the last round, and the one before.

    Each round has a manifest that names its files and their digests. It is put in place when
    they all are on the disk, and only then is the round before the last one dropped. So a run
    that is killed, or whose machine loses power, at any moment is found as it was after some
    round; and if the last round is damaged, there is another.

    Attributes:
        client_folder: where clients' memories are written while a round is under way.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.client_folder = folder / "clients"

    @property
    def lock_file(self) -> Path:
        """Held by whoever works on the run."""
        return self._folder / "lock"

    def lock(self) -> Lock:
        """Keep others from working on the same run; folders that are missing are made."""
        make_folder(self.client_folder)
        return lock(self.lock_file, f"The run in {self._folder.parent}")

    def manifests(self) -> list[Path]:
        """Those of the rounds that are kept, the newest first."""
        found = {path: _MANIFEST.fullmatch(path.name) for path in self._folder.glob("round-*.json")}
        rounds = {path: int(match[1]) for path, match in found.items() if match}
        return sorted(rounds, key=lambda path: -rounds[path])

    def read(self, path: Path) -> Manifest:
        """One of the manifests."""
        return Manifest.from_bytes(read_file(path), path)

    def save_state(self, state: RunState) -> StoredFile:
        """Bring the models and all memories to the disk; they count with their manifest."""
        path = self._folder / f"round-{state.round}.safetensors"
        return store_tensors(path, dict(_named_tensors(state)))

    def commit(self, manifest: Manifest, last: Manifest | None = None) -> None:
        """Make a round the one to go on from, and drop what is older than the round before.

        Where the manifest that was committed last is that of the round before, it is not read.
        """
        if manifest.clients:
            sync_folder(self.client_folder)
        replace_file(self._folder / f"round-{manifest.round}.json", manifest.to_bytes())
        sync_folder(self._folder)
        if last is None or last.round != manifest.round - 1:
            last = self._read_round(manifest.round - 1)
        self._drop_all_but([manifest] if last is None else [manifest, last])

    def load(self, manifest: Manifest) -> RunState:
        """The state after a round; every file of it must be what was written."""
        assert manifest.state is not None
        tensors = read_tensors(self._folder, manifest.state)
        for stored in manifest.clients.values():
            read_stored(self.client_folder, stored)
        state = _state_of(tensors, manifest.round, self._folder / manifest.state.name)
        return replace(
            state,
            client_files=dict(manifest.clients),
            run=manifest.run,
            members=manifest.members,
            clock=manifest.clock,
        )

    def _read_round(self, number: int) -> Manifest | None:
        """The manifest of a round, if it can be read."""
        try:
            return self.read(self._folder / f"round-{number}.json")
        except DamagedError:
            return None

    def _drop_all_but(self, kept: list[Manifest]) -> None:
        names = {f"round-{manifest.round}.json" for manifest in kept}
        names |= {manifest.state.name for manifest in kept if manifest.state}
        names |= {stored.name for manifest in kept for stored in manifest.clients.values()}
        for folder in (self._folder, self.client_folder):
            entries = os.scandir(folder) if folder.is_dir() else ()  # glob takes ten times as long
            for name in {entry.name for entry in entries} - names:
                if _OURS.fullmatch(name) and (folder / name).is_file():
                    (folder / name).unlink()


def store_tensors(path: Path, tensors: Mapping[str, Tensor]) -> StoredFile:
    """Bring named tensors to the disk; their order is kept, too.

    The file format wants contiguous tensors that share no memory. Models may share some, when one
    has just been begun from another.
    """
    named, taken = {}, set[int]()
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        named[name] = tensor.clone() if place in taken else tensor.contiguous()
        taken.add(place)
    content = save(named, metadata={_ORDER: json.dumps(list(named))})
    replace_file(path, content)
    return StoredFile(path.name, digest_of(content))


def read_tensors(folder: Path, stored: StoredFile) -> dict[str, Tensor]:
    """The inverse of :func:`store_tensors`."""
    content = read_stored(folder, stored)
    try:
        tensors = load(content)  # in any order
        return {name: tensors[name] for name in json.loads(tensor_metadata(content)[_ORDER])}
    except (SafetensorError, ValueError, KeyError) as error:
        raise DamagedError(f"{folder / stored.name} is damaged: {error}.") from None


def _named_tensors(state: RunState) -> Iterator[tuple[str, Tensor]]:
    """All tensors of a state, each under the name of the part that it belongs to."""
    optimizer = state.server_optimizer.items()
    parts: dict[str, TensorState] = {
        **{f"models/{name}": model.vectors() for name, model in state.server.models.items()},
        "method": state.server.memory,
        "sampler": state.sampler,
        **{f"server_optimizer/{name}": memory for name, memory in optimizer},
    }
    for part, tensors in parts.items():
        for key, tensor in tensors.items():
            yield f"{part}/{key}", tensor


def _state_of(tensors: Mapping[str, Tensor], number: int, where: Path) -> RunState:
    """The inverse of :func:`_named_tensors`."""
    parts: dict[str, dict[str, Tensor]] = {"method": {}, "sampler": {}}
    nested: dict[str, dict[str, dict[str, Tensor]]] = {"models": {}, "server_optimizer": {}}
    for path, tensor in tensors.items():
        part, _, name = path.partition("/")
        if part in nested:
            owner, _, key = name.rpartition("/")
            nested[part].setdefault(owner, {})[key] = tensor
        else:
            parts.setdefault(part, {})[name] = tensor
    try:
        models = {name: ModelState(**fields) for name, fields in nested["models"].items()}
    except TypeError:
        models = {}
    if not models:
        raise DamagedError(f"{where} is damaged: it holds no model.")
    server = ServerState(models, parts["method"])
    return RunState(number, server, parts["sampler"], nested["server_optimizer"])
