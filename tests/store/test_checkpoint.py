"""Stored rounds: what is kept, what is gone on from, and what becomes of damaged files."""

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import cadis
from cadis.algorithm import Algorithm, BaseMethod, ServerState
from cadis.algorithm.methods import CADIS, FedAvg, FedDyn
from cadis.engine import Engine
from cadis.errors import CadisError
from cadis.models import FlatModel
from cadis.server import Member, RoundRecord, RoundResult, RunState, Seconds
from cadis.store import DamagedError, RunFolder, RunWriter, read_tensors, store_tensors
from cadis.types import StoredFile
from support import (
    run_small,
    same,
    small_federation,
    small_model,
    small_settings,
    state_of,
)

OPTIONS = {"method": "cadis-paper", "rounds": 9, "lr": 0.1}
FEDERATION = {
    "classes": ["a", "b"],
    "clients": [{"id": n, "cluster": None, "samples": None} for n in range(5)],
}


def begun(
    path: Path, start: RunState, resume: bool = False
) -> tuple[RunWriter, RunState, list[str]]:
    layout = FlatModel(small_model()).layout
    writer, said = RunWriter(RunFolder(path), Algorithm(CADIS()), layout), list[str]()
    try:
        state = writer.begin(start, OPTIONS, lambda _: FEDERATION, resume, said.append)
    except BaseException:
        writer.close()
        raise
    return writer, state, said


def nothing_known(start: RunState) -> RunState:
    """The state before the first round, of a model that has other numbers."""
    model = start.server.models["model"]
    zeros = {name: torch.zeros_like(tensor) for name, tensor in vars(model).items()}
    return RunState(0, state_of(type(model)(**zeros)))


@dataclass(frozen=True)
class Stopped:
    """A run that was stopped after some rounds."""

    path: Path
    results: list[RoundResult]

    def resume(self) -> tuple[RunState, list[str], int]:
        """What the run goes on from, what was said, and how many rounds its history has."""
        start = nothing_known(self.results[0].state)
        writer, state, said = begun(self.path, start, resume=True)
        writer.close()
        return state, said, len(writer.history)


def stop(path: Path, method: BaseMethod) -> Stopped:
    folder, settings = RunFolder(path).client_folder, small_settings(rounds=3)
    engine = Engine(small_model(), small_federation(), Algorithm(method), settings, folder)
    writer, _, _ = begun(path, engine.start)
    run = Stopped(path, [])
    with closing(writer):
        for result in engine.rounds(engine.start):
            writer.keep(result.record, result.state)
            run.results.append(result)
    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stopped]:
    """Runs of three rounds, by method; tests work on copies."""
    folder = tmp_path_factory.mktemp("trained")
    return {m.name: stop(folder / m.name, m) for m in (CADIS(), FedDyn())}


@pytest.fixture
def run(request: pytest.FixtureRequest, trained: dict[str, Stopped], tmp_path: Path) -> Stopped:
    """A stopped run of CADIS, or of the method that a test is parametrized by."""
    original = trained[getattr(request, "param", "cadis")]
    return Stopped(shutil.copytree(original.path, tmp_path / "run"), original.results)


def assert_same(state: RunState, expected: RunState) -> None:
    assert state.round == expected.round
    model, wanted = state.server.models["model"], expected.server.models["model"]
    for name, tensor in vars(wanted).items():
        assert same(getattr(model, name), tensor)
    for mine, theirs in (
        (state.server.memory, expected.server.memory),
        (state.sampler, expected.sampler),
        (state.server_optimizer.get("model", {}), expected.server_optimizer.get("model", {})),
    ):
        assert mine.keys() == theirs.keys()
        assert all(same(mine[name], tensor) for name, tensor in theirs.items())
    assert state.client_files == expected.client_files


@pytest.mark.parametrize("run", ["cadis", "feddyn"], indirect=True)
def test_what_is_kept_is_gone_on_from(run: Stopped) -> None:
    state, said, rounds = run.resume()
    assert_same(state, run.results[-1].state)
    assert (said, rounds) == ([], 3)


@pytest.mark.parametrize("run", ["feddyn"], indirect=True)
def test_the_last_two_rounds_are_kept_and_no_more(run: Stopped) -> None:
    checkpoint = run.path / "checkpoint"
    names = {path.name for path in checkpoint.iterdir()}
    kept = {f"round-{number}.{kind}" for number in (2, 3) for kind in ("json", "safetensors")}
    assert names == kept | {"lock", "clients"}
    memories = {f.name for r in run.results[-2:] for f in r.state.client_files.values()}
    assert {path.name for path in (checkpoint / "clients").iterdir()} == memories


