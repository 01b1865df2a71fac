import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cadis.core import CadisError
from cadis.engine import Engine
from cadis.methods import CADIS, FedDyn
from cadis.runs import Checkpoint, RunState
from support import run_rounds, same, small_federation, small_model, small_settings


def saved(folder: Path, states: list[RunState]) -> Checkpoint:
    checkpoint = Checkpoint(folder)
    checkpoint.create()
    for state in states:
        checkpoint.save(state)
    return checkpoint


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    states = [result.state for result in run_rounds(CADIS(), tmp_path)]
    loaded = saved(tmp_path / "c", states).load()
    assert loaded is not None
    assert loaded.round == 3
    for name, tensor in vars(states[-1].model).items():
        assert same(getattr(loaded.model, name), tensor)
    assert loaded.method_state.keys() == states[-1].method_state.keys()
    for name, tensor in states[-1].method_state.items():
        assert same(loaded.method_state[name], tensor)


def test_only_what_belongs_to_the_last_round_is_kept(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.create()
    engine = Engine(
        small_model(), small_federation(), FedDyn(), small_settings(), checkpoint.client_folder
    )
    for result in engine.rounds(engine.start):
        checkpoint.save(result.state)
    assert [path.name for path in tmp_path.glob("round-*")] == ["round-3.safetensors"]
    kept = {path.name for path in checkpoint.client_folder.iterdir()}
    state = checkpoint.load()
    assert state is not None
    assert kept == set(state.client_files.values())
    assert len(state.client_files) >= 3


def test_a_crash_while_saving_leaves_the_round_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = [result.state for result in run_rounds(CADIS(), tmp_path)]
    checkpoint = saved(tmp_path / "c", states[:1])

    def crash(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt(self, target)

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(states[1])
    monkeypatch.undo()
    loaded = checkpoint.load()
    assert loaded is not None
    assert loaded.round == 1
    assert torch.equal(loaded.model.parameters, states[0].model.parameters)


def test_nothing_saved_yet(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path).load() is None


@pytest.mark.parametrize("damage", ["{", "[]", json.dumps({"round": 1}), '{"state": "gone"}'])
def test_a_damaged_checkpoint_is_told(tmp_path: Path, damage: str) -> None:
    (tmp_path / "checkpoint.json").write_text(damage)
    with pytest.raises(CadisError, match="cannot be read"):
        Checkpoint(tmp_path).load()


def test_two_processes_cannot_go_on_with_one_run(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "run" / "checkpoint")
    checkpoint.create()
    code = (
        "import sys, time; from pathlib import Path; from cadis.runs import Checkpoint\n"
        "held = Checkpoint(Path(sys.argv[1])).lock(); print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run" / "checkpoint")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        sentence = f"The run in {tmp_path / 'run'} is still going on, in process {other.pid};"
        with pytest.raises(CadisError, match=re.escape(sentence)):
            checkpoint.lock()
        other.kill()  # nothing is left to clean up by hand
    held = checkpoint.lock()
    assert held is not None
    held.close()
