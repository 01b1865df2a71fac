"""Files of a run, and resuming it."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import cadis
from cadis.algorithm import BaseMethod
from cadis.algorithm.methods import CADIS, FedDyn
from cadis.data import Samples, Scaling
from cadis.errors import CadisError
from cadis.experiment import RunResult
from cadis.server import RoundResult
from cadis.store import RunFolder, find_rare_classes
from support import have_identical_models, small_federation, small_model


def run_small_federation(out: Path | None = None, rounds: int = 4, **options: object) -> RunResult:
    federation = small_federation()
    clients = [(client.inputs, client.labels) for client in federation.clients]
    test = federation.test.inputs, federation.test.labels
    settings = {"per_round": 3, "epochs": 2, "batch_size": 4, "lr": 0.1, "workers": 1} | options
    model = settings.pop("model", small_model())
    return cadis.run(model, clients, test, rounds=rounds, out=out, **settings)  # type: ignore[arg-type]


def stop_after(rounds: int) -> "object":
    def on_round(result: RoundResult) -> None:
        if result.record.round == rounds:
            raise KeyboardInterrupt

    return on_round


def test_run_writes_all_files(tmp_path: Path) -> None:
    result = run_small_federation(tmp_path / "run", true_clusters=[0, 0, 0, 1, 2])
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {
        *(".cadis-run", "config.toml", "federation.json", "history.jsonl", "summary.json"),
        *("model.safetensors", "best.safetensors", "MODEL_CARD.md", "checkpoint"),
    }
    folder = RunFolder(tmp_path / "run")
    assert folder.read_history() == result.history
    assert folder.read_json("summary.json") == result.summary
    assert result.summary["rounds"] == 4
    assert result.summary["rare_classes"] == [2, 3, 4]
    assert torch.tensor(result.summary["confusion"]).sum() == 25
    keys = json.loads((tmp_path / "run" / "history.jsonl").read_text().splitlines()[0]).keys()
    assert {"round", "accuracy", "loss", "class_accuracy", "participants", "report"} <= keys
    assert {"weights", "rejected", "seconds"} <= keys


def test_stored_models_are_the_last_and_the_best(tmp_path: Path) -> None:
    result = run_small_federation(tmp_path / "run", rounds=6)
    federation = small_federation()
    best = result.summary["best_accuracy"]
    assert best == max(record.accuracy or 0 for record in result.history)
    for name, accuracy in (("model", result.accuracy), ("best", best)):
        model = small_model()
        model.load_state_dict(load_file(tmp_path / "run" / f"{name}.safetensors"))
        model.eval()
        correct = model(federation.test.inputs).argmax(dim=1) == federation.test.labels
        assert correct.float().mean().item() == pytest.approx(accuracy)


@pytest.mark.parametrize("method", [CADIS(), FedDyn()])
@pytest.mark.parametrize("stop", [1, 3])
def test_resumed_run_is_identical_bit_for_bit(
    method: BaseMethod, stop: int, tmp_path: Path
) -> None:
    run_small_federation(tmp_path / "whole", method=method)
    with pytest.raises(KeyboardInterrupt):
        run_small_federation(tmp_path / "cut", method=method, on_round=stop_after(stop))
    with (tmp_path / "cut" / "history.jsonl").open("a") as file:
        file.write('{"round": 99, "acc')  # killed while writing
    run_small_federation(tmp_path / "cut", method=method, resume=True, workers=2)
    whole, cut = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "cut")
    assert have_identical_models(whole.path, cut.path)
    for expected, actual in zip(whole.read_history(), cut.read_history(), strict=True):
        assert expected.accuracy == actual.accuracy
        assert expected.loss == actual.loss
        assert expected.weights == actual.weights


def test_damaged_checkpoint_is_reported_and_the_result_is_the_same(tmp_path: Path) -> None:
    run_small_federation(tmp_path / "whole", method=FedDyn())
    with pytest.raises(KeyboardInterrupt):
        run_small_federation(tmp_path / "cut", method=FedDyn(), on_round=stop_after(3))
    (damaged,) = (tmp_path / "cut" / "checkpoint").glob("round-3.safetensors")
    content = bytearray(damaged.read_bytes())
    content[-9] ^= 4
    damaged.write_bytes(content)
    with pytest.warns(UserWarning, match=r"round-3.safetensors is damaged.* from round 2"):
        run_small_federation(tmp_path / "cut", method=FedDyn(), resume=True)
    assert have_identical_models(tmp_path / "whole", tmp_path / "cut")


def test_finished_run_can_be_extended(tmp_path: Path) -> None:
    run_small_federation(tmp_path / "long", rounds=5)
    run_small_federation(tmp_path / "short", rounds=2)
    result = run_small_federation(tmp_path / "short", rounds=5, resume=True)
    assert [record.round for record in result.history] == [1, 2, 3, 4, 5]
    first, second = (load_file(tmp_path / n / "model.safetensors") for n in ("long", "short"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    again = run_small_federation(tmp_path / "short", rounds=5, resume=True)  # nothing left to do
    assert again.summary["confusion"] == result.summary["confusion"]


def test_resuming_with_other_options_is_refused(tmp_path: Path) -> None:
    run_small_federation(tmp_path / "run", rounds=2)
    with pytest.raises(CadisError, match=r"has lr = 0.1, not 0.2"):
        run_small_federation(tmp_path / "run", rounds=2, lr=0.2, resume=True)
    with pytest.raises(CadisError, match="already has 2 rounds"):
        run_small_federation(tmp_path / "run", rounds=1, resume=True)
    with pytest.raises(CadisError, match="no run in the folder"):
        run_small_federation(tmp_path / "nowhere", resume=True)
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(CadisError, match="has other clients or data"):
        run_small_federation(tmp_path / "run", rounds=2, true_clusters=[0, 0, 0, 1, 2], resume=True)


def test_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(CadisError, match="is not empty"):
        run_small_federation(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_run_without_a_folder_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = run_small_federation(rounds=2, method=FedDyn())
    assert result.folder is None
    assert list(tmp_path.iterdir()) == []
    assert result.model(torch.zeros(1, 1, 4, 4)).shape == (1, 5)


def test_data_that_do_not_fit_the_model_are_refused_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    federation = small_federation()
    test = federation.test.inputs, federation.test.labels
    good = federation.clients[0].inputs, federation.clients[0].labels
    cases = {
        "Client 1 has inputs of shape": [good, (torch.zeros(3, 9), torch.zeros(3).long())],
        "Client 0 has inputs of .* type torch.float16": [(good[0].half(), good[1])],
        "Client 0 is not a pair": [good[0]],
    }
    for sentence, clients in cases.items():
        with pytest.raises(CadisError, match=sentence):
            cadis.run(small_model(), clients, test, rounds=1, out=tmp_path / "r")  # type: ignore[arg-type]
    with pytest.raises(CadisError, match="cannot be applied to inputs of shape"):
        cadis.run(torch.nn.Linear(3, 5), [good], test, rounds=1, out=tmp_path / "r")
    with pytest.raises(CadisError, match="folder of the run to resume"):
        cadis.run(small_model(), [good], test, rounds=1, resume=True)
    assert not (tmp_path / "r").exists()


def test_folder_of_a_run_without_rounds_can_be_reused(tmp_path: Path) -> None:
    with pytest.raises(cadis.RunError, match="smaller learning rate"):
        run_small_federation(tmp_path / "run", lr=1e30)
    assert (tmp_path / "run" / "config.toml").exists()
    assert (
        run_small_federation(tmp_path / "run", rounds=1, method="fedavg").summary["rejected"] == 0
    )


def test_numpy_arrays_are_accepted() -> None:
    federation = small_federation()
    clients = ((client.inputs.numpy(), client.labels.numpy()) for client in federation.clients)
    test = federation.test.inputs.numpy(), federation.test.labels.numpy()
    result = cadis.run(small_model(), clients, test, rounds=1, workers=1)
    assert len(result.history) == 1


def test_rare_classes_computed_by_hand() -> None:
    def client(cluster: int | None, samples: list[int]) -> dict[str, object]:
        return {"id": 0, "cluster": cluster, "samples": samples}

    skewed = [client(0, [3, 1, 0]), client(0, [2, 2, 0]), client(1, [0, 0, 5])]
    assert find_rare_classes({"clients": skewed}) == [2]
    assert find_rare_classes({"clients": skewed[1:]}) == []  # clusters of one size
    assert find_rare_classes({"clients": [client(None, [1, 1, 1])]}) == []


@pytest.mark.parametrize("method", ["cadis", "singleset"])
def test_examples_of_a_loaded_dataset_are_accepted_as_clients(method: str) -> None:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (30, 1, 4, 4), generator=generator, dtype=torch.uint8)
    labels, scaling = torch.arange(30) % 5, Scaling((0.4,), (0.3,))
    raw = Samples(pixels, labels, scaling)
    clients = [raw.take(slice(0, 12)), raw.take(slice(12, 30))]
    floats = [(client.scaled_inputs, client.labels) for client in clients]
    options = {"rounds": 2, "method": method, "workers": 1}
    results = [
        cadis.run(small_model(), clients, raw, **options),  # type: ignore[arg-type]
        cadis.run(small_model(), floats, (raw.scaled_inputs, labels), **options),  # type: ignore[arg-type]
    ]
    losses = [[record.loss for record in result.history] for result in results]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    with pytest.raises(CadisError, match="scaled differently"):
        cadis.run(small_model(), [floats[0]], raw, rounds=1)
