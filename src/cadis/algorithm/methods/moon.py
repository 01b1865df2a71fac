"""MOON (Li, He and Song, 2021): model-contrastive federated learning."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt
from torch import Tensor
from torch.nn import functional as F

from cadis.algorithm.about import About
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import BatchExtras, ClientOutput, LocalClient, LocalResult, Step
from cadis.types import Message, ModelState, TensorState


@dataclass(frozen=True)
class MOON(BaseMethod):
    """Draws representations to those of the global model, away from the client's last ones.

    With the representations z of the local model, z_glob of the received one and z_prev of the one
    that the client sent last, the loss gains mu times the mean of
    -log(exp(s_glob) / (exp(s_glob) + exp(s_prev))), s being cosines divided by tau (Eq. 3 of the
    paper). In a client's first round there is nothing to be drawn away from, and no such term.

    Departure: the paper puts a projection head of two layers before the classifier; here the
    inputs of the classifier are compared, so that any model can be trained.

    Attributes:
        mu: strength of the contrastive term; 0 is FedAvg.
        temperature: tau, what cosines are divided by.
    """

    name: ClassVar[str] = "moon"
    needs_representation: ClassVar[bool] = True
    about: ClassVar[About] = About(
        kind="local loss under label skew",
        paper="Li, He and Song, 2021",
        client_memory="the model that it sent last",
    )
    mu: Annotated[float, Ge(0)] = 1.0
    temperature: Annotated[float, Gt(0)] = 0.5

    def local(self, client: LocalClient) -> ClientOutput:
        """Look at the data with both models, then train."""
        model, prepared = client.received.model, BatchExtras()
        if self.mu and client.memory:
            previous = ModelState(**client.memory)
            views = {"previous": client.view(previous), "received": client.view(model)}
            prepared = BatchExtras({name: view.representation for name, view in views.items()})
        return self.collect_output(client, prepared, client.train(model, self.penalty, prepared))

    def penalty(self, step: Step) -> Tensor | None:
        """The contrastive term, mu * log(1 + exp(s_prev - s_glob)), averaged over the batch."""
        if "previous" not in step.per_example:
            return None
        towards, away = (
            F.cosine_similarity(step.representation, step.per_example[name], dim=-1)
            for name in ("received", "previous")
        )
        return self.mu * F.softplus((away - towards) / self.temperature).mean()

    def finish(self, training: LocalResult, received: Message, memory: TensorState) -> ClientOutput:
        """Remember the trained model."""
        return ClientOutput(training.model.vectors() if self.mu else memory)
