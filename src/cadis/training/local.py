"""A client at work: the one loop that trains a model on a client's own data, and its reply."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from types import MethodType
from typing import Annotated, Any, TypeVar

import torch
from annotated_types import Gt
from torch import Tensor

from cadis.algorithm import (
    Algorithm,
    BaseMethod,
    BatchExtras,
    Calibration,
    ClientOutput,
    EpochOrder,
    LocalResult,
    ModelOutputs,
    Penalty,
    Step,
)
from cadis.algorithm.local_optimizers import LocalOptimizer
from cadis.algorithm.transforms import apply_chain
from cadis.data import Examples
from cadis.errors import CadisError, RunError
from cadis.models import FlatModel, auto_lr, channels_last
from cadis.options import Device, Precision
from cadis.rng import generator_for
from cadis.training.augmentation import augmented
from cadis.training.evaluation import view_of
from cadis.training.fast.closed_forms import parameter_gradient
from cadis.training.fast.in_place import InPlaceLinears
from cadis.types import ClientId, Message, ModelState, TensorState

_Hook = TypeVar("_Hook", bound=Callable[..., Any])


@dataclass(frozen=True)
class LocalSettings:
    """How a client trains.

    Attributes:
        epochs: E, passes over the client's data.
        batch_size: b.
        lr: eta, the learning rate.
        augment: what is done to pictures at random before a step, by name.
        precision: of the arithmetic in a step; weights are always kept as they are.
    """

    epochs: Annotated[int, Gt(0)] = 5
    batch_size: Annotated[int, Gt(0)] = 8
    lr: Annotated[float, Gt(0)] = field(default_factory=lambda: auto_lr(None))
    augment: tuple[str, ...] = ()
    precision: Precision = "float32"


@dataclass
class Client:
    """A client in a round; :class:`cadis.algorithm.LocalClient` is what methods see of it.

    Attributes:
        model: where to train; what it held before does not matter.
        examples: the client's own, on the model's device.
        algorithm: whose task and local optimiser are used.
        settings: epochs, batch size, learning rate.
        number: the round, from 1.
        received: what the server sent.
        memory: what this client remembers.
        generator: shuffles the examples, and seeds dropout and augmentation.
    """

    model: FlatModel
    examples: Examples
    algorithm: Algorithm
    settings: LocalSettings
    number: int
    received: Message
    memory: TensorState
    generator: torch.Generator = field(default_factory=torch.Generator)

    def __post_init__(self) -> None:
        device = self.model.vector.device
        self.memory = {name: tensor.to(device) for name, tensor in self.memory.items()}
        tensors = {name: tensor.to(device) for name, tensor in self.received.tensors.items()}
        self.received = replace(self.received, tensors=tensors)

    @property
    def num_examples(self) -> int:
        """How many samples it has."""
        return len(self.examples)

    def view(self, model: ModelState) -> ModelOutputs:
        """What a model makes of the client's data, in evaluation mode."""
        self.model.load(model)
        with self._autocast():
            return view_of(self.model, self.examples, self.algorithm.task)

    def loss(self, model: ModelState) -> float:
        """The mean loss of a model on the client's data, in evaluation mode."""
        return float(self.view(model).loss)

    def train(
        self,
        model: ModelState,
        penalty: Penalty | None = None,
        prepared: BatchExtras | None = None,
        calibrate: Calibration | None = None,
        epoch_order: EpochOrder | None = None,
    ) -> LocalResult:
        """Train a copy of a model on the client's data."""
        flat, task, optimizer = self.model, self.algorithm.task, self.algorithm.local_optimizer
        flat.load(model)
        start = flat.vector.detach().clone()
        lr = optimizer.lr_in_round(self.settings.lr, self.number)
        stepper = _Stepper(flat, optimizer, lr)
        losses, steps, counts = torch.zeros((), device=start.device), 0, self.class_counts()
        gradient = parameter_gradient(self.algorithm.method, penalty)
        calibrate = unless_default(calibrate, BaseMethod.calibrate)
        flat.module.train()
        devices = [start.device] if start.is_cuda else []
        with torch.random.fork_rng(devices=devices), stepper.stepping():
            _seed(_draw_seed(self.generator), start.device)
            for batch, per_example in self._batches(prepared or BatchExtras(), epoch_order):
                with self._autocast():
                    logits, representation = flat.forward(batch.scaled)
                logits = logits.to(start.dtype)
                step = Step(
                    logits=logits,
                    representation=representation,
                    labels=batch.labels,
                    parameters=flat.vector,
                    received=start,
                    tensors=self.received.tensors,
                    per_example=per_example,
                    memory=self.memory,
                    class_counts=counts,
                )
                told = logits if calibrate is None else calibrate(step)
                loss = task.loss(told, batch.labels, "mean")
                losses += loss.detach()
                extra = drift = None
                if gradient is not None:
                    with torch.no_grad():
                        drift = gradient(step)
                elif penalty is not None:
                    extra = penalty(step)
                total = loss if extra is None else loss + extra
                stepper.step(total, extra is not None or calibrate is not None, drift)
                steps += 1
        trained = flat.state()
        own = trained.parameters if start.device.type == "cpu" else flat.vector.detach().clone()
        reach = effective_steps(optimizer, steps, lr)
        return LocalResult(trained, own, start, steps, lr, float(losses) / steps, reach)

    def class_counts(self) -> Tensor:
        """How many samples of each class it has, (classes,)."""
        classes = self.algorithm.task.num_classes(self.model.num_outputs)
        return torch.bincount(self.examples.labels, minlength=classes)

    def _autocast(self) -> AbstractContextManager[object]:
        """What makes a pass through the model as precise as asked for."""
        if self.settings.precision == "float32":
            return nullcontext()
        return torch.autocast(self.model.vector.device.type, torch.bfloat16)

    def epochs(
        self, prepared: BatchExtras, epoch_order: EpochOrder | None = None
    ) -> Iterator[tuple[Examples, TensorState]]:
        """The shuffled examples of each epoch, and what was prepared for them."""
        examples, settings, generator = self.examples, self.settings, self.generator
        chance = generator
        if settings.augment:  # its draws leave those of the other alone
            chance = torch.Generator().manual_seed(_draw_seed(generator))
        for _ in range(settings.epochs):
            if epoch_order is None:
                order = torch.randperm(len(examples), generator=generator)
            else:
                order = epoch_order(examples.labels, generator)
            inputs = examples.inputs[order]
            if settings.augment:
                inputs = augmented(inputs, settings.augment, chance)
            shuffled = Examples(channels_last(inputs), examples.labels[order], examples.scaling)
            yield shuffled, {name: rows[order] for name, rows in prepared.per_example.items()}

    def _batches(
        self, prepared: BatchExtras, epoch_order: EpochOrder | None
    ) -> Iterator[tuple[Examples, TensorState]]:
        """Shuffled batches of all epochs: gathered once an epoch, then views."""
        sizes = batch_sizes(len(self.examples), self.settings.batch_size)
        for shuffled, rows_of in self.epochs(prepared, epoch_order):
            inputs, labels = shuffled.inputs.split(sizes), shuffled.labels.split(sizes)
            extra = {name: rows.split(sizes) for name, rows in rows_of.items()}
            for number, pair in enumerate(zip(inputs, labels, strict=True)):
                batch = Examples(*pair, shuffled.scaling)
                yield batch, {name: parts[number] for name, parts in extra.items()}