def damage_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def damage_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def damage_all(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [damage_bit, damage_end, damage_all])
@pytest.mark.parametrize("name", ["round-3.json", "round-3.safetensors", "clients/last"])
@pytest.mark.parametrize("run", ["feddyn"], indirect=True)
def test_a_damaged_round_is_named_and_the_one_before_gone_on_from(
    name: str, damage: Callable[[Path], None], run: Stopped
) -> None:
    checkpoint = run.path / "checkpoint"
    path = checkpoint / name
    if name == "clients/last":
        path = next(checkpoint.glob("clients/client-*-round-3.safetensors"))
    damage(path)
    state, said, rounds = run.resume()
    assert_same(state, run.results[1].state)
    assert rounds == 2
    if name != "round-3.json" or damage is not damage_all:  # then nothing says that it was there
        (sentence,) = said
        assert sentence.startswith(str(path))
        assert sentence.endswith("Going on from round 2.")


@pytest.mark.parametrize("name", ["round-3.json", "round-2.safetensors", "../config.toml"])
def test_a_folder_in_the_place_of_a_file_is_told_before_anything_is_written(
    name: str, run: Stopped
) -> None:
    path = run.path / "checkpoint" / name
    path.unlink()
    path.mkdir()
    (path / "mine").write_text("precious")
    before = {p: p.read_bytes() for p in (run.path).rglob("*") if p.is_file()}
    with pytest.raises(DamagedError, match=f"{path.name} is a folder where a file belongs"):
        run.resume()
    assert {p: p.read_bytes() for p in (run.path).rglob("*") if p.is_file()} == before


def test_if_both_rounds_are_damaged_both_stay_and_the_run_is_refused(run: Stopped) -> None:
    states = [run.path / "checkpoint" / f"round-{n}.safetensors" for n in (2, 3)]
    for path in states:
        damage_bit(path)
    with pytest.raises(DamagedError, match=r"round-3.safetensors is damaged: .*start a new run"):
        run.resume()
    assert all(path.exists() for path in states)
    assert len(RunFolder(run.path).read_history()) == 3


def test_a_history_that_lost_rounds_is_not_gone_on_from(run: Stopped) -> None:
    history = run.path / "history.jsonl"
    lines = history.read_text().splitlines(keepends=True)
    for damaged in (lines[:1], [lines[0], lines[2]], [lines[0], *lines], ["{}\n", *lines[1:]]):
        history.write_text("".join(damaged))
        with pytest.raises(DamagedError, match=r"history.jsonl"):
            run.resume()
        with pytest.raises(DamagedError, match=r"history.jsonl"):
            RunFolder(run.path).read_history()
    changed = lines[1].replace('"round": 2', '"round": 2, "accuracy": 0.99')
    assert changed != lines[1]
    history.write_text("".join([lines[0], changed, lines[2]]))
    with pytest.raises(DamagedError, match=r"history.jsonl is damaged: it is not what was written"):
        RunFolder(run.path).read_history()
    history.write_text("".join(lines[:2]))  # the last round only: the one before is whole
    state, said, _ = run.resume()
    assert state.round == 2
    assert "history.jsonl is damaged" in said[0]


def test_a_checkpoint_that_is_gone_is_told(run: Stopped) -> None:
    shutil.rmtree(run.path / "checkpoint")
    with pytest.raises(DamagedError, match=r"The checkpoint of the run in .* is gone"):
        run.resume()


def test_options_are_restored_if_deleted_and_refused_if_changed(run: Stopped) -> None:
    config = run.path / "config.toml"
    text = config.read_text()
    config.write_text(text.replace("rounds = 9", "rounds = 8"))
    with pytest.raises(DamagedError, match=r"config.toml is not what the run has written; change"):
        RunFolder(run.path).read_config()
    config.unlink()
    assert RunFolder(run.path).read_config() == OPTIONS
    run.resume()
    assert config.read_text() == text


def test_who_has_what_is_written_again_if_damaged(run: Stopped) -> None:
    path = run.path / "federation.json"
    before = path.read_bytes()
    for damaged in (b"", b"[]", b'{"classes": 3}', before.replace(b'"a"', b'"x"'), b"\xff"):
        path.write_bytes(damaged)
        with pytest.raises(DamagedError, match=r"federation.json is damaged"):
            RunFolder(path.parent).read_json("federation.json")
        run.resume()
        assert path.read_bytes() == before


