"""The manifest of a round: which files belong to it, and what each of them must hold."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from cadis.runs.files import StoredFile, damaged, digest_of
from cadis.runs.record import Member
from cadis.runs.shapes import STRICT, read_as, to_json


@dataclass(frozen=True)
class HistoryMark:
    """How far the history went when a round was kept.

    Attributes:
        size: its bytes.
        sha256: their digest.
    """

    size: int
    sha256: str


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