def unless_default(hook: _Hook | None, default: Callable[..., Any]) -> _Hook | None:
    """Return a hook of a method; None if it is the default, which need not be called."""
    return None if isinstance(hook, MethodType) and hook.__func__ is default else hook


class _Stepper:
    """Steps along gradients; where a step is plain SGD, without gathering them first."""

    def __init__(self, model: FlatModel, optimizer: LocalOptimizer, lr: float) -> None:
        self.model, self.optimizer, self.lr = model, optimizer, lr
        self.memory: dict[str, Tensor] = {}
        self._linears = InPlaceLinears()

    def stepping(self) -> AbstractContextManager[None]:
        """What must be around all steps."""
        plain = self.optimizer.is_plain
        return self._linears.of(self.model.module) if plain else nullcontext()

    def step(self, loss: Tensor, by_vector: bool, drift: Tensor | None) -> None:
        """Take one step along the gradient of the loss with its penalty.

        Args:
            loss: of the batch.
            by_vector: whether it may depend on the flat vector of parameters as well.
            drift: a gradient by the parameters that is added to that of the loss, (P,).
        """
        if not self.optimizer.is_plain:
            gradient = self.model.gradient(loss)
            with torch.no_grad():
                if drift is not None:
                    gradient = gradient.add_(drift)
                take_step(self.optimizer, self.model.vector, gradient, self.lr, self.memory)
            return
        leaves = self.model.parameters
        if by_vector:
            leaves = [*leaves, self.model.vector]
        gradients = self._linears.gradients(loss, leaves)
        with torch.no_grad():
            for leaf, part in zip(leaves, gradients, strict=True):
                if part is not None:
                    leaf.add_(part, alpha=-self.lr)
            if drift is not None:
                self.model.vector.add_(drift, alpha=-self.lr)
            self._linears.step(self.lr)


