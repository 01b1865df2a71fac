"""Checkpoints: stored rounds, resuming, and damaged files."""

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
    is_identical,
    make_server_state,
    run_small,
    small_federation,
    small_model,
    small_settings,
)

OPTIONS = {"method": "cadis-paper", "rounds": 9, "lr": 0.1}
FEDERATION = {
    "classes": ["a", "b"],
    "clients": [{"id": n, "cluster": None, "samples": None} for n in range(5)],
}


def begin(
    path: Path, start: RunState, resume: bool = False
) -> tuple[RunWriter, RunState, list[str]]:
    layout = FlatModel(small_model()).layout
    writer, messages = RunWriter(RunFolder(path), Algorithm(CADIS()), layout), list[str]()
    try:
        state = writer.begin(start, OPTIONS, lambda _: FEDERATION, resume, messages.append)
    except BaseException:
        writer.close()
        raise
    return writer, state, messages


def make_zero_state(start: RunState) -> RunState:
    """Return a state before the first round with a model of zeros."""
    model = start.server.models["model"]
    zeros = {name: torch.zeros_like(tensor) for name, tensor in vars(model).items()}
    return RunState(0, make_server_state(type(model)(**zeros)))


@dataclass(frozen=True)
class StoppedRun:
    """A run that was stopped after some rounds."""

    path: Path
    results: list[RoundResult]

    def resume(self) -> tuple[RunState, list[str], int]:
        """Return the state to resume from, the messages, and the number of rounds."""
        start = make_zero_state(self.results[0].state)
        writer, state, messages = begin(self.path, start, resume=True)
        writer.close()
        return state, messages, len(writer.history)


def run_and_stop(path: Path, method: BaseMethod) -> StoppedRun:
    folder, settings = RunFolder(path).client_folder, small_settings(rounds=3)
    engine = Engine(small_model(), small_federation(), Algorithm(method), settings, folder)
    writer, _, _ = begin(path, engine.start)
    run = StoppedRun(path, [])
    with closing(writer):
        for result in engine.rounds(engine.start):
            writer.save_round(result.record, result.state)
            run.results.append(result)
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StoppedRun]:
    """Runs of three rounds, by method; tests use copies."""
    folder = tmp_path_factory.mktemp("runs")
    return {m.name: run_and_stop(folder / m.name, m) for m in (CADIS(), FedDyn())}


@pytest.fixture
def run(request: pytest.FixtureRequest, runs: dict[str, StoppedRun], tmp_path: Path) -> StoppedRun:
    """A stopped run of CADIS, or of the method in the test's parameters."""
    original = runs[getattr(request, "param", "cadis")]
    return StoppedRun(shutil.copytree(original.path, tmp_path / "run"), original.results)


def assert_same(state: RunState, expected: RunState) -> None:
    assert state.round == expected.round
    model, expected_model = state.server.models["model"], expected.server.models["model"]
    for name, tensor in vars(expected_model).items():
        assert is_identical(getattr(model, name), tensor)
    for tensors, expected_tensors in (
        (state.server.tensors, expected.server.tensors),
        (state.sampler, expected.sampler),
        (state.server_optimizer.get("model", {}), expected.server_optimizer.get("model", {})),
    ):
        assert tensors.keys() == expected_tensors.keys()
        assert all(is_identical(tensors[n], tensor) for n, tensor in expected_tensors.items())
    assert state.client_files == expected.client_files


@pytest.mark.parametrize("run", ["cadis", "feddyn"], indirect=True)
def test_run_resumes_from_its_last_state(run: StoppedRun) -> None:
    state, messages, rounds = run.resume()
    assert_same(state, run.results[-1].state)
    assert (messages, rounds) == ([], 3)


@pytest.mark.parametrize("run", ["feddyn"], indirect=True)
def test_only_the_last_two_rounds_are_kept(run: StoppedRun) -> None:
    checkpoint = run.path / "checkpoint"
    names = {path.name for path in checkpoint.iterdir()}
    rounds = {f"round-{n}.{suffix}" for n in (2, 3) for suffix in ("json", "safetensors")}
    assert names == rounds | {"lock", "clients"}
    state_files = {f.name for r in run.results[-2:] for f in r.state.client_files.values()}
    assert {path.name for path in (checkpoint / "clients").iterdir()} == state_files


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def delete(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [flip_bit, truncate, delete])
@pytest.mark.parametrize("name", ["round-3.json", "round-3.safetensors", "clients/last"])
@pytest.mark.parametrize("run", ["feddyn"], indirect=True)
def test_run_resumes_from_the_round_before_a_damaged_one(
    name: str, damage: Callable[[Path], None], run: StoppedRun
) -> None:
    checkpoint = run.path / "checkpoint"
    path = checkpoint / name
    if name == "clients/last":
        path = next(checkpoint.glob("clients/client-*-round-3.safetensors"))
    damage(path)
    state, messages, rounds = run.resume()
    assert_same(state, run.results[1].state)
    assert rounds == 2
    if name != "round-3.json" or damage is not delete:  # a missing manifest is not noticed
        (message,) = messages
        assert message.startswith(str(path))
        assert message.endswith("Resuming from round 2.")


