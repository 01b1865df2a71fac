"""Power of choice (Cho, Wang, Joshi; 2020): those take part whom the model serves worst."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Gt
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.samplers.base import BaseSampler, SampledRound, SamplerRound, client_rows, draw
from cadis.types import ClientId, TensorState, ids_to_tensor


@dataclass(frozen=True)
class PowerOfChoice(BaseSampler):
    """Of some candidates, drawn by their sizes, those whose last training loss was highest.

    Whoever never took part counts as if its loss were infinite, so that everybody's turn comes.

    Departure: this is the variant that the paper calls rpow-d: the mean loss of a client's last
    local training stands for the loss of the current model, which everybody would have to be asked
    for. The sizes that candidates are drawn by are known of those who took part; others count as
    the mean of these.

    Attributes:
        candidates: d, how many clients are looked at in a round; "auto" are twice as many as take
            part. No less than take part, and no more than there are.
    """

    name: ClassVar[str] = "power-of-choice"
    about: ClassVar[About] = About(
        kind="who takes part",
        paper="Cho, Wang, Joshi, 2020",
        server_memory="a loss and a size a client",
    )
    candidates: Annotated[int, Gt(0)] | Literal["auto"] = "auto"

    def choose(self, server_round: SamplerRound, memory: TensorState) -> Sequence[ClientId]:
        """The candidates with the highest last loss, in the order of the clients."""
        clients, wanted = server_round.available, server_round.wanted
        known = client_rows(memory, "losses", "sizes")
        asked = 2 * wanted if self.candidates == "auto" else self.candidates
        number = min(max(asked, wanted), len(clients))
        looked_at = draw(_sizes(clients, known).log(), number, server_round.generator).tolist()
        highest = sorted(looked_at, key=lambda place: -known.get(clients[place], (inf, 0))[0])
        return server_round.clients_at(torch.tensor(highest[:wanted]))

    def learn(self, sampled: SampledRound, memory: TensorState) -> TensorState:
        """Remember the loss and the size of everybody who took part and told its loss."""
        told = {
            update.client_id: (update.scalars["train_loss"], update.num_examples)
            for update in sampled.updates
            if "train_loss" in update.scalars
        }
        known = client_rows(memory, "losses", "sizes") | told
        losses, sizes = zip(*known.values(), strict=True) if known else ((), ())
        return {
            "clients": ids_to_tensor(list(known)),
            "losses": torch.tensor(losses, dtype=torch.float64),
            "sizes": torch.tensor(sizes, dtype=torch.int64),
        }


def _sizes(clients: Sequence[ClientId], known: dict[ClientId, tuple[Any, ...]]) -> Tensor:
    """Of each client, how many samples it has; the mean of those known, if it is not, (n,)."""
    sizes = [size for _, size in known.values()]
    mean = sum(sizes) / len(sizes) if sizes else 1.0
    own = [known[client][1] if client in known else mean for client in clients]
    return torch.tensor(own, dtype=torch.float64).clamp(min=1)
