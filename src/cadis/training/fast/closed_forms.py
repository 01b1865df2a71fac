"""Closed-form gradients of the penalties of built-in methods.

Autograd takes several times as long as a closed form to compute the gradient of a penalty on all
parameters. A closed form applies only to one exact class of methods: a subclass may override the
penalty.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from torch import Tensor

from cadis.algorithm import BaseMethod, Penalty, Step
from cadis.algorithm.methods import CADIS, SCAFFOLD, CADISPaper, FedAT, FedDyn, FedProx
from cadis.algorithm.methods.cadis import distillation_gradient

PenaltyGradient: TypeAlias = Callable[[Step], Tensor | None]
"""A function from a step to the gradient of a penalty; None if the penalty is 0."""


def find_parameter_gradient(method: BaseMethod, penalty: Penalty | None) -> PenaltyGradient | None:
    """Return a function for the gradient of a penalty with respect to the parameters, (P,).

    Return None if there is no closed form, or if the penalty is not ``method.penalty``.
    """
    form = _PARAMETER_GRADIENTS.get(type(method))
    return partial(form, method) if form and penalty == method.penalty else None


def find_representation_gradient(method: BaseMethod) -> PenaltyGradient | None:
    """Return a function for the gradient of the penalty with respect to the representations.

    The function gets the step of m stacked clients and returns a gradient of shape (m, b, d).
    Return None if there is no closed form.
    """
    has_form = type(method) in (CADIS, CADISPaper)
    if has_form and isinstance(method, CADIS) and method.distil == "geometry":
        return partial(_differentiate_geometry, method)
    return None


def supports_stacks(method: BaseMethod) -> bool:
    """Return whether a method's penalty accepts the step of m stacked clients.

    In such a step, every tensor has a first dimension of size m, and the penalty returns (m,).
    Penalties of other methods are called through ``torch.func.vmap``, which is slower.
    """
    return type(method) in _PARAMETER_GRADIENTS


def _differentiate_proximal(method: FedProx | FedAT, step: Step) -> Tensor:
    """Return mu (w - w_t), with the received parameters w_t."""
    return (step.parameters - step.received).mul_(method.mu)


def _differentiate_dynamic(method: FedDyn, step: Step) -> Tensor:
    """Return alpha (w - w_t) - g_i, with the gradient g_i in the client's state."""
    grad = (step.parameters - step.received).mul_(method.alpha)
    if "gradient" in step.client_state:
        grad.sub_(step.client_state["gradient"])
    return grad


def _differentiate_control(method: SCAFFOLD, step: Step) -> Tensor:  # noqa: ARG001
    """Return c - c_i, the difference of the control variates of server and client."""
    control = step.tensors["control"]
    return control - step.client_state["control"] if "control" in step.client_state else control


def _differentiate_geometry(method: CADIS, step: Step) -> Tensor | None:
    """Return the gradient of the distillation term, divided by the batch size of each client."""
    if not method.needs_model_outputs:
        return None
    student, teacher = step.representation, step.per_sample["teacher"]
    grad = distillation_gradient(student, teacher, method.bandwidth, step.row_mask)
    if step.row_mask is None:
        return grad.mul_(method.distillation / step.labels.shape[-1])
    return grad * (method.distillation / step.row_mask.sum(dim=-1))[..., None, None]


_PARAMETER_GRADIENTS: dict[type, Callable[[Any, Step], Tensor]] = {
    FedProx: _differentiate_proximal,
    FedAT: _differentiate_proximal,
    FedDyn: _differentiate_dynamic,
    SCAFFOLD: _differentiate_control,
}
