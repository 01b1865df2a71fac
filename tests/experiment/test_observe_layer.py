"""The paper's figure of the classifier layer: its proposition and its observation as oracles."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from cadis._io import Callbacks
from cadis.analysis import HeadProbe
from cadis.errors import CadisError, RunError
from cadis.experiment import build_model, load_dataset, observe_layer, resolve
from cadis.rng import generator_for
from support import draw_picture
from theory import present_classes


def observe(classes: str = "", **given: Any) -> HeadProbe:
    return observe_layer(resolve({}, {"workers": 1, **given}), classes)


@pytest.mark.parametrize(
    ("classes", "given"),
    [("", {}), ("8,3,5,7", {"seed": 1}), ("9,0,4", {"model": "mlp"}), ("", {"model": "cnn"})],
)
def test_rows_of_trained_classes_grow_and_all_others_shrink(
    classes: str, given: dict[str, Any]
) -> None:
    probe = observe(classes, epochs=2, **given)
    for panel in probe.panels:
        trained = torch.tensor([n in panel.trained for n in range(10)])
        assert set(panel.grown) == set(panel.trained)
        assert torch.equal(panel.row_sums > 0, trained)
        assert torch.equal(present_classes(panel.update), trained)
        assert (panel.update[~trained] <= 0).all()
    assert (probe.examples[0].update[probe.examples[0].trained[0]] >= 0).all()


def test_who_is_trained_on_what() -> None:
    probe = observe("8,3,5,7", epochs=1)
    assert [panel.trained for panel in probe.panels] == [(8,), (8, 5), (8, 3), (8, 3), (5, 7)]
    assert [panel.samples for panel in probe.panels] == [100] * 5
    assert [panel.trained for panel in observe("2,1,0", epochs=1).clients] == [(2, 1), (2, 1), (0,)]
    assert probe.panels == probe.examples + probe.clients


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_alike_clients_are_alike_and_not_the_same(seed: int) -> None:
    probe = observe(seed=seed)
    cosines = probe.cosines
    assert 0.8 < cosines[0, 1] < 0.999  # the samples differ
    assert cosines[:2, 2].max() < 0.2
    one, other, _ = (panel.update.flatten().double() for panel in probe.clients)
    by_hand = one @ other / (one.square().sum() * other.square().sum()).sqrt()
    assert cosines[0, 1].item() == pytest.approx(by_hand.item(), abs=1e-5)


def test_the_seed_decides_and_nothing_else() -> None:
    first, again, other = (
        torch.stack([panel.update for panel in observe(epochs=1, **given).panels])
        for given in ({"seed": 4}, {"seed": 4, "workers": 2, "method": "fedprox"}, {"seed": 5})
    )
    assert torch.equal(first, again)
    assert not torch.isclose(first, other).all()


def trained_by_hand(given: dict[str, Any]) -> Tensor:
    """The first panel by bare torch: 100 samples of class 0, one epoch of SGD."""
    config = resolve({}, given)
    train = load_dataset(config.settings).train
    model = build_model(config.settings.resolve_auto(5, (1, 8, 8)), (1, 8, 8), 10)
    before = deepcopy(model.state_dict())
    pool = (train.labels == 0).nonzero()[:, 0]
    pool = pool[torch.randperm(len(pool), generator=generator_for(given["seed"], "layer", 0))][:100]
    shuffle = generator_for(given["seed"], "train", 1, "one class")
    torch.randint(2**62, (), generator=shuffle)  # the seed of dropout
    order = pool[torch.randperm(100, generator=shuffle)]
    optimiser = torch.optim.SGD(model.parameters(), lr=given["lr"])
    for batch in order.split(given["batch_size"]):
        optimiser.zero_grad()
        F.cross_entropy(model(train.take(batch).scaled), train.labels[batch]).backward()
        optimiser.step()
    after = model.state_dict()
    weight, bias = (name for name in list(after)[-2:])
    assert weight.endswith("weight")
    columns = [after[weight] - before[weight], (after[bias] - before[bias])[:, None]]
    return torch.cat(columns, dim=1)


def test_the_update_is_the_trained_layer_minus_the_initial_one() -> None:
    given: dict[str, Any] = {"seed": 3, "epochs": 1, "batch_size": 10, "lr": 0.05}
    probe = observe(**given)
    panel = probe.examples[0]
    assert probe.has_bias
    assert panel.update.shape == (10, 64 + 1)
    assert torch.allclose(panel.update, trained_by_hand(given), atol=1e-6)
    assert panel.update.abs().max() > 0.01


def test_a_layer_without_bias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("unbiased.py").write_text(
        "from torch import nn\n"
        "def net(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False))\n"
    )
    probe = observe(model="unbiased:net", epochs=1)
    assert not probe.has_bias
    assert probe.panels[0].update.shape == (10, 64)


def album(folder: Path, sizes: dict[str, int]) -> str:
    for colour, (name, size) in enumerate(sizes.items()):
        for n in range(size):
            draw_picture(folder / name / f"{n}.png", colour, seed=n)
    return f"images:{folder}"


def test_few_samples_are_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    dataset = album(tmp_path / "album", {"a": 10, "almost": 2, "b": 15, "c": 10})
    probe = observe(dataset=dataset, image_size=16, epochs=1)
    assert [panel.trained for panel in probe.clients] == [(0, 2), (0, 2), (3,)]
    one, other, stranger = (panel.samples for panel in probe.clients)
    labels = load_dataset(resolve({}, {"dataset": dataset, "image_size": 16}).settings).train.labels
    counts = labels.bincount().tolist()
    names = dict(zip(probe.classes, counts, strict=True))
    assert one == other == names["a"] // 2 + names["b"] // 2
    assert stranger == names["c"]
    with pytest.raises(CadisError, match="at least 4 training samples, not almost"):
        observe("a,almost,b", dataset=dataset, image_size=16)


@pytest.mark.parametrize(
    ("classes", "sentence"),
    [
        ("1,2,x", "There is no class 'x'"),
        ("1,2,", "There is no class ''"),
        ("1,2,1", "each; 2 are named"),
        ("1,2", "three or four classes of at least 4 training samples each; 2 are named"),
        ("1,2,3,4,5", "5 are named"),
    ],
)
def test_wrong_classes_are_a_sentence(classes: str, sentence: str) -> None:
    with pytest.raises(CadisError, match=sentence):
        observe(classes)


def test_too_few_classes_are_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    dataset = album(tmp_path / "album", {"a": 10, "b": 10})
    with pytest.raises(CadisError, match=r"images:.* has 2"):
        observe(dataset=dataset, image_size=16)


def test_what_became_infinite_is_a_sentence() -> None:
    with pytest.raises(RunError, match="smaller learning rate"):
        observe(lr=1e30, epochs=1)


def test_only_training_is_told() -> None:
    heard: list[tuple[str, int, int]] = []
    callbacks = Callbacks(progress=lambda *told: heard.append(told))
    observe_layer(resolve({}, {"workers": 1, "epochs": 1}), callbacks=callbacks)
    assert {told[::2] for told in heard} == {("training clients", 5)}
    assert [done for _, done, _ in heard] == [2, 5]  # in two stacks


def test_real_mnist(real_data: Callable[[str], Path]) -> None:
    where = {"data_dir": str(real_data("mnist")), "offline": True}
    probe = observe("8,3,5,7", dataset="mnist", epochs=1, **where)
    assert probe.model == "cnn"
    assert [set(panel.grown) for panel in probe.panels] == [
        set(panel.trained) for panel in probe.panels
    ]
    assert probe.cosines[0, 1] > 0.9
    assert probe.cosines[:2, 2].max() < 0.1
