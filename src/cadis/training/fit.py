"""Does a model fit its data?"""

from collections.abc import Iterator
from contextlib import contextmanager

from cadis.core import CadisError
from cadis.data import Examples
from cadis.models import FlatModel
from cadis.training.local import view_of


def check_fit(model: FlatModel, examples: Examples) -> None:
    """Refuse a model that cannot be applied to the inputs, or whose classifier is another layer.

    The classifier must see each sample once: representations of single words or patches are none
    of the sample, and cannot be compared between models.
    """
    few = examples.take(slice(0, 2))
    with applied_to(examples):
        view = view_of(model, few)
    if not view.representation.numel():
        raise CadisError("The model does not use its classifier layer; name another one as head.")
    if view.representation.dim() != 2 or len(view.representation) != len(few):
        raise CadisError(
            f"The classifier layer is given {tuple(view.representation.shape)} for "
            f"{len(few)} samples, not one vector for each; pool the parts of a sample, such as "
            "words or patches, before the classifier."
        )
    if view.logits.shape[1:] != (model.num_classes,):
        raise CadisError(
            f"The classifier layer has {model.num_classes} outputs, but the model has "
            f"{tuple(view.logits.shape[1:])}; name the right layer as head."
        )


@contextmanager
def applied_to(examples: Examples) -> Iterator[None]:
    """What a model raises becomes a sentence."""
    try:
        yield
    except CadisError:
        raise
    except Exception as error:  # whatever a model may raise
        raise CadisError(
            f"The model cannot be applied to inputs of {examples.kind}: {error}"
        ) from error
