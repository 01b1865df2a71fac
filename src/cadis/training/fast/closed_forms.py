"""Gradients of penalties in closed form, for methods whose formula is known.

Differentiating a penalty on all parameters takes several times as long as its gradient itself. The
forms are looked up by the exact class of a method: a subclass with another penalty of its own never
gets the form of the class it derives from.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from torch import Tensor

from cadis.algorithm import BaseMethod, Penalty, Step
from cadis.algorithm.methods import CADIS, SCAFFOLD, CADISPaper, FedAT, FedDyn, FedProx
from cadis.algorithm.methods.cadis import distillation_gradient

Gradient: TypeAlias = Callable[[Step], Tensor | None]
"""The gradient of a penalty at a step; None if the penalty is 0 everywhere."""


def parameter_gradient(method: BaseMethod, penalty: Penalty | None) -> Gradient | None:
    """Return the gradient of a penalty by the parameters, (P,); None if no form is known.

    A form is known for a method's own penalty only.
    """
    form = _BY_PARAMETERS.get(type(method))
    return partial(form, method) if form and penalty == method.penalty else None


def representation_gradient(method: BaseMethod) -> Gradient | None:
    """Return the gradient of a penalty by stacked representations, (m, b, d); None as above."""
    known = type(method) in (CADIS, CADISPaper)
    if known and isinstance(method, CADIS) and method.distil == "geometry":
        return partial(_differentiate_geometry, method)
    return None


def takes_stacks(method: BaseMethod) -> bool:
    """Return whether a method's penalty takes several clients at once.

    Every tensor of the step then has a dimension of clients before its own, and the penalty returns
    a number for each client. The penalties of other methods are called by ``torch.func.vmap``,
    which takes longer.
    """
    return type(method) in _BY_PARAMETERS


def _differentiate_proximal(method: FedProx | FedAT, step: Step) -> Tensor:
    """Return mu (w - w_t)."""
    return (step.parameters - step.received).mul_(method.mu)


def _differentiate_dynamic(method: FedDyn, step: Step) -> Tensor:
    """Return alpha (w - w_t) - g_i."""
    gradient = (step.parameters - step.received).mul_(method.alpha)
    return gradient.sub_(step.memory["gradient"]) if "gradient" in step.memory else gradient


def _differentiate_control(method: SCAFFOLD, step: Step) -> Tensor:  # noqa: ARG001
    """Return the correction c - c_i."""
    control = step.tensors["control"]
    return control - step.memory["control"] if "control" in step.memory else control


def _differentiate_geometry(method: CADIS, step: Step) -> Tensor | None:
    """Return the gradient of the distillation term, each client's divided by its batch size."""
    if not method.needs_view:
        return None
    student, teacher = step.representation, step.per_example["teacher"]
    gradient = distillation_gradient(student, teacher, method.bandwidth, step.present)
    if step.present is None:
        return gradient.mul_(method.distillation / step.labels.shape[-1])
    return gradient * (method.distillation / step.present.sum(dim=-1))[..., None, None]


_BY_PARAMETERS: dict[type, Callable[[Any, Step], Tensor]] = {
    FedProx: _differentiate_proximal,
    FedAT: _differentiate_proximal,
    FedDyn: _differentiate_dynamic,
    SCAFFOLD: _differentiate_control,
}