@pytest.mark.parametrize("name", ["round-3.json", "round-2.safetensors", "../config.toml"])
def test_folder_instead_of_a_file_is_an_error_before_anything_is_written(
    name: str, run: StoppedRun
) -> None:
    path = run.path / "checkpoint" / name
    path.unlink()
    path.mkdir()
    (path / "mine").write_text("precious")
    before = {p: p.read_bytes() for p in (run.path).rglob("*") if p.is_file()}
    with pytest.raises(DamagedError, match=f"{path.name} is a folder but must be a file"):
        run.resume()
    assert {p: p.read_bytes() for p in (run.path).rglob("*") if p.is_file()} == before


def test_run_with_two_damaged_rounds_is_an_error_and_keeps_its_files(run: StoppedRun) -> None:
    states = [run.path / "checkpoint" / f"round-{n}.safetensors" for n in (2, 3)]
    for path in states:
        flip_bit(path)
    with pytest.raises(DamagedError, match=r"round-3.safetensors is damaged: .*start a new run"):
        run.resume()
    assert all(path.exists() for path in states)
    assert len(RunFolder(run.path).read_history()) == 3


def test_run_does_not_resume_from_a_history_without_some_rounds(run: StoppedRun) -> None:
    history = run.path / "history.jsonl"
    lines = history.read_text().splitlines(keepends=True)
    for content in (lines[:1], [lines[0], lines[2]], [lines[0], *lines], ["{}\n", *lines[1:]]):
        history.write_text("".join(content))
        with pytest.raises(DamagedError, match=r"history.jsonl"):
            run.resume()
        with pytest.raises(DamagedError, match=r"history.jsonl"):
            RunFolder(run.path).read_history()
    changed = lines[1].replace('"round": 2', '"round": 2, "accuracy": 0.99')
    assert changed != lines[1]
    history.write_text("".join([lines[0], changed, lines[2]]))
    with pytest.raises(DamagedError, match=r"history.jsonl is damaged: its content has changed"):
        RunFolder(run.path).read_history()
    history.write_text("".join(lines[:2]))  # only the last round is lost
    state, messages, _ = run.resume()
    assert state.round == 2
    assert "history.jsonl is damaged" in messages[0]


def test_missing_checkpoint_is_an_error(run: StoppedRun) -> None:
    shutil.rmtree(run.path / "checkpoint")
    with pytest.raises(DamagedError, match=r"The checkpoint of the run in .* is missing"):
        run.resume()


def test_deleted_options_are_restored_and_changed_options_are_an_error(run: StoppedRun) -> None:
    config = run.path / "config.toml"
    text = config.read_text()
    config.write_text(text.replace("rounds = 9", "rounds = 8"))
    with pytest.raises(DamagedError, match=r"config.toml is damaged or was edited; delete it"):
        RunFolder(run.path).read_config()
    config.unlink()
    assert RunFolder(run.path).read_config() == OPTIONS
    run.resume()
    assert config.read_text() == text


def test_damaged_federation_file_is_written_again(run: StoppedRun) -> None:
    path = run.path / "federation.json"
    before = path.read_bytes()
    for content in (b"", b"[]", b'{"classes": 3}', before.replace(b'"a"', b'"x"'), b"\xff"):
        path.write_bytes(content)
        with pytest.raises(DamagedError, match=r"federation.json is damaged"):
            RunFolder(path.parent).read_json("federation.json")
        run.resume()
        assert path.read_bytes() == before


def test_damaged_best_model_is_an_error(run: StoppedRun) -> None:
    best = run.path / "best.safetensors"
    flip_bit(best)
    with pytest.raises(DamagedError, match=r"best.safetensors is damaged: .*or delete the file"):
        run.resume()
    best.unlink()
    _, messages, _ = run.resume()
    assert "best.safetensors is missing" in messages[0]


def test_draft_is_published_only_with_its_round(run: StoppedRun) -> None:
    """A kill before or after the manifest is written leaves the best model of the round."""
    folder = RunFolder(run.path)
    before = load_file(folder.path / "best.safetensors")
    (folder.path / ".best.safetensors.draft").write_bytes(b"of a round without manifest")
    (folder.path / "checkpoint" / ".round-4.json.draft").write_bytes(b"{")
    run.resume()
    assert torch.equal(load_file(folder.path / "best.safetensors")["7.bias"], before["7.bias"])
    (folder.path / "best.safetensors").rename(folder.path / ".best.safetensors.draft")
    run.resume()
    assert torch.equal(load_file(folder.path / "best.safetensors")["7.bias"], before["7.bias"])
    assert not [*folder.path.glob(".*.draft"), *folder.path.glob("checkpoint/.*.draft")]


