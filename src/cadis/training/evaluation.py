"""Evaluation of models on test data, and checks that a model and its data match."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cadis._io import short_repr
from cadis.algorithm import Algorithm, ModelOutputs
from cadis.algorithm.tasks import Task
from cadis.data import Samples
from cadis.errors import CadisError
from cadis.models import FlatModel, find_output_layer, to_channels_last

_BATCH_SIZE = 64
"""The minimum number of samples per batch: large enough to be fast, small enough for the cache."""

_BATCH_ELEMENTS = 2**14
"""The intended number of input elements per batch; so small inputs have larger batches."""


def find_head_and_outputs(module: nn.Module, samples: Samples) -> tuple[str, int]:
    """Call the model on two samples to find its classifier layer and its number of outputs.

    Returns:
        The name of the layer, "" if there is none, and the number of outputs.
    """
    samples.check("The test set")
    with _convert_model_errors(samples), torch.no_grad():
        return find_output_layer(deepcopy(module).eval(), samples.take(slice(0, 2)).scaled_inputs)


def check_model(model: FlatModel, samples: Samples, algorithm: Algorithm) -> None:
    """Raise a CadisError if the model and the samples do not match.

    The model must accept the inputs. If the algorithm uses the classifier layer, the outputs of
    this layer must be the outputs of the model. The input of this layer must be one vector per
    sample, not one per word or image patch: the algorithm uses it as the sample's representation.
    """
    two_samples = samples.take(slice(0, 2))
    with _convert_model_errors(samples):
        logits, representation = forward_in_batches(model, two_samples)
    algorithm.check_head(model.layout.head is not None)
    if not algorithm.find_part_needing_head():
        return
    if not representation.numel():
        raise CadisError(
            "The model does not use its classifier layer; set head to the name of another layer."
        )
    if representation.dim() != 2 or len(representation) != len(two_samples):
        raise CadisError(
            f"The input of the classifier layer has shape {tuple(representation.shape)} for "
            f"{len(two_samples)} samples, not one vector per sample; pool the parts of a sample, "
            "such as words or patches, before the classifier layer."
        )
    if logits.shape[1:] != (model.layout.num_outputs,):
        raise CadisError(
            f"The classifier layer has {model.layout.num_outputs} outputs, but the model has "
            f"{tuple(logits.shape[1:])}; set head to the name of the right layer."
        )


def compute_model_outputs(model: FlatModel, samples: Samples, task: Task) -> ModelOutputs:
    """Compute the logits, representations, correct predictions and loss, in eval mode."""
    logits, representation = forward_in_batches(model, samples)
    dtype = model.vector.dtype  # autocast returns half precision
    logits, representation = logits.to(dtype), representation.to(dtype)
    correct = task.predict(logits) == samples.labels
    correct &= ~logits.isnan().any(dim=1)  # argmax returns a class even for NaN
    loss = compute_mean_loss(task, logits, samples.labels)
    return ModelOutputs(logits, representation, samples.labels, correct, loss)


def compute_mean_loss(task: Task, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss, computed at least in single precision."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return task.loss(logits.to(dtype), labels, "mean")


def forward_in_batches(model: FlatModel, samples: Samples) -> tuple[Tensor, Tensor]:
    """Return logits, (n, outputs), and representations, (n, d), computed in eval mode."""
    model.module.eval()
    input_size = max(1, samples.inputs[:1].numel())
    size = max(_BATCH_SIZE, _BATCH_ELEMENTS // input_size)
    starts = range(0, len(samples), size)
    with torch.no_grad():
        batches = (samples.take(slice(start, start + size)) for start in starts)
        outputs = [model.forward(to_channels_last(batch.scaled_inputs)) for batch in batches]
    logits, representations = zip(*outputs, strict=True)
    return torch.cat(logits), torch.cat(representations)


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The confusion matrix and summed loss of a model; evaluations of disjoint data can be added.

    Attributes:
        confusion: number of samples for each true class (row) and predicted class (column),
            (classes, classes), int64. A sample with NaN among its outputs counts as wrong: its
            predicted class is the class after the true class, or class 0 after the last class.
        total_loss: the sum of the task's loss over all samples.
        outputs: the model's outputs, (n, outputs), if the task's metrics need them; else empty.
        labels: the true labels, (n,), if ``outputs`` is not empty; else empty.

    Example:
        >>> evaluation = Evaluation(torch.tensor([[3, 1], [0, 2]]), total_loss=1.5)
        >>> evaluation.loss
        0.25
        >>> evaluation.class_accuracy
        tensor([0.7500, 1.0000], dtype=torch.float64)
    """

    confusion: Tensor
    total_loss: float
    outputs: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    labels: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    __repr__ = short_repr

    def __add__(self, other: "Evaluation") -> "Evaluation":
        return Evaluation(
            self.confusion + other.confusion,
            self.total_loss + other.total_loss,
            torch.cat([self.outputs, other.outputs]) if len(self.outputs) else other.outputs,
            torch.cat([self.labels, other.labels]),
        )

    def __reduce__(self) -> tuple[Callable[..., "Evaluation"], tuple[Any, ...]]:
        """Pickle copies of the tensors: sharing the memory of small tensors is much slower."""
        tensors = (self.confusion, self.outputs, self.labels)
        return _unpickle, (self.total_loss, *(tensor.numpy() for tensor in tensors))

    def repeat(self, count: int) -> "Evaluation":
        """Return the sum of ``count`` copies, for a model that ``count`` clients use.

        It has no outputs and labels, so that the task's metrics cannot be computed.
        """
        return Evaluation(self.confusion * count, self.total_loss * count)

    @property
    def accuracy(self) -> float:
        """Top-1 accuracy."""
        return int(self.confusion.trace()) / int(self.confusion.sum())

    @property
    def loss(self) -> float:
        """Mean loss."""
        return self.total_loss / int(self.confusion.sum())

    @property
    def class_accuracy(self) -> Tensor:
        """Accuracy per class, NaN for classes without samples, (classes,)."""
        return self.confusion.diagonal().double() / self.confusion.sum(dim=1)

    @property
    def balanced_accuracy(self) -> float:
        """Mean of the class accuracies, over the classes with samples."""
        return float(self.class_accuracy.nanmean())

    @property
    def f1(self) -> float:
        """Macro F1: the mean of the F1 scores of all classes that occur or are predicted.

        F1 of a class is 2 TP / (2 TP + FP + FN).
        """
        true_positives = self.confusion.diagonal().double()
        total = (self.confusion.sum(dim=0) + self.confusion.sum(dim=1)).double()
        return float((2 * true_positives / total).nanmean())

    def compute_metrics(self, task: Task) -> Mapping[str, float]:
        """Return the task's metrics by name; add balanced accuracy and F1 if they are missing."""
        defaults = {"balanced_accuracy": self.balanced_accuracy, "f1": self.f1}
        metrics = self.compute_task_metrics(task)
        missing = {name: value for name, value in defaults.items() if name not in metrics}
        return {**metrics, **missing}

    def compute_task_metrics(self, task: Task) -> Mapping[str, float]:
        """Return the task's metrics by name; empty if the outputs are not available."""
        metrics = task.compute_metrics(self.outputs, self.labels) if len(self.outputs) else {}
        return {name: float(value) for name, value in metrics.items()}


