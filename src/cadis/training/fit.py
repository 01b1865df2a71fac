"""Does a model fit its data, and which layer of it is the classifier?"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import nn

from cadis.core import CadisError
from cadis.data import Examples
from cadis.models import FlatModel, name_head
from cadis.training.local import outputs_of


def found_head(module: nn.Module, examples: Examples) -> str:
    """The name of the classifier layer."""
    examples.check("The test set")
    with _applied_to(examples), torch.no_grad():
        return name_head(deepcopy(module).eval(), examples.take(slice(0, 2)).scaled)


def check_fit(model: FlatModel, examples: Examples) -> None:
    """Refuse a model that cannot be applied to the inputs, or whose classifier is another layer.

    The classifier must see each sample once: representations of single words or patches are none
    of the sample, and cannot be compared between models.
    """
    few = examples.take(slice(0, 2))
    with _applied_to(examples):
        logits, representation = outputs_of(model, few)
    if not representation.numel():
        raise CadisError("The model does not use its classifier layer; name another one as head.")
    if representation.dim() != 2 or len(representation) != len(few):
        raise CadisError(
            f"The classifier layer is given {tuple(representation.shape)} for "
            f"{len(few)} samples, not one vector for each; pool the parts of a sample, such as "
            "words or patches, before the classifier."
        )
    if logits.shape[1:] != (model.num_outputs,):
        raise CadisError(
            f"The classifier layer has {model.num_outputs} outputs, but the model has "
            f"{tuple(logits.shape[1:])}; name the right layer as head."
        )


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
