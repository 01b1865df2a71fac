"""Stored rounds: what is kept, what is gone on from, and what becomes of damaged files."""

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import cadis
from cadis.algorithm import Algorithm, Method
from cadis.algorithm.methods import CADIS, FedDyn
from cadis.engine import Engine
from cadis.errors import CadisError
from cadis.models import FlatModel
from cadis.server import RoundResult, RunState
from cadis.store import DamagedError, RunFolder, RunWriter, read_tensors, store_tensors
from support import (
    run_rounds,
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


def stopped(path: Path, method: Method, rounds: int = 3) -> list[RoundResult]:
    """A run that was stopped after some rounds; what its rounds were."""
    folder = RunFolder(path)
    settings = small_settings(rounds)
    engine = Engine(
        small_model(), small_federation(), Algorithm(method), settings, folder.client_folder
    )
    writer, _, _ = begun(path, engine.start)
    results = []
    with closing(writer):
        for result in engine.rounds(engine.start):
            writer.keep(result.record, result.state)
            results.append(result)
    return results


def resumed(path: Path, results: list[RoundResult]) -> tuple[RunState, list[str], int]:
    """What the run goes on from, what was said, and how many rounds its history has."""
    writer, state, said = begun(path, nothing_known(results[0].state), resume=True)
    writer.close()
    return state, said, len(writer.history)


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


@pytest.mark.parametrize("method", [CADIS(), FedDyn()])
def test_what_is_kept_is_gone_on_from(method: Method, tmp_path: Path) -> None:
    results = stopped(tmp_path / "run", method)
    state, said, rounds = resumed(tmp_path / "run", results)
    assert_same(state, results[-1].state)
    assert said == []
    assert rounds == 3


def test_the_last_two_rounds_are_kept_and_no_more(tmp_path: Path) -> None:
    results = stopped(tmp_path / "run", FedDyn(), rounds=5)
    checkpoint = tmp_path / "run" / "checkpoint"
    names = {path.name for path in checkpoint.iterdir()}
    kept = {f"round-{number}.{kind}" for number in (4, 5) for kind in ("json", "safetensors")}
    assert names == kept | {"lock", "clients"}
    memories = {f.name for r in results[-2:] for f in r.state.client_files.values()}
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
def test_a_damaged_round_is_named_and_the_one_before_gone_on_from(
    name: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    results = stopped(tmp_path / "run", FedDyn())
    checkpoint = tmp_path / "run" / "checkpoint"
    path = checkpoint / name
    if name == "clients/last":
        path = next(checkpoint.glob("clients/client-*-round-3.safetensors"))
    damage(path)
    state, said, rounds = resumed(tmp_path / "run", results)
    assert_same(state, results[1].state)
    assert rounds == 2
    if name != "round-3.json" or damage is not damage_all:  # then nothing says that it was there
        (sentence,) = said
        assert sentence.startswith(str(path))
        assert sentence.endswith("Going on from round 2.")


@pytest.mark.parametrize("name", ["round-3.json", "round-2.safetensors", "../config.toml"])
def test_a_folder_in_the_place_of_a_file_is_told_before_anything_is_written(
    name: str, tmp_path: Path
) -> None:
    results = stopped(tmp_path / "run", CADIS())
    path = tmp_path / "run" / "checkpoint" / name
    path.unlink()
    path.mkdir()
    (path / "mine").write_text("precious")
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    with pytest.raises(DamagedError, match=f"{path.name} is a folder where a file belongs"):
        resumed(tmp_path / "run", results)
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before


def test_if_both_rounds_are_damaged_both_stay_and_the_run_is_refused(tmp_path: Path) -> None:
    results = stopped(tmp_path / "run", CADIS())
    states = [tmp_path / "run" / "checkpoint" / f"round-{n}.safetensors" for n in (2, 3)]
    for path in states:
        damage_bit(path)
    with pytest.raises(DamagedError, match=r"round-3.safetensors is damaged: .*start a new run"):
        resumed(tmp_path / "run", results)
    assert all(path.exists() for path in states)
    assert len(RunFolder(tmp_path / "run").read_history()) == 3


def test_a_history_that_lost_rounds_is_not_gone_on_from(tmp_path: Path) -> None:
    results = stopped(tmp_path / "run", CADIS(), rounds=4)
    history = tmp_path / "run" / "history.jsonl"
    lines = history.read_text().splitlines(keepends=True)
    for damaged in (lines[:2], [lines[0], *lines[2:]], [*lines[:1], *lines], ["{}\n", *lines[1:]]):
        history.write_text("".join(damaged))
        with pytest.raises(DamagedError, match=r"history.jsonl"):
            resumed(tmp_path / "run", results)
        with pytest.raises(DamagedError, match=r"history.jsonl"):
            RunFolder(tmp_path / "run").read_history()
    changed = lines[2].replace('"round": 3', '"round": 3, "accuracy": 0.99')
    assert changed != lines[2]
    history.write_text("".join([*lines[:2], changed, lines[3]]))
    with pytest.raises(DamagedError, match=r"history.jsonl is damaged: it is not what was written"):
        RunFolder(tmp_path / "run").read_history()
    history.write_text("".join(lines[:3]))  # the last round only: the one before is whole
    state, said, _ = resumed(tmp_path / "run", results)
    assert state.round == 3
    assert "history.jsonl is damaged" in said[0]


def test_a_checkpoint_that_is_gone_is_told(tmp_path: Path) -> None:
    results = stopped(tmp_path / "run", CADIS())
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    with pytest.raises(DamagedError, match=r"The checkpoint of the run in .* is gone"):
        resumed(tmp_path / "run", results)


def test_options_are_restored_if_deleted_and_refused_if_changed(tmp_path: Path) -> None:
    results = stopped(tmp_path / "run", CADIS())
    config = tmp_path / "run" / "config.toml"
    text = config.read_text()
    config.write_text(text.replace("rounds = 9", "rounds = 8"))
    with pytest.raises(DamagedError, match=r"config.toml is not what the run has written; change"):
        RunFolder(tmp_path / "run").read_config()
    config.unlink()
    assert RunFolder(tmp_path / "run").read_config() == OPTIONS
    resumed(tmp_path / "run", results)
    assert config.read_text() == text


def test_who_has_what_is_written_again_if_damaged(tmp_path: Path) -> None:
    results = stopped(tmp_path / "run", CADIS())
    path = tmp_path / "run" / "federation.json"
    before = path.read_bytes()
    for damaged in (b"", b"[]", b'{"classes": 3}', before.replace(b'"a"', b'"x"'), b"\xff"):
        path.write_bytes(damaged)
        with pytest.raises(DamagedError, match=r"federation.json is damaged"):
            RunFolder(path.parent).read_json("federation.json")
        resumed(path.parent, results)
        assert path.read_bytes() == before


def test_a_best_model_that_is_damaged_is_told(tmp_path: Path) -> None:
    results = stopped(tmp_path / "run", CADIS())
    best = tmp_path / "run" / "best.safetensors"
    damage_bit(best)
    with pytest.raises(DamagedError, match=r"best.safetensors is damaged: .*or delete it"):
        resumed(tmp_path / "run", results)
    best.unlink()
    _, said, _ = resumed(tmp_path / "run", results)
    assert "best.safetensors is missing" in said[0]


def test_a_staged_file_is_put_in_place_with_its_round_only(tmp_path: Path) -> None:
    """Killed before or after the manifest is written: the best model is that of the round."""
    results = stopped(tmp_path / "run", CADIS())
    folder = RunFolder(tmp_path / "run")
    before = load_file(folder.path / "best.safetensors")
    (folder.path / ".best.safetensors.draft").write_bytes(b"of a round that never came to be")
    (folder.path / "checkpoint" / ".round-4.json.draft").write_bytes(b"{")
    resumed(folder.path, results)
    assert torch.equal(load_file(folder.path / "best.safetensors")["7.bias"], before["7.bias"])
    (folder.path / "best.safetensors").rename(folder.path / ".best.safetensors.draft")
    resumed(folder.path, results)
    assert torch.equal(load_file(folder.path / "best.safetensors")["7.bias"], before["7.bias"])
    assert not [*folder.path.glob(".*.draft"), *folder.path.glob("checkpoint/.*.draft")]


def test_a_full_disk_is_a_sentence_and_the_run_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [result.state for result in run_rounds(CADIS(), tmp_path / "other")]
    records = run_rounds(CADIS(), tmp_path / "other")
    writer, _, _ = begun(tmp_path / "run", nothing_known(results[0]))
    writer.keep(records[0].record, results[0])

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(cadis.RunError, match=r"cannot be written: No space left on device; put"):
        writer.keep(records[1].record, results[1])
    monkeypatch.undo()
    writer.close()
    state, said, rounds = resumed(tmp_path / "run", records)
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