def test_a_best_model_that_is_damaged_is_told(run: Stopped) -> None:
    best = run.path / "best.safetensors"
    damage_bit(best)
    with pytest.raises(DamagedError, match=r"best.safetensors is damaged: .*or delete it"):
        run.resume()
    best.unlink()
    _, said, _ = run.resume()
    assert "best.safetensors is missing" in said[0]


def test_a_staged_file_is_put_in_place_with_its_round_only(run: Stopped) -> None:
    """Killed before or after the manifest is written: the best model is that of the round."""
    folder = RunFolder(run.path)
    before = load_file(folder.path / "best.safetensors")
    (folder.path / ".best.safetensors.draft").write_bytes(b"of a round that never came to be")
    (folder.path / "checkpoint" / ".round-4.json.draft").write_bytes(b"{")
    run.resume()
    assert torch.equal(load_file(folder.path / "best.safetensors")["7.bias"], before["7.bias"])
    (folder.path / "best.safetensors").rename(folder.path / ".best.safetensors.draft")
    run.resume()
    assert torch.equal(load_file(folder.path / "best.safetensors")["7.bias"], before["7.bias"])
    assert not [*folder.path.glob(".*.draft"), *folder.path.glob("checkpoint/.*.draft")]


def test_a_full_disk_is_a_sentence_and_the_run_goes_on_later(
    trained: dict[str, Stopped], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = trained["cadis"].results
    writer, _, _ = begun(tmp_path / "run", nothing_known(results[0].state))
    writer.keep(results[0].record, results[0].state)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(cadis.RunError, match=r"cannot be written: No space left on device; put"):
        writer.keep(results[1].record, results[1].state)
    monkeypatch.undo()
    writer.close()
    state, said, rounds = Stopped(tmp_path / "run", results).resume()
    assert (state.round, said, rounds) == (1, [], 1)


def test_named_tensors_come_back_in_their_order(tmp_path: Path) -> None:
    names = [f"{number % 7}-{number}" for number in range(40)]
    stored = store_tensors(tmp_path / "file", {name: torch.ones(1) for name in names})
    assert list(read_tensors(tmp_path, stored)) == names


def test_tensors_that_share_memory_are_stored_each(tmp_path: Path) -> None:
    """As models do of which one has just been begun from another."""
    shared = torch.arange(6.0)
    given = {"a": shared, "b": shared, "c": shared[2:4], "d": torch.ones(2)}
    found = read_tensors(tmp_path, store_tensors(tmp_path / "file", given))
    assert list(found) == list(given)
    assert all(torch.equal(found[name], tensor) for name, tensor in given.items())


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"method": CADIS(threshold=0.5)}, r"has cadis\.threshold = auto, not 0\.5"),
        ({"server_optimizer": "adam"}, "the server optimizer momentum, and .* adam"),
        ({"transforms": ["clip"]}, "begun with no transforms, and you ask for the transforms clip"),
        ({"method": "fedavg"}, "with the method CADIS, and you ask for the method FedAvg"),
    ],
)
def test_what_differs_is_told_by_its_name(
    parts: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    run_small(rounds=1, lr=0.1, out=tmp_path / "run")
    with pytest.raises(CadisError, match=sentence):
        run_small(rounds=1, lr=0.1, out=tmp_path / "run", resume=True, **parts)


def record(number: int) -> RoundRecord:
    return RoundRecord(number, 0.5, 1.0, [], ["a"], [1.0], [], Seconds(1, 1, 1, 1))


class Untrained:
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
    run = Untrained(tmp_path / "run")
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
    run, names = Untrained(tmp_path / "run"), "client-{}-round-{}.safetensors".format
    (run.folder.client_folder / "notes.txt").touch()
    run.keep(1, files={0: names(0, 1), 1: names(1, 1)})
    run.keep(2, files={0: names(0, 2), 1: names(1, 1)})
    run.keep(3, files={0: names(0, 2), 1: names(1, 3)})
    rounds = {path.name for path in (run.folder.path / "checkpoint").glob("round-*")}
    assert rounds == {f"round-{n}.{kind}" for n in (2, 3) for kind in ("json", "safetensors")}
    kept = {path.name for path in run.folder.client_folder.iterdir()}
    assert kept == {names(0, 2), names(1, 1), names(1, 3), "notes.txt"}
    run.writer.close()