def test_full_disk_is_an_error_and_the_run_can_be_resumed(
    runs: dict[str, StoppedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = runs["cadis"].results
    writer, _, _ = begin(tmp_path / "run", make_zero_state(results[0].state))
    writer.save_round(results[0].record, results[0].state)

    def raise_disk_full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", raise_disk_full)
    with pytest.raises(cadis.RunError, match=r"cannot be written: No space left on device; solve"):
        writer.save_round(results[1].record, results[1].state)
    monkeypatch.undo()
    writer.close()
    state, messages, rounds = StoppedRun(tmp_path / "run", results).resume()
    assert (state.round, messages, rounds) == (1, [], 1)


def test_tensors_are_read_in_their_order(tmp_path: Path) -> None:
    names = [f"{number % 7}-{number}" for number in range(40)]
    stored = store_tensors(tmp_path / "file", {name: torch.ones(1) for name in names})
    assert list(read_tensors(tmp_path, stored)) == names


def test_tensors_with_common_storage_are_stored_separately(tmp_path: Path) -> None:
    """Models share storage if a method has copied one from another."""
    shared = torch.arange(6.0)
    tensors = {"a": shared, "b": shared, "c": shared[2:4], "d": torch.ones(2)}
    result = read_tensors(tmp_path, store_tensors(tmp_path / "file", tensors))
    assert list(result) == list(tensors)
    assert all(torch.equal(result[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"method": CADIS(threshold=0.5)}, r"has cadis\.threshold = auto, not 0\.5"),
        ({"server_optimizer": "adam"}, "the server optimizer damped-momentum, but .* adam"),
        (
            {"transforms": ["clip"]},
            "started with no transforms, but you ask for the transforms clip",
        ),
        ({"method": "fedavg"}, "with the method CADIS, but you ask for the method FedAvg"),
    ],
)
def test_different_option_is_named_in_the_error(
    parts: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    run_small(rounds=1, lr=0.1, out=tmp_path / "run")
    with pytest.raises(CadisError, match=sentence):
        run_small(rounds=1, lr=0.1, out=tmp_path / "run", resume=True, **parts)


def make_record(number: int) -> RoundRecord:
    return RoundRecord(number, 0.5, 1.0, [], ["a"], [1.0], [], Seconds(1, 1, 1, 1))


class WriterOnly:
    """A run without training: only the writer."""

    def __init__(self, path: Path) -> None:
        model = FlatModel(small_model())
        self.folder, self.num_calls = RunFolder(path), 0
        self.server = ServerState({"model": model.copy_state()})
        self.writer = RunWriter(self.folder, Algorithm(FedAvg()), model.layout)
        self.writer.begin(RunState(0, self.server), {"rounds": 9}, self.describe)

    def describe(self, members: tuple[Member, ...]) -> Mapping[str, Any]:
        self.num_calls += 1
        clients = [{"id": m.client, "cluster": None, "samples": None} for m in members]
        return {"classes": ["x"], "clients": clients}

    def save(self, number: int, *members: Member, files: Mapping[int, str] | None = None) -> None:
        digest = sha256().hexdigest()  # of an empty file
        stored = {client: StoredFile(name, digest) for client, name in (files or {}).items()}
        for name in (files or {}).values():
            (self.folder.client_folder / name).touch()
        state = RunState(number, self.server, client_files=stored, members=members)
        self.writer.save_round(make_record(number), state)


def test_federation_file_is_written_again_only_when_a_client_joins(tmp_path: Path) -> None:
    run = WriterOnly(tmp_path / "run")
    run.save(1, Member("a", 1, last_round=1))
    num_calls = run.num_calls
    run.save(2, Member("a", 1, last_round=2))
    assert run.num_calls == num_calls
    run.save(3, Member("a", 1, last_round=2), Member("b", 2, last_round=3))
    assert run.num_calls == num_calls + 1
    content = json.loads((run.folder.path / "federation.json").read_text())
    assert [client["id"] for client in content["clients"]] == ["a", "b"]
    assert run.folder.checkpoint.read(run.folder.checkpoint.list_manifests()[0]).members == (
        Member("a", 1, last_round=2),
        Member("b", 2, last_round=3),
    )
    run.writer.close()


def test_old_rounds_are_deleted_and_other_files_are_kept(
    tmp_path: Path,
) -> None:
    run, names = WriterOnly(tmp_path / "run"), "client-{}-round-{}.safetensors".format
    (run.folder.client_folder / "notes.txt").touch()
    run.save(1, files={0: names(0, 1), 1: names(1, 1)})
    run.save(2, files={0: names(0, 2), 1: names(1, 1)})
    run.save(3, files={0: names(0, 2), 1: names(1, 3)})
    rounds = {path.name for path in (run.folder.path / "checkpoint").glob("round-*")}
    assert rounds == {f"round-{n}.{kind}" for n in (2, 3) for kind in ("json", "safetensors")}
    files = {path.name for path in run.folder.client_folder.iterdir()}
    assert files == {names(0, 2), names(1, 1), names(1, 3), "notes.txt"}
    run.writer.close()
