"""The local training of one client: the training loop and the client's output."""

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
from cadis.algorithm.transforms import apply_transforms
from cadis.data import Samples
from cadis.errors import CadisError, RunError
from cadis.models import FlatModel, get_auto_lr, to_channels_last
from cadis.options import Device, Precision
from cadis.rng import derive_generator
from cadis.training.augmentation import augment_inputs
from cadis.training.evaluation import compute_model_outputs
from cadis.training.fast.closed_forms import find_parameter_gradient
from cadis.training.fast.in_place import InPlaceLinears
from cadis.types import ClientId, Message, ModelState, TensorState

_Hook = TypeVar("_Hook", bound=Callable[..., Any])


@dataclass(frozen=True)
class LocalSettings:
    """Settings of local training.

    Attributes:
        epochs: E, the number of passes over the client's data.
        batch_size: b, the number of samples per batch.
        lr: eta, the learning rate.
        augment: names of the augmentations that are applied to images before each epoch.
        precision: the precision of the forward and backward pass; weights keep their type.

    Example:
        >>> LocalSettings(epochs=2, lr=0.1).batch_size
        8
    """

    epochs: Annotated[int, Gt(0)] = 5
    batch_size: Annotated[int, Gt(0)] = 8
    lr: Annotated[float, Gt(0)] = field(default_factory=lambda: get_auto_lr(None))
    augment: tuple[str, ...] = ()
    precision: Precision = "float32"


@dataclass
class Client:
    """A participant of a round; it implements :class:`cadis.algorithm.LocalClient` for methods.

    Attributes:
        model: the model to train in; its weights are overwritten.
        samples: the client's training data, on the model's device.
        algorithm: the algorithm, whose task and local optimizer are used.
        settings: the settings of local training.
        round_number: the round, from 1.
        received: the message of the server.
        state: the tensors that the client keeps between rounds.
        generator: shuffles the samples, and seeds dropout and augmentation.
    """

    model: FlatModel
    samples: Samples
    algorithm: Algorithm
    settings: LocalSettings
    round_number: int
    received: Message
    state: TensorState
    generator: torch.Generator = field(default_factory=torch.Generator)

    def __post_init__(self) -> None:
        device = self.model.vector.device
        self.state = {name: tensor.to(device) for name, tensor in self.state.items()}
        tensors = {name: tensor.to(device) for name, tensor in self.received.tensors.items()}
        self.received = replace(self.received, tensors=tensors)

    @property
    def num_samples(self) -> int:
        """The number of the client's training samples."""
        return len(self.samples)

    def compute_outputs(self, model: ModelState) -> ModelOutputs:
        """Return the outputs of a model for the client's data, in eval mode."""
        self.model.load(model)
        with self._autocast():
            return compute_model_outputs(self.model, self.samples, self.algorithm.task)

    def compute_loss(self, model: ModelState) -> float:
        """Return the mean loss of a model on the client's data, in eval mode."""
        return float(self.compute_outputs(model).loss)

    def train(
        self,
        model: ModelState,
        penalty: Penalty | None = None,
        extras: BatchExtras | None = None,
        calibrate: Calibration | None = None,
        epoch_order: EpochOrder | None = None,
    ) -> LocalResult:
        """Train a copy of a model on the client's data; see ``LocalClient.train``."""
        flat, task, optimizer = self.model, self.algorithm.task, self.algorithm.local_optimizer
        flat.load(model)
        start = flat.vector.detach().clone()
        lr = optimizer.compute_lr(self.settings.lr, self.round_number)
        stepper = _Stepper(flat, optimizer, lr)
        loss_sum, steps, counts = torch.zeros((), device=start.device), 0, self.count_classes()
        closed_form = find_parameter_gradient(self.algorithm.method, penalty)
        calibrate = drop_default_hook(calibrate, BaseMethod.calibrate)
        flat.module.train()
        devices = [start.device] if start.is_cuda else []
        with torch.random.fork_rng(devices=devices), stepper.patch_linears():
            _seed_device(_draw_seed(self.generator), start.device)
            for batch, per_sample in self._iter_batches(extras or BatchExtras(), epoch_order):
                with self._autocast():
                    logits, representation = flat.forward(batch.scaled_inputs)
                logits = logits.to(start.dtype)
                step = Step(
                    logits=logits,
                    representation=representation,
                    labels=batch.labels,
                    parameters=flat.vector,
                    received=start,
                    tensors=self.received.tensors,
                    per_sample=per_sample,
                    client_state=self.state,
                    class_counts=counts,
                )
                calibrated = logits if calibrate is None else calibrate(step)
                loss = task.loss(calibrated, batch.labels, "mean")
                loss_sum += loss.detach()
                penalty_value = penalty_grad = None
                if closed_form is not None:
                    with torch.no_grad():
                        penalty_grad = closed_form(step)
                elif penalty is not None:
                    penalty_value = penalty(step)
                total = loss if penalty_value is None else loss + penalty_value
                uses_vector = penalty_value is not None or calibrate is not None
                stepper.step(total, uses_vector, penalty_grad)
                steps += 1
        state = flat.copy_state()
        vector = state.parameters if start.device.type == "cpu" else flat.vector.detach().clone()
        effective_steps = compute_effective_steps(optimizer, steps, lr)
        loss_mean = float(loss_sum) / steps
        return LocalResult(state, vector, start, steps, lr, loss_mean, effective_steps)

    def count_classes(self) -> Tensor:
        """Return the number of the client's samples of each class, (classes,)."""
        classes = self.algorithm.task.num_classes(self.model.num_outputs)
        return torch.bincount(self.samples.labels, minlength=classes)

    def _autocast(self) -> AbstractContextManager[object]:
        """Return a context in which the model computes with the precision of the settings."""
        if self.settings.precision == "float32":
            return nullcontext()
        return torch.autocast(self.model.vector.device.type, torch.bfloat16)

    def iter_epochs(
        self, extras: BatchExtras, epoch_order: EpochOrder | None = None
    ) -> Iterator[tuple[Samples, TensorState]]:
        """Yield the shuffled samples of each epoch, and the rows of the extras in that order."""
        samples, settings, generator = self.samples, self.settings, self.generator
        augment_generator = generator
        if settings.augment:  # a separate generator, so that the order does not depend on it
            augment_generator = torch.Generator().manual_seed(_draw_seed(generator))
        for _ in range(settings.epochs):
            if epoch_order is None:
                order = torch.randperm(len(samples), generator=generator)
            else:
                order = epoch_order(samples.labels, generator)
            inputs = samples.inputs[order]
            if settings.augment:
                inputs = augment_inputs(inputs, settings.augment, augment_generator)
            shuffled = Samples(to_channels_last(inputs), samples.labels[order], samples.scaling)
            yield shuffled, {name: rows[order] for name, rows in extras.per_sample.items()}

    def _iter_batches(
        self, extras: BatchExtras, epoch_order: EpochOrder | None
    ) -> Iterator[tuple[Samples, TensorState]]:
        """Yield the batches of all epochs; they are views of data shuffled once per epoch."""
        sizes = compute_batch_sizes(len(self.samples), self.settings.batch_size)
        for shuffled, per_sample in self.iter_epochs(extras, epoch_order):
            inputs, labels = shuffled.inputs.split(sizes), shuffled.labels.split(sizes)
            batch_rows = {name: rows.split(sizes) for name, rows in per_sample.items()}
            for index, pair in enumerate(zip(inputs, labels, strict=True)):
                batch = Samples(*pair, shuffled.scaling)
                yield batch, {name: rows[index] for name, rows in batch_rows.items()}


