"""FeSEM (Xie et al., 2020): several global models; a client belongs to the nearest one.

Try it:  cadis run --method examples/methods/fesem.py:FeSEM --num-models 5
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from cadis import algorithm
from cadis.algorithm import Aggregation, BaseMethod, ServerRound, ServerState, weighted_models
from cadis.types import ClientId, ClientUpdate, Message, ModelState, ids_from_tensor, ids_to_tensor


@dataclass(frozen=True)
class FeSEM(BaseMethod):
    """A trained model joins the global model that it is nearest to, by the distance of parameters.

    All begin with the same model. In the first round the trained models that are farthest apart
    tell the global ones from each other. Later a client trains the model that it belongs to, and a
    new one what lies in the middle of them all: which one it then is nearest to is up to its data.

    Attributes:
        num_models: m, how many global models there are.
    """

    name: ClassVar[str] = "fesem"
    num_models: Annotated[int, Ge(1)] = 2

    def init(self, model: ModelState, generator: torch.Generator) -> ServerState:  # noqa: ARG002
        """The same model m times."""
        return ServerState({f"model-{number}": model for number in range(self.num_models)})

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        """The model that a client belongs to; the middle of all, if it is new."""
        if client in _nearest(state):
            return super().broadcast(server_round, state, client)
        equal = torch.full((self.num_models,), 1 / self.num_models, dtype=torch.float64)
        return Message({"model-0": algorithm.mean_state([*state.models.values()], equal)})

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """The mean of the trained models that are nearest to each global one."""
        known, models = _nearest(state), [model.parameters for model in state.models.values()]
        trained = torch.stack([update.model.parameters for update in updates]).double()
        centres = torch.stack(models).double() if known else self._far_apart(trained)
        nearest = torch.cdist(trained, centres).argmin(dim=1)
        named = []
        for update, number in zip(updates, nearest.tolist(), strict=True):
            known[update.client_id] = number
            named.append(replace(update, message=Message({f"model-{number}": update.model})))
        means, weights = weighted_models(named, self.weigh(server_round, updates, state).weights)
        ids = ids_to_tensor([*known])
        memory = {"clients": ids, "nearest": torch.tensor([*known.values()])}
        return Aggregation(means, memory, weights, {"clusters": nearest})

    def model_name_for(self, client: ClientId, state: ServerState) -> str:
        """The model that a client belongs to; the first, if it is new."""
        return f"model-{_nearest(state).get(client, 0)}"

    def _far_apart(self, trained: Tensor) -> Tensor:
        """The first model, and each time the one that is farthest from those before, (m, P)."""
        chosen = trained[:1]
        for _ in range(self.num_models - 1):
            farthest = torch.cdist(trained, chosen).amin(dim=1).argmax()
            chosen = torch.cat([chosen, trained[farthest][None]])
        return chosen


def _nearest(state: ServerState) -> dict[ClientId, int]:
    """By client, the number of the model that it belongs to."""
    if not state.memory:
        return {}
    clients = ids_from_tensor(state.memory["clients"])
    return dict(zip(clients, state.memory["nearest"].tolist(), strict=True))
