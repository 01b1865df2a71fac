"""Does a model fit its data, and how good is it on examples that nobody trained on?"""

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
from cadis.data import Examples
from cadis.errors import CadisError
from cadis.models import FlatModel, channels_last, name_head

_LARGE_BATCH = 64
"""Examples that are evaluated at once: enough to be efficient, few enough for the cache."""

_MANY_NUMBERS = 2**14
"""Numbers that the inputs of such a batch hold at least: of small pictures there are more in it."""


def found_head(module: nn.Module, examples: Examples) -> tuple[str, int]:
    """The name of the classifier layer, "" if there is none, and how many outputs there are."""
    examples.check("The test set")
    with _applied_to(examples), torch.no_grad():
        return name_head(deepcopy(module).eval(), examples.take(slice(0, 2)).scaled)


def check_fit(model: FlatModel, examples: Examples, algorithm: Algorithm) -> None:
    """Refuse a model that cannot be applied to the inputs, or whose classifier is another layer.

    Where the algorithm looks at the classifier, it must see each sample once: representations of
    single words or patches are none of the sample, and cannot be compared between models.
    """
    few = examples.take(slice(0, 2))
    with _applied_to(examples):
        logits, representation = outputs_of(model, few)
    algorithm.check_head(model.layout.head is not None)
    if not algorithm.looks_at_head():
        return
    if not representation.numel():
        raise CadisError("The model does not use its classifier layer; name another one as head.")
    if representation.dim() != 2 or len(representation) != len(few):
        raise CadisError(
            f"The classifier layer is given {tuple(representation.shape)} for "
            f"{len(few)} samples, not one vector for each; pool the parts of a sample, such as "
            "words or patches, before the classifier."
        )
    if logits.shape[1:] != (model.layout.num_outputs,):
        raise CadisError(
            f"The classifier layer has {model.layout.num_outputs} outputs, but the model has "
            f"{tuple(logits.shape[1:])}; name the right layer as head."
        )


def view_of(model: FlatModel, examples: Examples, task: Task) -> ModelOutputs:
    """What the model makes of all examples, in evaluation mode."""
    logits, representation = outputs_of(model, examples)
    dtype = model.vector.dtype  # of half precision, only the arithmetic is
    logits, representation = logits.to(dtype), representation.to(dtype)
    correct = task.predict(logits) == examples.labels
    correct &= ~logits.isnan().any(dim=1)  # not the class that a prediction makes of them
    loss = mean_loss(task, logits, examples.labels)
    return ModelOutputs(logits, representation, examples.labels, correct, loss)


def mean_loss(task: Task, logits: Tensor, labels: Tensor) -> Tensor:
    """The mean loss of outputs, at least in single precision, ()."""
    precise = torch.promote_types(logits.dtype, torch.float32)
    return task.loss(logits.to(precise), labels, "mean")


