"""Small federations, models and checks that several test files use."""

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
from cadis.data import Samples, digits
from cadis.engine import Engine, EngineSettings, Federation
from cadis.errors import CadisError
from cadis.models import FlatModel
from cadis.rng import derive_generator
from cadis.server import RoundResult, RunState
from cadis.training import Client, Evaluation, LocalSettings, compute_batch_sizes
from cadis.training import compute_model_outputs as compute_task_outputs
from cadis.training import evaluate as evaluate_task
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState

ALL_METHODS = [kind() for kind in METHODS.values()]


def blobs(count: int, labels: list[int], seed: int) -> Samples:
    """Draw images of 1 x 4 x 4 pixels; in each class, another pixel is bright."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.tensor(labels).repeat_interleave(-(-count // len(labels)))[:count]
    x = 0.3 * torch.randn(count, 16, generator=generator)
    x[torch.arange(count), 3 * y] += 2
    return Samples(x.view(count, 1, 4, 4), y)


def small_federation() -> Federation:
    """Return five clients in three clusters, with classes {0, 1} (3 clients), {2, 3} and {4}."""
    classes = [[0, 1], [0, 1], [0, 1], [2, 3], [4]]
    clients = [blobs(9 + 2 * n, labels, seed=n) for n, labels in enumerate(classes)]
    true_clusters = torch.tensor([0, 0, 0, 1, 2])
    return Federation(clients, blobs(25, [0, 1, 2, 3, 4], seed=99), true_clusters=true_clusters)


def planted_federation() -> Federation:
    """Return two clusters without common classes: four clients with {0, 1}, two with {2, 3}."""
    classes = [[0, 1], [2, 3], [0, 1], [0, 1], [2, 3], [0, 1]]
    clients = [blobs(24, labels, seed=n) for n, labels in enumerate(classes)]
    return Federation(clients, blobs(20, [0, 1, 2, 3], seed=99))


def small_model(batch_norm: bool = False, dropout: float = 0.0) -> nn.Module:
    """Build a network for the images of :func:`blobs`."""
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
    samples: Samples,
    received: ModelState,
    tensors: TensorState,
    settings: LocalSettings,
    generator: torch.Generator,
) -> ClientOutput:
    """Do the local part of round 1 for one client; ``model`` holds the result."""
    message = Message({"model": received})
    parts = Algorithm(method), settings, 1, message, tensors, generator
    return method.local(Client(model, samples, *parts))


def evaluate(model: FlatModel, samples: Samples) -> Evaluation:
    """Evaluate a classification model."""
    return evaluate_task(model, samples, Classification())


def compute_model_outputs(model: FlatModel, samples: Samples) -> ModelOutputs:
    """Compute the outputs of a classification model."""
    return compute_task_outputs(model, samples, Classification())


def make_model_outputs(logits: Tensor, representation: Tensor, labels: Tensor) -> ModelOutputs:
    """Build the outputs of a classification model from its logits and representations."""
    correct = (logits.argmax(dim=-1) == labels) & ~logits.isnan().any(dim=-1)
    return ModelOutputs(logits, representation, labels, correct, F.cross_entropy(logits, labels))


def make_step(parameters: Tensor, received: Tensor, tensors: TensorState | None = None) -> Step:
    """Build a step for penalties on parameters; its other fields are empty."""
    unused = torch.zeros(1)
    return Step(unused, unused, unused, parameters, received, {}, {}, tensors or {})


def make_update(
    client: ClientId, samples: int, model: ModelState, **scalars: float
) -> ClientUpdate:
    """Build the update of a client with one model."""
    return ClientUpdate(client, samples, Message({"model": model}, {}, scalars))


def flat_model(*parameters: float) -> ModelState:
    """Build a model with these parameters, without buffers and counters."""
    return ModelState(torch.tensor(parameters), torch.zeros(0), torch.zeros(0).long())


def make_server_state(model: ModelState, tensors: TensorState | None = None) -> ServerState:
    """Build the state of a server with one model."""
    return ServerState({"model": model}, tensors or {})


def get_model(result: RoundResult) -> ModelState:
    """Return the only global model after a round."""
    return result.state.server.models["model"]


def get_models(result: RoundResult) -> list[ModelState]:
    """Return all global models after a round."""
    return list(result.state.server.models.values())


def run_rounds(
    method: BaseMethod | Algorithm,
    folder: Path,
    settings: EngineSettings | None = None,
    model: nn.Module | None = None,
    start: RunState | None = None,
) -> list[RoundResult]:
    """Run the small federation, and return the results of all rounds."""
    algorithm = method if isinstance(method, Algorithm) else Algorithm(method)
    engine = Engine(
        model or small_model(), small_federation(), algorithm, settings or small_settings(), folder
    )
    return list(engine.rounds(start or engine.start))


def run_small(**options: Any) -> cadis.RunResult:
    """Call ``cadis.run`` with the small model and federation, unless options replace them."""
    data = {"clients": small_federation().clients, "test": small_federation().test}
    return cadis.run(**{"model": small_model(), **data, **options})


def check_resumed_runs_are_identical(
    method: BaseMethod, federation: Federation, folder: Path, rounds: int, **options: Any
) -> None:
    """Check that stopped and resumed runs end with the models of a run that was never stopped.

    Runs stop before, at and after the first round with several models.
    """

    def run(name: str, until: int, resume: bool = False) -> cadis.RunResult:
        data = {"clients": federation.clients, "test": federation.test}
        settings = {"out": folder / name, "rounds": until, "resume": resume}
        return run_small(method=method, **data, **settings, **options)

    whole = run("whole", rounds)
    split = next(record.round for record in whole.history if record.models)
    for stop in (split - 1, split, split + 1):
        run(f"part-{stop}", stop)
        rest = run(f"part-{stop}", rounds, resume=True)
        assert have_identical_models(folder / "whole", folder / f"part-{stop}")
        assert [r.client_models for r in rest.history] == [r.client_models for r in whole.history]


def check_resume(algorithm: Algorithm, folder: Path, workers: int) -> None:
    """Check that a run resumed after three of six rounds equals one that was never stopped."""
    whole = run_rounds(algorithm, folder, small_settings(6, per_round=2))
    first = run_rounds(algorithm, folder, small_settings(3, workers, per_round=2))
    settings = small_settings(6, workers, per_round=2)
    rest = run_rounds(algorithm, folder, settings, start=first[-1].state)
    for one, other in zip(get_models(whole[-1]), get_models(rest[-1]), strict=True):
        assert is_identical(one.parameters, other.parameters)
    participants = [result.record.participants for result in first + rest]
    assert participants == [result.record.participants for result in whole]


def iter_plain_batches(samples: Samples, number: int, client: int) -> Iterator[Tensor]:
    """Yield the indices of a client's batches in a round, for ``small_settings``."""
    generator = derive_generator(7, "train", number, client)
    torch.randint(2**62, (), generator=generator)  # the seed of dropout
    for _ in range(2):
        order = torch.randperm(len(samples), generator=generator)
        yield from order.split(compute_batch_sizes(len(samples), 4))


