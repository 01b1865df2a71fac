"""Small federations and models that several tests use."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

import cadis
from cadis.algorithm import Algorithm, BaseMethod, ClientOutput, ModelOutputs, ServerState, Step
from cadis.algorithm.methods import METHODS
from cadis.algorithm.tasks import Classification
from cadis.data import Examples, digits
from cadis.engine import Engine, EngineSettings, Federation
from cadis.errors import CadisError
from cadis.models import FlatModel
from cadis.rng import generator_for
from cadis.server import RoundResult, RunState
from cadis.training import Client, Evaluation, LocalSettings, batch_sizes
from cadis.training import evaluate as evaluate_task
from cadis.training import view_of as view_of_task
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState

ALL_METHODS = [kind() for kind in METHODS.values()]


def blobs(count: int, labels: list[int], seed: int) -> Examples:
    """Pictures of 1 x 4 x 4 pixels; each class lights up pixels of its own."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.tensor(labels).repeat_interleave(-(-count // len(labels)))[:count]
    x = 0.3 * torch.randn(count, 16, generator=generator)
    x[torch.arange(count), 3 * y] += 2
    return Examples(x.view(count, 1, 4, 4), y)


def small_federation() -> Federation:
    """Five clients in three clusters: {0, 1}, {0, 1}, {0, 1}, {2, 3}, {4}."""
    owned = [[0, 1], [0, 1], [0, 1], [2, 3], [4]]
    clients = [blobs(9 + 2 * n, labels, seed=n) for n, labels in enumerate(owned)]
    truth = torch.tensor([0, 0, 0, 1, 2])
    return Federation(clients, blobs(25, [0, 1, 2, 3, 4], seed=99), true_clusters=truth)


def planted() -> Federation:
    """Four clients have the classes 0 and 1; two, who share a model with nobody, have 2 and 3."""
    owned = [[0, 1], [2, 3], [0, 1], [0, 1], [2, 3], [0, 1]]
    clients = [blobs(24, labels, seed=n) for n, labels in enumerate(owned)]
    return Federation(clients, blobs(20, [0, 1, 2, 3], seed=99))


def small_model(batch_norm: bool = False, dropout: float = 0.0) -> nn.Module:
    """A network for the pictures of :func:`blobs`."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, kernel_size=3, padding=1),
        nn.BatchNorm2d(3) if batch_norm else nn.Identity(),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(48, 7),
        nn.ReLU(),
        nn.Linear(7, 5),
    )


def small_settings(rounds: int = 3, workers: int = 1, per_round: int | None = 3) -> EngineSettings:
    local = LocalSettings(epochs=2, batch_size=4, lr=0.1)
    return EngineSettings(
        rounds, per_round, seed=7, workers=workers, device="cpu", local=local, test_clients=1
    )


def train_locally(
    model: FlatModel,
    method: BaseMethod,
    examples: Examples,
    received: ModelState,
    memory: TensorState,
    settings: LocalSettings,
    generator: torch.Generator,
) -> ClientOutput:
    """A client's half of the first round; ``model`` holds the result."""
    message = Message({"model": received})
    parts = Algorithm(method), settings, 1, message, memory, generator
    return method.local(Client(model, examples, *parts))


def evaluate(model: FlatModel, examples: Examples) -> Evaluation:
    """Test a model that tells classes apart."""
    return evaluate_task(model, examples, Classification())


def view_of(model: FlatModel, examples: Examples) -> ModelOutputs:
    """What a model that tells classes apart makes of examples."""
    return view_of_task(model, examples, Classification())


def view(logits: Tensor, representation: Tensor, labels: Tensor) -> ModelOutputs:
    """What a model with these outputs makes of examples."""
    correct = (logits.argmax(dim=-1) == labels) & ~logits.isnan().any(dim=-1)
    return ModelOutputs(logits, representation, labels, correct, F.cross_entropy(logits, labels))


def step_of(parameters: Tensor, received: Tensor, memory: TensorState | None = None) -> Step:
    """A step as penalties on parameters see it."""
    unused = torch.zeros(1)
    return Step(unused, unused, unused, parameters, received, {}, {}, memory or {})


def update_of(client: ClientId, examples: int, model: ModelState, **scalars: float) -> ClientUpdate:
    """An update with the only model there is."""
    return ClientUpdate(client, examples, Message({"model": model}, {}, scalars))


def flat_model(*parameters: float) -> ModelState:
    """A model of a few parameters and nothing else."""
    return ModelState(torch.tensor(parameters), torch.zeros(0), torch.zeros(0).long())


def state_of(model: ModelState, memory: TensorState | None = None) -> ServerState:
    """A server with one model."""
    return ServerState({"model": model}, memory or {})


def model_after(result: RoundResult) -> ModelState:
    """The only global model after a round."""
    return result.state.server.models["model"]


def models_after(result: RoundResult) -> list[ModelState]:
    """All global models after a round."""
    return list(result.state.server.models.values())


def run_rounds(
    method: BaseMethod | Algorithm,
    folder: Path,
    settings: EngineSettings | None = None,
    model: nn.Module | None = None,
    start: RunState | None = None,
) -> list[RoundResult]:
    """Run the small federation; the results of all rounds."""
    algorithm = method if isinstance(method, Algorithm) else Algorithm(method)
    engine = Engine(
        model or small_model(), small_federation(), algorithm, settings or small_settings(), folder
    )
    return list(engine.rounds(start or engine.start))