def drop_default_hook(hook: _Hook | None, default: Callable[..., Any]) -> _Hook | None:
    """Return a hook of a method; None if it is the default hook, which has no effect."""
    return None if isinstance(hook, MethodType) and hook.__func__ is default else hook


class _Stepper:
    """Optimizer steps of one model; plain SGD does not concatenate the gradients first."""

    def __init__(self, model: FlatModel, optimizer: LocalOptimizer, lr: float) -> None:
        self.model, self.optimizer, self.lr = model, optimizer, lr
        self.optimizer_state: dict[str, Tensor] = {}
        self._linears = InPlaceLinears()

    def patch_linears(self) -> AbstractContextManager[None]:
        """Return a context for all steps, in which plain SGD updates linear layers in place."""
        is_plain = self.optimizer.is_plain
        return self._linears.patch(self.model.module) if is_plain else nullcontext()

    def step(self, loss: Tensor, uses_vector: bool, penalty_grad: Tensor | None) -> None:
        """Take one optimizer step.

        Args:
            loss: the loss of the batch with its penalty, ().
            uses_vector: whether the loss may depend on the flat vector of parameters.
            penalty_grad: a gradient that is added to that of the loss, (P,).
        """
        if not self.optimizer.is_plain:
            grad = self.model.compute_gradient(loss)
            with torch.no_grad():
                if penalty_grad is not None:
                    grad = grad.add_(penalty_grad)
                take_step(self.optimizer, self.model.vector, grad, self.lr, self.optimizer_state)
            return
        leaves = self.model.parameters
        if uses_vector:
            leaves = [*leaves, self.model.vector]
        grads = self._linears.compute_gradients(loss, leaves)
        with torch.no_grad():
            for leaf, leaf_grad in zip(leaves, grads, strict=True):
                if leaf_grad is not None:
                    leaf.add_(leaf_grad, alpha=-self.lr)
            if penalty_grad is not None:
                self.model.vector.add_(penalty_grad, alpha=-self.lr)
            self._linears.step(self.lr)


