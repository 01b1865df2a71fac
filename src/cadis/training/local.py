"""The local training of one client: the training loop, and the message that the client sends."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Annotated

import torch
from annotated_types import Gt
from torch import Tensor

from cadis.algorithm import (
    Algorithm,
    BatchExtras,
    Calibration,
    ClientOutput,
    EpochOrder,
    LocalResult,
    ModelOutputs,
    Penalty,
    Step,
)
from cadis.algorithm.transforms import apply_transforms
from cadis.data import Samples
from cadis.errors import CadisError
from cadis.models import FlatModel, get_auto_lr, to_channels_last
from cadis.options import Device, Precision
from cadis.rng import derive_generator
from cadis.training.augmentation import augment_inputs
from cadis.training.batch_training import BatchTrainer, compute_effective_steps
from cadis.training.evaluation import compute_model_outputs
from cadis.types import ClientId, Message, ModelState, TensorState


@dataclass(frozen=True)
class LocalSettings:
    """Settings of local training.

    Attributes:
        epochs: E, the number of passes over the client's data.
        batch_size: b, the number of samples per batch.
        lr: eta, the learning rate.
        augment: names of the augmentations that are applied to images before each epoch.
        precision: the precision of the forward and backward pass; parameters keep their dtype.

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
        model: a model whose parameters may be overwritten.
        samples: the client's training data, on the model's device.
        algorithm: the method, local optimizer, task and other parts.
        settings: the settings of local training.
        round_number: the number of the round, from 1.
        received: the message from the server.
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
        flat, optimizer = self.model, self.algorithm.local_optimizer
        flat.load(model)
        start = flat.vector.detach().clone()
        lr = optimizer.compute_lr(self.settings.lr, self.round_number)
        trainer = BatchTrainer(flat, self.algorithm, lr, penalty, calibrate)
        loss_sum, steps, counts = torch.zeros((), device=start.device), 0, self.count_classes()
        flat.module.train()
        devices = [start.device] if start.is_cuda else []
        with torch.random.fork_rng(devices=devices), trainer.patch_linears():
            _seed_device(_draw_seed(self.generator), start.device)
            for batch, per_sample in self._iter_batches(extras or BatchExtras(), epoch_order):
                step = self._forward(batch, per_sample, start, counts)
                loss_sum += trainer.train(step)
                steps += 1
        state = flat.copy_state()
        vector = state.parameters if start.device.type == "cpu" else flat.vector.detach().clone()
        effective_steps = compute_effective_steps(optimizer, steps, lr)
        loss_mean = float(loss_sum) / steps
        return LocalResult(state, vector, start, steps, lr, loss_mean, effective_steps)

    def _forward(
        self, batch: Samples, per_sample: TensorState, start: Tensor, class_counts: Tensor
    ) -> Step:
        """Do the forward pass of a batch, and return the arguments of the method's functions."""
        with self._autocast():
            logits, representation = self.model.forward(batch.scaled_inputs)
        return Step(
            logits=logits.to(start.dtype),
            representation=representation,
            labels=batch.labels,
            parameters=self.model.vector,
            received=start,
            tensors=self.received.tensors,
            per_sample=per_sample,
            client_state=self.state,
            class_counts=class_counts,
        )

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
        if settings.augment:
            # a separate generator: its number of draws must not affect the order of the samples
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


def compute_batch_sizes(num_samples: int, batch_size: int) -> list[int]:
    """Return the sizes of the batches of an epoch.

    Batch norm cannot train on a single sample, so a last batch of one sample is added to the batch
    before it.

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
    num_participants: int,
) -> ClientOutput:
    """Train one client in a round, and apply the client's transforms to its update.

    Args:
        received: the message from the server.
        model: a model whose parameters may be overwritten.
        samples: the client's training data, on the model's device.
        client_state: the tensors that the client keeps between rounds.
        algorithm: the method, local optimizer, task and other parts.
        settings: the settings of local training.
        seed: the seed of the run.
        round_number: the number of the round, from 1.
        client_id: the id of the client.
        num_participants: the number of participants of the round.

    Returns:
        The message to the server and the client's new state.
    """
    generator = derive_generator(seed, "train", round_number, client_id)
    client = Client(
        model, samples, algorithm, settings, round_number, received, client_state, generator
    )
    output = algorithm.method.local(client)
    return apply_client_transforms(client, output, seed, client_id, num_participants)


def apply_client_transforms(
    client: Client, output: ClientOutput, seed: int, client_id: ClientId, num_participants: int
) -> ClientOutput:
    """Apply the transforms that run on clients to the message of a client.

    Args:
        client: the client after local training.
        output: the output of the method.
        seed: the seed of the run, for random transforms.
        client_id: the id of the client.
        num_participants: the number of participants of the round.
    """
    tensors = {name: tensor.cpu() for name, tensor in output.tensors.items()}
    message = apply_transforms(
        client.algorithm.get_transforms("client"),
        replace(output.message, tensors=tensors),
        client.received,
        num_participants,
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
    """Seed the generator that dropout uses.

    ``torch.manual_seed`` seeds all devices, which takes longer than a step of a small model.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