def take_step(
    optimizer: LocalOptimizer,
    parameters: Tensor,
    gradient: Tensor,
    lr: float,
    memory: dict[str, Tensor],
) -> None:
    """A step; one that returns new parameters instead of changing them would learn nothing."""
    returned: object = optimizer.step(parameters, gradient, lr, memory)  # type: ignore[func-returns-value]
    if returned is not None:
        raise RunError(
            f"{optimizer.name}.step must change the parameters in place, as by parameters.sub_, "
            f"and return nothing, not a {type(returned).__name__}."
        )


def effective_steps(optimizer: LocalOptimizer, steps: int, lr: float) -> float:
    """How many plain steps go as far, along a constant gradient, as these do.

    It is found by taking them with one parameter: FedNova's norm of a_i for any optimiser.
    """
    if optimizer.is_plain:
        return float(steps)
    parameter, memory = torch.zeros(1, dtype=torch.float64), dict[str, Tensor]()
    for _ in range(steps):
        take_step(optimizer, parameter, torch.ones(1, dtype=torch.float64), lr, memory)
    return -float(parameter) / lr


def batch_sizes(num_examples: int, batch_size: int) -> list[int]:
    """Sizes of an epoch's batches.

    A last batch of a single example joins the one before: batch norm cannot train on it.
    """
    whole, rest = divmod(num_examples, batch_size)
    sizes = [batch_size] * whole + [rest] * (rest > 0)
    if rest == 1 and whole:
        sizes[-2:] = [batch_size + 1]
    return sizes


def reply_to(
    received: Message,
    model: FlatModel,
    examples: Examples,
    memory: TensorState,
    algorithm: Algorithm,
    settings: LocalSettings,
    seed: int,
    number: int,
    client_id: ClientId,
    participants: int,
) -> ClientOutput:
    """Return what a client sends back, and what it remembers."""
    generator = generator_for(seed, "train", number, client_id)
    client = Client(model, examples, algorithm, settings, number, received, memory, generator)
    return sent_by(client, algorithm.method.local(client), seed, client_id, participants)


def sent_by(
    client: Client, output: ClientOutput, seed: int, client_id: ClientId, participants: int
) -> ClientOutput:
    """Return a client's output after its transforms, whose draws are of this seed and client."""
    tensors = {name: tensor.cpu() for name, tensor in output.tensors.items()}
    message = apply_chain(
        client.algorithm.transforms_of("client"),
        replace(output.message, tensors=tensors),
        client.received,
        participants,
        lambda name: generator_for(seed, "transform", name, client.number, client_id),
    )
    message = client.model.layout.restore_frozen(message, client.received)
    return ClientOutput(output.state, message.tensors, message.scalars, message.models)


def choose_device(device: Device) -> torch.device:
    """The only place where a device is chosen."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return torch.device(next((name for name, there in available.items() if there), "cpu"))
    if not available.get(device, True):
        raise CadisError(f"There is no '{device}' device on this machine; use the device 'cpu'.")
    return torch.device(device)


def _draw_seed(generator: torch.Generator) -> int:
    return int(torch.randint(2**62, (), generator=generator))


def _seed(seed: int, device: torch.device) -> None:
    """Seed what dropout draws from. Seeding every kind of device takes longer than a small step."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
