"""Both halves as plain federated averaging has them; a method overrides what it changes."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from cadis.core import example_weights, mean_state
from cadis.methods.protocol import (
    Aggregation,
    ClientUpdate,
    LocalView,
    Prepared,
    ServerRound,
    Step,
    TensorState,
)


class Defaults:
    """Plain local SGD, and the mean of the models by number of samples. Nothing is remembered."""

    pools_clients: ClassVar[bool] = False
    compares_heads: ClassVar[bool] = False
    needs_metrics: ClassVar[tuple[str, ...]] = ()

    @property
    def needs_view(self) -> bool:
        """No."""
        return False

    def prepare(self, view: LocalView) -> Prepared:  # noqa: ARG002
        """Nothing to prepare."""
        return Prepared()

    def penalty(self, step: Step) -> Tensor | None:  # noqa: ARG002
        """No penalty."""
        return None

    def finish(
        self,
        trained: Tensor,  # noqa: ARG002
        received: Tensor,  # noqa: ARG002
        client_state: TensorState,
    ) -> TensorState:
        """Nothing to remember."""
        return client_state

    def aggregate(
        self,
        server_round: ServerRound,  # noqa: ARG002
        updates: Sequence[ClientUpdate],
        state: TensorState,
    ) -> Aggregation:
        """Average by number of samples: weights n_i / N over the participants."""
        weights = example_weights([update.num_examples for update in updates])
        mean = mean_state([update.state for update in updates], weights)
        return Aggregation(mean, state, weights)
