"""What a round leaves on the disk, and what is not written again."""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from cadis.algorithm import Algorithm, ServerState
from cadis.algorithm.methods import FedAvg
from cadis.models import FlatModel
from cadis.server import Member, RoundRecord, RunState, Seconds
from cadis.store import RunFolder, RunWriter
from cadis.types import StoredFile
from support import small_model


def record(number: int) -> RoundRecord:
    return RoundRecord(number, 0.5, 1.0, [], ["a"], [1.0], [], Seconds(1, 1, 1, 1))


class Run:
    """A run that nobody trains: the writer alone."""

    def __init__(self, path: Path) -> None:
        model = FlatModel(small_model())
        self.folder, self.described = RunFolder(path), 0
        self.server = ServerState({"model": model.state()})
        self.writer = RunWriter(self.folder, Algorithm(FedAvg()), model.layout)
        self.writer.begin(RunState(0, self.server), {"rounds": 9}, self.describe)

    def describe(self, members: tuple[Member, ...]) -> Mapping[str, Any]:
        self.described += 1
        clients = [{"id": m.client, "cluster": None, "samples": None} for m in members]
        return {"classes": ["x"], "clients": clients}

    def keep(self, number: int, *members: Member, files: Mapping[int, str] | None = None) -> None:
        digest = sha256().hexdigest()  # of an empty file
        stored = {client: StoredFile(name, digest) for client, name in (files or {}).items()}
        for name in (files or {}).values():
            (self.folder.client_folder / name).touch()
        state = RunState(number, self.server, client_files=stored, members=members)
        self.writer.keep(record(number), state)


def test_who_has_what_is_written_again_only_when_somebody_joins(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.keep(1, Member("a", 1, last_round=1))
    told = run.described
    run.keep(2, Member("a", 1, last_round=2))
    assert run.described == told
    run.keep(3, Member("a", 1, last_round=2), Member("b", 2, last_round=3))
    assert run.described == told + 1
    found = json.loads((run.folder.path / "federation.json").read_text())
    assert [client["id"] for client in found["clients"]] == ["a", "b"]
    assert run.folder.checkpoint.read(run.folder.checkpoint.manifests()[0]).members == (
        Member("a", 1, last_round=2),
        Member("b", 2, last_round=3),
    )
    run.writer.close()


def test_the_last_two_rounds_are_kept_and_nothing_of_anybody_elses_is_dropped(
    tmp_path: Path,
) -> None:
    run, names = Run(tmp_path / "run"), "client-{}-round-{}.safetensors".format
    (run.folder.client_folder / "notes.txt").touch()
    run.keep(1, files={0: names(0, 1), 1: names(1, 1)})
    run.keep(2, files={0: names(0, 2), 1: names(1, 1)})
    run.keep(3, files={0: names(0, 2), 1: names(1, 3)})
    rounds = {path.name for path in (run.folder.path / "checkpoint").glob("round-*")}
    assert rounds == {f"round-{n}.{kind}" for n in (2, 3) for kind in ("json", "safetensors")}
    kept = {path.name for path in run.folder.client_folder.iterdir()}
    assert kept == {names(0, 2), names(1, 1), names(1, 3), "notes.txt"}
    run.writer.close()
