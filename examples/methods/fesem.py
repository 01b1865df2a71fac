"""FeSEM (Xie et al., 2020, https://arxiv.org/abs/2005.01026): several global models.

Run it:  cadis run --method examples/methods/fesem.py:FeSEM --num-models 5
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from cadis import algorithm
from cadis.algorithm import Aggregation, BaseMethod, ServerRound, ServerState, average_updates
from cadis.types import ClientId, ClientUpdate, Message, ModelState, ids_from_tensor, ids_to_tensor


@dataclass(frozen=True)
class FeSEM(BaseMethod):
    """Assign each trained model to the nearest global model, and average the assigned models.

    All global models start with the same parameters, so in the first round m trained models that
    are far apart are the centers instead. Later, a client trains the global model that it was last
    assigned to. A new client trains the mean of all models: its data decide which one is nearest.

    Attributes:
        num_models: m, the number of global models.
    """

    name: ClassVar[str] = "fesem"
    num_models: Annotated[int, Ge(1)] = 2

    def init(self, model: ModelState, generator: torch.Generator) -> ServerState:  # noqa: ARG002
        """Return m global models with the same parameters."""
        return ServerState({f"model-{index}": model for index in range(self.num_models)})

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        """Send a client its global model; send a new client the mean of all global models."""
        if client in _read_assignment(state):
            return super().broadcast(server_round, state, client)
        equal = torch.full((self.num_models,), 1 / self.num_models, dtype=torch.float64)
        return Message({"model-0": algorithm.average_models([*state.models.values()], equal)})

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """Assign each trained model to the nearest center, and average the assigned models."""
        assignment = _read_assignment(state)
        trained = torch.stack([update.model.parameters for update in updates]).double()
        models = [model.parameters for model in state.models.values()]
        centers = torch.stack(models).double() if assignment else self._choose_centers(trained)
        nearest = torch.cdist(trained, centers).argmin(dim=1)
        pairs = list(zip(updates, nearest.tolist(), strict=True))
        assignment |= {update.client_id: index for update, index in pairs}
        renamed = [replace(u, message=Message({f"model-{i}": u.model})) for u, i in pairs]
        means, weights = average_updates(renamed, self.weigh(server_round, updates, state).weights)
        ids = ids_to_tensor([*assignment])
        tensors = {"clients": ids, "nearest": torch.tensor([*assignment.values()])}
        return Aggregation(means, tensors, weights, {"clusters": nearest})

    def model_name_for(self, client: ClientId, state: ServerState) -> str:
        """Return the name of the client's model; for a new client, of the first model."""
        return f"model-{_read_assignment(state).get(client, 0)}"

    def _choose_centers(self, trained: Tensor) -> Tensor:
        """Choose the first model, then m - 1 times the model farthest from all chosen, (m, P)."""
        centers = trained[:1]
        for _ in range(self.num_models - 1):
            farthest = torch.cdist(trained, centers).amin(dim=1).argmax()
            centers = torch.cat([centers, trained[farthest][None]])
        return centers


def _read_assignment(state: ServerState) -> dict[ClientId, int]:
    """Return the index of the global model that each client was last assigned to."""
    if not state.tensors:
        return {}
    clients = ids_from_tensor(state.tensors["clients"])
    return dict(zip(clients, state.tensors["nearest"].tolist(), strict=True))