def outputs_of(model: FlatModel, examples: Examples) -> tuple[Tensor, Tensor]:
    """Logits and representations of all examples, in evaluation mode and large batches."""
    model.module.eval()
    one = max(1, examples.inputs[:1].numel())
    size = max(_LARGE_BATCH, _MANY_NUMBERS // one)
    parts = range(0, len(examples), size)
    with torch.no_grad():
        batches = (examples.take(slice(start, start + size)) for start in parts)
        outputs = [model.forward(channels_last(batch.scaled)) for batch in batches]
    logits, representations = zip(*outputs, strict=True)
    return torch.cat(logits), torch.cat(representations)


@dataclass(frozen=True, repr=False)
class Evaluation:
    """A model's confusion matrix and summed loss; those of parts of a test set add up.

    Attributes:
        confusion: examples by true (row) and predicted class, (classes, classes), int64. Where a
            model's outputs are not numbers it has predicted nothing, which counts as the class
            after the true one: it is wrong.
        total_loss: the task's loss, summed.
        outputs: the model's outputs, (n, outputs), where the task's measures need them all.
        labels: the truth, (n,), likewise.
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
        """Through a pipe goes a copy: to share the memory of a few numbers takes far longer."""
        tensors = (self.confusion, self.outputs, self.labels)
        return _from_arrays, (self.total_loss, *(tensor.numpy() for tensor in tensors))

    def times(self, number: int) -> "Evaluation":
        """As if the same had been found so many times: a model counts for all who use it."""
        return Evaluation(self.confusion * number, self.total_loss * number)

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
        """Accuracy on each class, NaN for a class that was not tested, (classes,)."""
        return self.confusion.diagonal().double() / self.confusion.sum(dim=1)

    @property
    def balanced_accuracy(self) -> float:
        """Mean accuracy of the classes that were tested, each of which counts the same."""
        return float(self.class_accuracy.nanmean())

    @property
    def f1(self) -> float:
        """Mean F1 of the classes that were tested or predicted, each of which counts the same.

        F1 of a class is 2 hits / (2 hits + false alarms + misses).
        """
        hits = self.confusion.diagonal().double()
        both = (self.confusion.sum(dim=0) + self.confusion.sum(dim=1)).double()
        return float((2 * hits / both).nanmean())

    def measures(self, task: Task) -> Mapping[str, float]:
        """Further measures by name: the task's, and of the confusion matrix what it has not."""
        by_class = {"balanced_accuracy": self.balanced_accuracy, "f1": self.f1}
        own = self.asked_for(task)
        return {**own, **{name: value for name, value in by_class.items() if name not in own}}

    def asked_for(self, task: Task) -> Mapping[str, float]:
        """The task's own measures, if there are the outputs that they are made of."""
        found = task.measures(self.outputs, self.labels) if len(self.outputs) else {}
        return {name: float(value) for name, value in found.items()}


def _from_arrays(
    total_loss: float,
    confusion: NDArray[np.int64],
    outputs: NDArray[np.float32],
    labels: NDArray[np.int64],
) -> Evaluation:
    """An evaluation that has come through a pipe."""
    tensors = map(torch.from_numpy, (confusion, outputs, labels))
    return Evaluation(next(tensors), total_loss, *tensors)


def check_labels(labels: Tensor, num_classes: int, owner: str) -> None:
    """Refuse labels that a model has no output for."""
    highest = int(labels.max())
    if highest >= num_classes:
        raise CadisError(
            f"{owner} has label {highest}, but the model tells only {num_classes} classes apart, "
            "numbered from 0."
        )


def evaluate(model: FlatModel, examples: Examples, task: Task) -> Evaluation:
    """Test a model."""
    outputs, labels = outputs_of(model, examples)[0], examples.labels
    classes = task.num_classes(outputs.shape[1])
    check_labels(labels, classes, "The test data")
    predicted = torch.where(
        outputs.isnan().any(dim=1), (labels + 1) % classes, task.predict(outputs)
    )
    pairs = labels * classes + predicted
    confusion = torch.bincount(pairs, minlength=classes**2).view(classes, classes).cpu()
    outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))  # sums overflow in half
    total = float(task.loss(outputs, labels, "sum"))
    if not task.needs_outputs:
        return Evaluation(confusion, total)
    return Evaluation(confusion, total, outputs.cpu(), labels.cpu())


def accuracies(model: FlatModel, examples: Examples, sizes: list[int], task: Task) -> list[float]:
    """Top-1 accuracy of a model on each of several owners' examples, tested together.

    Those of the first owner come first; ``sizes`` says how many each of them has.
    """
    check_labels(examples.labels, task.num_classes(model.num_outputs), "The test data")
    correct = view_of(model, examples, task).correct
    return [int(own.sum()) / len(own) for own in correct.split(sizes)]


@contextmanager
def _applied_to(examples: Examples) -> Iterator[None]:
    """What a model raises becomes a sentence."""
    try:
        yield
    except CadisError:
        raise
    except Exception as error:  # whatever a model may raise
        raise CadisError(
            f"The model cannot be applied to inputs of {examples.kind}: {error}"
        ) from error
