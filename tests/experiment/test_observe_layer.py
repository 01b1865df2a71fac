"""Updates of the classifier layer agree with the proposition of the paper."""

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
from cadis.experiment import load_dataset, make_model, observe_layer, resolve
from cadis.rng import derive_generator
from support import draw_picture
from theory import find_trained_classes


def observe(classes: str = "", **options: Any) -> HeadProbe:
    return observe_layer(resolve({}, {"workers": 1, **options}), classes)


@pytest.mark.parametrize(
    ("classes", "options"),
    [("", {}), ("8,3,5,7", {"seed": 1}), ("9,0,4", {"model": "mlp"}), ("", {"model": "cnn"})],
)
def test_rows_of_trained_classes_grow_and_all_others_shrink(
    classes: str, options: dict[str, Any]
) -> None:
    probe = observe(classes, epochs=2, **options)
    for panel in probe.models:
        trained = torch.tensor([n in panel.trained for n in range(10)])
        assert set(panel.grown_classes) == set(panel.trained)
        assert torch.equal(panel.row_sums > 0, trained)
        assert torch.equal(find_trained_classes(panel.update), trained)
        assert (panel.update[~trained] <= 0).all()
    assert (probe.examples[0].update[probe.examples[0].trained[0]] >= 0).all()


def test_classes_and_samples_of_each_model() -> None:
    probe = observe("8,3,5,7", epochs=1)
    assert [panel.trained for panel in probe.models] == [(8,), (8, 5), (8, 3), (8, 3), (5, 7)]
    assert [panel.samples for panel in probe.models] == [100] * 5
    assert [panel.trained for panel in observe("2,1,0", epochs=1).clients] == [(2, 1), (2, 1), (0,)]
    assert probe.models == probe.examples + probe.clients


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_clients_with_the_same_classes_have_similar_updates(seed: int) -> None:
    probe = observe(seed=seed)
    cosines = probe.cosines
    assert 0.8 < cosines[0, 1] < 0.999  # the samples differ
    assert cosines[:2, 2].max() < 0.2
    one, other, _ = (panel.update.flatten().double() for panel in probe.clients)
    by_hand = one @ other / (one.square().sum() * other.square().sum()).sqrt()
    assert cosines[0, 1].item() == pytest.approx(by_hand.item(), abs=1e-5)


def test_updates_depend_only_on_the_seed() -> None:
    first, again, other = (
        torch.stack([panel.update for panel in observe(epochs=1, **options).models])
        for options in ({"seed": 4}, {"seed": 4, "workers": 2, "method": "fedprox"}, {"seed": 5})
    )
    assert torch.equal(first, again)
    assert not torch.isclose(first, other).all()


def train_by_hand(options: dict[str, Any]) -> Tensor:
    """Return the first update computed with plain torch: class 0, one epoch of SGD."""
    config = resolve({}, options)
    train = load_dataset(config.settings).train
    model = make_model(config.settings.resolve_auto(5, (1, 8, 8)), (1, 8, 8), 10)
    before = deepcopy(model.state_dict())
    pool = (train.labels == 0).nonzero()[:, 0]
    pool = pool[torch.randperm(len(pool), generator=derive_generator(options["seed"], "layer", 0))][
        :100
    ]
    shuffle = derive_generator(options["seed"], "train", 1, "one class")
    torch.randint(2**62, (), generator=shuffle)  # the seed of dropout
    order = pool[torch.randperm(100, generator=shuffle)]
    optimizer = torch.optim.SGD(model.parameters(), lr=options["lr"])
    for batch in order.split(options["batch_size"]):
        optimizer.zero_grad()
        F.cross_entropy(model(train.take(batch).scaled_inputs), train.labels[batch]).backward()
        optimizer.step()
    after = model.state_dict()
    weight, bias = (name for name in list(after)[-2:])
    assert weight.endswith("weight")
    columns = [after[weight] - before[weight], (after[bias] - before[bias])[:, None]]
    return torch.cat(columns, dim=1)


def test_update_is_trained_minus_initial_layer() -> None:
    options: dict[str, Any] = {"seed": 3, "epochs": 1, "batch_size": 10, "lr": 0.05}
    probe = observe(**options)
    panel = probe.examples[0]
    assert probe.has_bias
    assert panel.update.shape == (10, 64 + 1)
    assert torch.allclose(panel.update, train_by_hand(options), atol=1e-6)
    assert panel.update.abs().max() > 0.01


def test_layer_without_bias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("unbiased.py").write_text(
        "from torch import nn\n"
        "def net(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False))\n"
    )
    probe = observe(model="unbiased:net", epochs=1)
    assert not probe.has_bias
    assert probe.models[0].update.shape == (10, 64)


def draw_images(folder: Path, sizes: dict[str, int]) -> str:
    for colour, (name, size) in enumerate(sizes.items()):
        for n in range(size):
            draw_picture(folder / name / f"{n}.png", colour, seed=n)
    return f"images:{folder}"


def test_two_clients_share_the_samples_of_a_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    dataset = draw_images(tmp_path / "images", {"a": 10, "almost": 2, "b": 15, "c": 10})
    probe = observe(dataset=dataset, image_size=16, epochs=1)
    assert [panel.trained for panel in probe.clients] == [(0, 2), (0, 2), (3,)]
    one, other, third = (panel.samples for panel in probe.clients)
    labels = load_dataset(resolve({}, {"dataset": dataset, "image_size": 16}).settings).train.labels
    counts = labels.bincount().tolist()
    names = dict(zip(probe.classes, counts, strict=True))
    assert one == other == names["a"] // 2 + names["b"] // 2
    assert third == names["c"]
    with pytest.raises(CadisError, match="at least 4 training samples, not almost"):
        observe("a,almost,b", dataset=dataset, image_size=16)


@pytest.mark.parametrize(
    ("classes", "sentence"),
    [
        ("1,2,x", "There is no class 'x'"),
        ("1,2,", "There is no class ''"),
        ("1,2,1", "each; 2 are named"),
        ("1,2", "three or four classes with at least 4 training samples each; 2 are named"),
        ("1,2,3,4,5", "5 are named"),
    ],
)
def test_wrong_classes_are_refused(classes: str, sentence: str) -> None:
    with pytest.raises(CadisError, match=sentence):
        observe(classes)


def test_too_few_classes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    dataset = draw_images(tmp_path / "images", {"a": 10, "b": 10})
    with pytest.raises(CadisError, match=r"images:.* has 2"):
        observe(dataset=dataset, image_size=16)


def test_diverged_training_is_reported() -> None:
    with pytest.raises(RunError, match="smaller learning rate"):
        observe(lr=1e30, epochs=1)


def test_only_training_is_shown_as_progress() -> None:
    calls: list[tuple[str, int, int]] = []
    callbacks = Callbacks(progress=lambda *arguments: calls.append(arguments))
    observe_layer(resolve({}, {"workers": 1, "epochs": 1}), callbacks=callbacks)
    assert {call[::2] for call in calls} == {("training clients", 5)}
    assert [done for _, done, _ in calls] == [2, 5]  # in two stacks


def test_real_mnist(real_data: Callable[[str], Path]) -> None:
    location = {"data_dir": str(real_data("mnist")), "offline": True}
    probe = observe("8,3,5,7", dataset="mnist", epochs=1, **location)
    assert probe.model == "cnn"
    assert [set(panel.grown_classes) for panel in probe.models] == [
        set(panel.trained) for panel in probe.models
    ]
    assert probe.cosines[0, 1] > 0.9
    assert probe.cosines[:2, 2].max() < 0.1
