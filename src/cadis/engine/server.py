"""The server's side of a round: whom to ask for what, and what to make of the answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from cadis.core import ModelState, RunError
from cadis.engine.federation import Federation
from cadis.engine.worker import TestTask, Trained, TrainTask
from cadis.methods import Aggregation, ClientUpdate, Method
from cadis.runs import Rejection, RunState, StoredFile
from cadis.training import ServerHalf, diverged

_TEST_PART = 256
"""Examples of the test set that are tested as one task, at the most."""


@dataclass(frozen=True)
class Outcome:
    """What came of a round's updates.

    Attributes:
        aggregation: the new global model, and why.
        updates: what it was made of.
        rejected: who was left out, and why.
        client_files: by client number, where the clients' memories are now.
    """

    aggregation: Aggregation
    updates: list[ClientUpdate]
    rejected: list[Rejection]
    client_files: dict[int, StoredFile]


@dataclass(frozen=True)
class Server:
    """What the server knows all the time.

    Attributes:
        method: how the federation learns.
        federation: who takes part.
        head: where the classifier layer lies among the model's parameters.
        seed: of everything random.
        client_folder: where the clients' memories are kept.
    """

    method: Method
    federation: Federation
    head: tuple[slice, ...]
    seed: int
    client_folder: Path

    def train_tasks(self, number: int, present: list[int], state: RunState) -> list[TrainTask]:
        """A task for each participant, in their order."""
        files = state.client_files
        return [
            TrainTask(
                round=number,
                client=client,
                slot=slot,
                memory=files.get(client),
                memory_after=self.client_folder / _file_name(number, client),
            )
            for slot, client in enumerate(present)
        ]

    def test_tasks(self) -> list[TestTask]:
        """Equal parts of the test set, whatever the number of workers."""
        size = len(self.federation.test)
        parts = torch.arange(size).tensor_split(-(-size // _TEST_PART))
        return [TestTask(int(part[0]), int(part[-1]) + 1) for part in parts]

    def aggregate(
        self,
        number: int,
        state: RunState,
        present: Sequence[int],
        trained: Sequence[Trained],
        models: Sequence[ModelState],
    ) -> Outcome:
        """The new global model from the finite updates; the rest is left out by name."""
        sizes = self.federation.sizes()
        updates, rejected, files = [], [], dict(state.client_files)
        for client, answer, model in zip(present, trained, models, strict=True):
            client_id = self.federation.client_ids[client]
            if not answer.finite:
                rejected.append(Rejection(client_id, "its model is infinite or not a number"))
                continue
            updates.append(ClientUpdate(client_id, sizes[client], model, answer.metrics))
            if answer.memory is not None:
                files[client] = answer.memory
        if not updates:
            raise RunError(diverged(number, "every client's model"))
        half = ServerHalf(
            self.method,
            self.head,
            len(self.federation.clients),
            self.seed,
            self.federation.true_clusters(),
        )
        aggregation = half.aggregate(number, state.model, updates, state.method_state)
        return Outcome(aggregation, updates, rejected, files)


def _file_name(number: int, client: int) -> str:
    return f"client-{client}-round-{number}.safetensors"