def list_gradients(loss: Tensor, model: nn.Module) -> list[tuple[str, Tensor, Tensor]]:
    """Return the name, the value and the gradient of each parameter."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters)
    return list(zip(names, (p.data for p in parameters), gradients, strict=True))


def check_matches_plain_loop(method: BaseMethod, expected: nn.Module, folder: Path) -> None:
    """Compare three rounds of all clients with a model that a plain loop has trained."""
    model = FlatModel(small_model())
    settings = small_settings(rounds=3, per_round=5)
    model.load(get_model(run_rounds(method, folder, settings)[-1]))
    for ours, theirs in zip(model.module.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def get_refusal(function: Callable[..., object], *arguments: Any) -> str:
    """Call a function that must raise a CadisError of one line, and return its message."""
    with pytest.raises(CadisError) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def is_identical(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors are equal bit for bit; NaN equals NaN."""
    return first.dtype == second.dtype and torch.equal(first.nan_to_num(), second.nan_to_num())


def have_identical_models(first: Path, second: Path) -> bool:
    """Return whether the last and the best models of two runs are equal bit for bit."""
    names = ("model.safetensors", "best.safetensors")
    return all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def draw_picture(path: Path, colour: int, seed: int, size: int = 24) -> None:
    """Save a noisy image in which one channel is brightest."""
    pixels = np.random.default_rng(seed).integers(0, 90, (size, size, 3), dtype=np.uint8)
    pixels[:, :, colour % 3] += 120
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def draw_digits(folder: Path, count: int) -> None:
    """Save digits of the test set as ``<class>/<number>.png``, numbered from 0 in each class."""
    test = digits().test.take(slice(0, count))
    shades = (test.inputs - test.inputs.min()) / (test.inputs.max() - test.inputs.min())
    for number, label in enumerate(test.labels.tolist()):
        class_folder = folder / str(label)
        class_folder.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray((shades[number, 0] * 255).round().byte().numpy())
        picture.save(class_folder / f"{len(list(class_folder.iterdir()))}.png")


def draw_pills(folder: Path, clients: int, beside: bool) -> None:
    """Save images in the format of the paper's pills; client c has the classes c and c + 1 of 3.

    Args:
        folder: the folder to create.
        clients: the number of clients.
        beside: whether all images are in one folder beside the two datasets; otherwise each
            dataset has its own folder of images.
    """
    names = ["pill-a", "pill-b", "pill-c"]
    groups = {str(c): [c % 3, (c + 1) % 3] * 6 for c in range(clients)}
    for side, users in (("client", groups), ("server", {"0": [0, 1, 2] * 2})):
        dataset = folder / f"{side}_dataset"
        pictures = (folder if beside else dataset) / "pill_cropped"
        images = {
            user: [f"{side}-{user}-{n}.png" for n in range(len(pills))]
            for user, pills in users.items()
        }
        labels = {
            image: pill
            for user in users
            for image, pill in zip(images[user], users[user], strict=True)
        }
        for n, (image, pill) in enumerate(labels.items()):
            draw_picture(pictures / image, colour=pill, seed=n)
        dataset.mkdir(parents=True, exist_ok=True)
        contents = {
            "user_group_img": images,
            "img_label_dict": {image: names[pill] for image, pill in labels.items()},
            "label_hash": {name: number for number, name in enumerate(names)},
        }
        for name, content in contents.items():
            (dataset / f"{name}.json").write_text(json.dumps(content))
