"""MOON: model-contrastive federated learning.

Problem: with heterogeneous data, local training worsens the representation of the global model.

Qinbin Li, Bingsheng He, Dawn Song: Model-Contrastive Federated Learning. CVPR 2021.
https://arxiv.org/abs/2103.16257
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

    Clients add ``mu * mean(-log(exp(s_glob) / (exp(s_glob) + exp(s_prev))))`` to the loss (Eq. 3 of
    the paper), with ``s_glob = cos(z, z_glob) / tau``, ``s_prev = cos(z, z_prev) / tau``. Here z,
    z_glob and z_prev are the representations by the local model, the received model and the model
    that the client sent last. The first round of a client has no previous model and no such term.

    Use it if clients can keep a model between rounds, and features differ between clients.

    Departure: the paper adds a projection head of two layers before the classifier layer; here the
    inputs of the classifier layer are compared, so that any model can be trained.

    Attributes:
        mu: strength of the contrastive term; 0 is FedAvg.
        temperature: tau, divisor of the cosines.
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
