"""MOON: model-contrastive federated learning.

Problem: with heterogeneous data, local training makes the representations of the model worse.

Li et al., CVPR 2021, https://arxiv.org/abs/2103.16257
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt
from torch import Tensor
from torch.nn import functional as F

from cadis.algorithm.about import About, Paper
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import BatchExtras, ClientOutput, LocalClient, LocalResult, Step
from cadis.types import Message, ModelState, TensorState


@dataclass(frozen=True)
class MOON(BaseMethod):
    """FedAvg with a contrastive loss between local, global and previous representations.

    Use it if clients can keep a model between rounds, and features differ between clients.

    Clients add ``mu * mean(-log(exp(s_glob) / (exp(s_glob) + exp(s_prev))))`` to the loss (Eq. 3 of
    the paper), with ``s_glob = cos(z, z_glob) / tau`` and ``s_prev = cos(z, z_prev) / tau``. Here
    z, z_glob and z_prev are the representations of a sample in the local model, in the received
    model and in the model that the client sent last. In its first round a client has no previous
    model, and the term is left out.

    Departure from the paper: there, a projection head of two layers is added before the classifier
    layer. Here the representations are the inputs of the classifier layer, so that the model does
    not change.

    Attributes:
        mu: factor of the contrastive term in the local loss, which moves representations towards
            those of the received model and away from those of the client's last model; 0 gives
            FedAvg.
        temperature: tau, the divisor of the cosine similarities in the contrastive term.
    """

    name: ClassVar[str] = "moon"
    needs_representation: ClassVar[bool] = True
    about: ClassVar[About] = About(
        topic="local loss under label skew",
        paper=Paper(
            title="Model-Contrastive Federated Learning",
            authors="Qinbin Li, Bingsheng He, Dawn Song",
            venue="CVPR",
            year=2021,
            link="https://arxiv.org/abs/2103.16257",
        ),
        client_state="the model that it sent last",
    )
    mu: Annotated[float, Ge(0)] = 1.0
    temperature: Annotated[float, Gt(0)] = 0.5

    def local(self, client: LocalClient) -> ClientOutput:
        """Compute the representations of the received and the previous model, then train."""
        model, extras = client.received.model, BatchExtras()
        if self.mu and client.state:
            previous = ModelState(**client.state)
            outputs = {
                "previous": client.compute_outputs(previous),
                "received": client.compute_outputs(model),
            }
            extras = BatchExtras({name: out.representation for name, out in outputs.items()})
        return self.collect_output(client, extras, client.train(model, self.penalty, extras))

    def penalty(self, step: Step) -> Tensor | None:
        """Return the contrastive term (Eq. 3), written as mu * log(1 + exp(s_prev - s_glob))."""
        if "previous" not in step.per_sample:
            return None
        to_received, to_previous = (
            F.cosine_similarity(step.representation, step.per_sample[name], dim=-1)
            for name in ("received", "previous")
        )
        return self.mu * F.softplus((to_previous - to_received) / self.temperature).mean()

    def finish(
        self, result: LocalResult, received: Message, client_state: TensorState
    ) -> ClientOutput:
        """Keep the trained model for the next round of this client."""
        return ClientOutput(result.model.vectors() if self.mu else client_state)