def _unpickle(
    total_loss: float,
    confusion: NDArray[np.int64],
    outputs: NDArray[np.float32],
    labels: NDArray[np.int64],
) -> Evaluation:
    """Rebuild a pickled evaluation."""
    tensors = map(torch.from_numpy, (confusion, outputs, labels))
    return Evaluation(next(tensors), total_loss, *tensors)


def check_labels(labels: Tensor, num_classes: int, owner: str) -> None:
    """Raise a CadisError if a label is not a class of the model.

    Args:
        labels: the labels, (n,).
        num_classes: the number of classes of the model.
        owner: the beginning of the error message, such as "This client".
    """
    highest = int(labels.max())
    if highest >= num_classes:
        raise CadisError(
            f"{owner} has label {highest}, but the model has only {num_classes} classes, numbered "
            "from 0."
        )


def evaluate(model: FlatModel, samples: Samples, task: Task) -> Evaluation:
    """Evaluate a model on samples.

    Args:
        model: the model.
        samples: the test data, on the model's device.
        task: defines the prediction, the loss and further metrics.
    """
    outputs, labels = forward_in_batches(model, samples)[0], samples.labels
    classes = task.num_classes(outputs.shape[1])
    check_labels(labels, classes, "The test data")
    predictions = torch.where(
        outputs.isnan().any(dim=1), (labels + 1) % classes, task.predict(outputs)
    )
    cells = labels * classes + predictions
    confusion = torch.bincount(cells, minlength=classes**2).view(classes, classes).cpu()
    # The sum of the losses overflows in half precision.
    outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    total_loss = float(task.loss(outputs, labels, "sum"))
    if not task.needs_outputs:
        return Evaluation(confusion, total_loss)
    return Evaluation(confusion, total_loss, outputs.cpu(), labels.cpu())


def compute_accuracies(
    model: FlatModel, samples: Samples, sizes: list[int], task: Task
) -> list[float]:
    """Return the top-1 accuracy of a model on each client's samples.

    Args:
        model: the model.
        samples: the samples of all clients, one client after the other.
        sizes: the number of samples of each client.
        task: defines the prediction.
    """
    check_labels(samples.labels, task.num_classes(model.num_outputs), "The test data")
    correct = compute_model_outputs(model, samples, task).correct
    return [int(part.sum()) / len(part) for part in correct.split(sizes)]


@contextmanager
def _convert_model_errors(samples: Samples) -> Iterator[None]:
    """Convert exceptions of the model to a CadisError."""
    try:
        yield
    except CadisError:
        raise
    except Exception as error:  # a user's model may raise anything
        reason = " ".join(str(error).split()).removesuffix(".")
        raise CadisError(
            f"The model cannot be applied to inputs of {samples.input_format}: {reason}."
        ) from error