def run_small(**options: Any) -> cadis.RunResult:
    """Give the small model and federation to ``cadis.run``, but for what is given."""
    owned = {"clients": small_federation().clients, "test": small_federation().test}
    return cadis.run(**{"model": small_model(), **owned, **options})


def check_same_end(
    method: BaseMethod, federation: Federation, folder: Path, rounds: int, **options: Any
) -> None:
    """Stop a run before, at and after the round in which it first has several models, and resume.

    Each must end as a run that was never stopped.
    """

    def run(name: str, until: int, resume: bool = False) -> cadis.RunResult:
        owned = {"clients": federation.clients, "test": federation.test}
        where = {"out": folder / name, "rounds": until, "resume": resume}
        return run_small(method=method, **owned, **where, **options)

    whole = run("whole", rounds)
    split = next(record.round for record in whole.history if record.models)
    for stop in (split - 1, split, split + 1):
        run(f"part-{stop}", stop)
        again = run(f"part-{stop}", rounds, resume=True)
        assert same_models(folder / "whole", folder / f"part-{stop}")
        assert [r.client_models for r in again.history] == [r.client_models for r in whole.history]


def check_goes_on(algorithm: Algorithm, folder: Path, workers: int) -> None:
    """Stop a run after three of six rounds, and go on from its state as if it had not stopped."""
    whole = run_rounds(algorithm, folder, small_settings(6, per_round=2))
    first = run_rounds(algorithm, folder, small_settings(3, workers, per_round=2))
    settings = small_settings(6, workers, per_round=2)
    rest = run_rounds(algorithm, folder, settings, start=first[-1].state)
    for one, other in zip(models_after(whole[-1]), models_after(rest[-1]), strict=True):
        assert same(one.parameters, other.parameters)
    told = [result.record.participants for result in first + rest]
    assert told == [result.record.participants for result in whole]


def plain_batches(own: Examples, number: int, client: int) -> Iterator[Tensor]:
    """Yield the indices of a client's batches in a round, as ``small_settings`` say."""
    generator = generator_for(7, "train", number, client)
    torch.randint(2**62, (), generator=generator)  # the seed of dropout
    for _ in range(2):
        order = torch.randperm(len(own), generator=generator)
        yield from order.split(batch_sizes(len(own), 4))


def gradients_of(loss: Tensor, model: nn.Module) -> list[tuple[str, Tensor, Tensor]]:
    """Return the name, the numbers and the gradient of each parameter."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters)
    return list(zip(names, (p.data for p in parameters), gradients, strict=True))


def check_like_plain_loop(method: BaseMethod, expected: nn.Module, folder: Path) -> None:
    """Compare three rounds of everybody with a model that a plain loop has trained."""
    found = FlatModel(small_model())
    settings = small_settings(rounds=3, per_round=5)
    found.load(model_after(run_rounds(method, folder, settings)[-1]))
    for mine, theirs in zip(found.module.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def refused(function: Callable[..., object], *arguments: Any) -> str:
    """Call what must be refused in one sentence, and return the sentence."""
    with pytest.raises(CadisError) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def same(first: Tensor, second: Tensor) -> bool:
    """Bit for bit; NaN equals NaN."""
    return first.dtype == second.dtype and torch.equal(first.nan_to_num(), second.nan_to_num())


def same_models(first: Path, second: Path) -> bool:
    """Return whether two runs left the same models, bit for bit: the last and the best."""
    names = ("model.safetensors", "best.safetensors")
    return all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def draw_picture(path: Path, colour: int, seed: int, size: int = 24) -> None:
    """A noisy picture in which one channel is brightest."""
    pixels = np.random.default_rng(seed).integers(0, 90, (size, size, 3), dtype=np.uint8)
    pixels[:, :, colour % 3] += 120
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def draw_digits(folder: Path, count: int) -> None:
    """Draw digits of the test set in folders of their classes; the first of each is called 0."""
    test = digits().test.take(slice(0, count))
    shades = (test.inputs - test.inputs.min()) / (test.inputs.max() - test.inputs.min())
    for number, label in enumerate(test.labels.tolist()):
        own = folder / str(label)
        own.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray((shades[number, 0] * 255).round().byte().numpy())
        picture.save(own / f"{len(list(own.iterdir()))}.png")


def draw_pills(folder: Path, clients: int, beside: bool) -> None:
    """Pictures in the layout of the paper's pills: client c has the classes c and c + 1 of three.

    The pictures are in one folder beside the two datasets, or in a folder of each.
    """
    names = ["pill-a", "pill-b", "pill-c"]
    groups = {str(c): [c % 3, (c + 1) % 3] * 6 for c in range(clients)}
    for side, users in (("client", groups), ("server", {"0": [0, 1, 2] * 2})):
        own = folder / f"{side}_dataset"
        pictures = (folder if beside else own) / "pill_cropped"
        images = {
            user: [f"{side}-{user}-{n}.png" for n in range(len(kinds))]
            for user, kinds in users.items()
        }
        labels = {
            image: kind
            for user in users
            for image, kind in zip(images[user], users[user], strict=True)
        }
        for n, (image, kind) in enumerate(labels.items()):
            draw_picture(pictures / image, colour=kind, seed=n)
        own.mkdir(parents=True, exist_ok=True)
        contents = {
            "user_group_img": images,
            "img_label_dict": {image: names[kind] for image, kind in labels.items()},
            "label_hash": {name: number for number, name in enumerate(names)},
        }
        for name, content in contents.items():
            (own / f"{name}.json").write_text(json.dumps(content))