def take_step(
    optimizer: LocalOptimizer,
    parameters: Tensor,
    gradient: Tensor,
    lr: float,
    state: dict[str, Tensor],
) -> None:
    """Take one step, and raise a RunError if the optimizer returns parameters.

    A user's optimizer that returns new parameters instead of changing them in place would
    otherwise train nothing.
    """
    result: object = optimizer.step(parameters, gradient, lr, state)  # type: ignore[func-returns-value]
    if result is not None:
        raise RunError(
            f"{optimizer.name}.step must change the parameters in place, e.g. by parameters.sub_, "
            f"and return None, not a {type(result).__name__}."
        )


def compute_effective_steps(optimizer: LocalOptimizer, steps: int, lr: float) -> float:
    """Return the number of plain SGD steps that move as far along a constant gradient.

    This is FedNova's norm of a_i, computed for any optimizer by taking the steps with one
    parameter.
    """
    if optimizer.is_plain:
        return float(steps)
    parameter, state = torch.zeros(1, dtype=torch.float64), dict[str, Tensor]()
    for _ in range(steps):
        take_step(optimizer, parameter, torch.ones(1, dtype=torch.float64), lr, state)
    return -float(parameter) / lr


def compute_batch_sizes(num_samples: int, batch_size: int) -> list[int]:
    """Return the sizes of the batches of an epoch.

    A last batch of one sample is merged with the batch before: batch norm cannot train on it.

    Example:
        >>> compute_batch_sizes(10, 4), compute_batch_sizes(9, 4)
        ([4, 4, 2], [4, 5])
    """
    full, rest = divmod(num_samples, batch_size)
    sizes = [batch_size] * full + [rest] * (rest > 0)
    if rest == 1 and full:
        sizes[-2:] = [batch_size + 1]
    return sizes


def train_client(
    received: Message,
    model: FlatModel,
    samples: Samples,
    client_state: TensorState,
    algorithm: Algorithm,
    settings: LocalSettings,
    seed: int,
    round_number: int,
    client_id: ClientId,
    participants: int,
) -> ClientOutput:
    """Do the work of one client in a round: local training and the transforms of its update.

    Args:
        received: the message of the server.
        model: the model to train in; its weights are overwritten.
        samples: the client's training data, on the model's device.
        client_state: the tensors that the client keeps between rounds.
        algorithm: the method and its parts.
        settings: the settings of local training.
        seed: the seed of the run.
        round_number: the round, from 1.
        client_id: the client.
        participants: the number of participants of the round.

    Returns:
        The message to the server and the client's new state.
    """
    generator = derive_generator(seed, "train", round_number, client_id)
    client = Client(
        model, samples, algorithm, settings, round_number, received, client_state, generator
    )
    output = algorithm.method.local(client)
    return apply_client_transforms(client, output, seed, client_id, participants)


def apply_client_transforms(
    client: Client, output: ClientOutput, seed: int, client_id: ClientId, participants: int
) -> ClientOutput:
    """Apply the transforms of clients to an output, with random draws from the seed and client."""
    tensors = {name: tensor.cpu() for name, tensor in output.tensors.items()}
    message = apply_transforms(
        client.algorithm.get_transforms("client"),
        replace(output.message, tensors=tensors),
        client.received,
        participants,
        lambda name: derive_generator(seed, "transform", name, client.round_number, client_id),
    )
    message = client.model.layout.restore_frozen(message, client.received)
    return ClientOutput(output.state, message.tensors, message.scalars, message.models)


def choose_device(device: Device) -> torch.device:
    """Return the torch device for the option ``device``; "auto" prefers CUDA, then MPS."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return torch.device(next((name for name, exists in available.items() if exists), "cpu"))
    if not available.get(device, True):
        raise CadisError(f"There is no '{device}' device on this machine; use the device 'cpu'.")
    return torch.device(device)


def _draw_seed(generator: torch.Generator) -> int:
    return int(torch.randint(2**62, (), generator=generator))


def _seed_device(seed: int, device: torch.device) -> None:
    """Seed the generator of dropout; seeding all devices would take longer than a small step."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
