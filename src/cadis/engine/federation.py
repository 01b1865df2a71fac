"""A federation: clients with their data, what the global model is tested on, and how it is run."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from cadis._io import short_repr
from cadis.data import Examples, Preprocessing, Subsets, broken_sentence, joined
from cadis.data.partition import held_out
from cadis.engine.speeds import Speeds
from cadis.errors import CadisError
from cadis.options import Device
from cadis.rng import generator_for
from cadis.training import LocalSettings, check_labels
from cadis.types import ClientId, checked_client_id


@dataclass(frozen=True, repr=False)
class Federation:
    """Who takes part.

    Attributes:
        clients: each client's own examples, which it trains on.
        test: examples that no client has.
        client_ids: names of the clients; by default their positions.
        true_clusters: the true clusters, where there are any, (n,).
        classes: names of the classes, where they have any.
        client_tests: each client's own examples that it is tested on and never trains on, none
            for those that have too few; empty if clients are tested on what they train on.
        preprocessing: what makes a model's inputs of a raw one, where that is known.
    """

    clients: Sequence[Examples]
    test: Examples
    client_ids: tuple[ClientId, ...] = ()
    true_clusters: Tensor | None = None
    classes: tuple[str, ...] = ()
    client_tests: Sequence[Examples] = ()
    preprocessing: Preprocessing | None = None

    __repr__ = short_repr

    def __post_init__(self) -> None:
        ids = self.client_ids or range(len(self.clients))
        object.__setattr__(self, "client_ids", tuple(map(checked_client_id, ids)))

    def sizes(self) -> list[int]:
        """How many examples each client trains on."""
        return sizes_of(self.clients)

    def labels(self) -> list[Tensor]:
        """The labels that each client trains on."""
        return labels_of(self.clients)

    def tested_on(self) -> Sequence[Examples]:
        """What each client is tested on: what it has held out, else what it trains on."""
        return self.client_tests if len(self.client_tests) else self.clients

    def check(self, num_classes: int) -> None:
        """Refuse a federation that cannot be trained, in one sentence."""
        if not len(self.clients):
            raise CadisError("A federation needs at least one client.")
        if len(self.client_ids) != len(self.clients):
            raise CadisError(
                f"{len(self.client_ids)} ids are given for {len(self.clients)} clients; give one "
                "for each."
            )
        for client_id, times in Counter(map(str, self.client_ids)).items():
            if times > 1:  # 1 and "1" are the same to whoever reads them
                raise CadisError(
                    f"Every client needs an id of its own, but {times} are called {client_id}."
                )
        if self.classes and len(self.classes) != num_classes:
            raise CadisError(
                f"The model tells {num_classes} classes apart, but the data have "
                f"{len(self.classes)}; make its classifier layer as wide."
            )
        truth = self.true_clusters
        if truth is not None and len(truth) != len(self.clients):
            raise CadisError(
                f"True clusters are given for {len(truth)} clients, but there are "
                f"{len(self.clients)}; give one for each."
            )
        for owner, examples in self._parts():
            examples.check_form(owner)
            if examples.scaling != self.test.scaling:
                raise CadisError(f"{owner} and the test set are scaled differently.")
            if examples.kind != self.test.kind:
                raise CadisError(
                    f"{owner} has inputs of {examples.kind}, but the test set has inputs of "
                    f"{self.test.kind}; make them alike."
                )
            check_labels(examples.labels, num_classes, owner)
        self._check_finite()

    def _check_finite(self) -> None:
        """Refuse inputs that are infinite or not a number, and say whose they are.

        Their form is as it should be.
        """
        self.test.check_finite("The test set")
        for client_id, tests in self._own_tests():
            tests.check_finite(f"The test data of client {client_id}")
        if not isinstance(self.clients, Subsets):
            for client_id, client in zip(self.client_ids, self.clients, strict=True):
                client.check_finite(f"Client {client_id}")
            return
        broken = self.clients.examples.broken()
        for client_id, indices in zip(self.client_ids, self.clients.indices, strict=True):
            found = indices[torch.isin(indices, broken)] if len(broken) else broken
            if len(found):
                first = f"sample {int(found[0])} of the training set"
                where = self.clients.examples.first_broken(int(found[0]))
                raise CadisError(broken_sentence(f"Client {client_id}", len(found), first, where))

    def _parts(self) -> Iterator[tuple[str, Examples]]:
        """Everybody's examples with a name; those that share one dataset as a whole."""
        if isinstance(self.clients, Subsets):
            for client_id, indices in zip(self.client_ids, self.clients.indices, strict=True):
                if not len(indices):
                    raise CadisError(f"Client {client_id} has no samples; leave it out.")
            yield "The training set", self.clients.examples
        else:
            for client_id, client in zip(self.client_ids, self.clients, strict=True):
                yield f"Client {client_id}", client
        for client_id, own in self._own_tests():
            yield f"The test data of client {client_id}", own
        yield "The test set", self.test

    def _own_tests(self) -> list[tuple[ClientId, Examples]]:
        """What clients are tested on, where there is any that is not in the test set."""
        if isinstance(self.client_tests, Subsets):
            return []
        pairs = zip(self.client_ids, self.client_tests, strict=False)
        return [(client_id, own) for client_id, own in pairs if len(own)]

    def true_clusters_by_id(self) -> dict[ClientId, int] | None:
        """The true cluster of each client, if they are known."""
        if self.true_clusters is None:
            return None
        return dict(zip(self.client_ids, self.true_clusters.tolist(), strict=True))

    def split(self, share: float, seed: int) -> "Federation":
        """With a share of each client's examples held out, to test it on.

        What is held out depends on the seed, the client's id and its labels, and on nothing else.
        Clients that share one dataset go on sharing it.
        """
        if not share:
            return self
        self._check_apart()
        tested = [
            held_out(labels, share, generator_for(seed, "client-test", client_id))
            for client_id, labels in zip(self.client_ids, self.labels(), strict=True)
        ]
        return replace(
            self,
            clients=_parts_of(self.clients, [~own for own in tested]),
            client_tests=_parts_of(self.clients, tested),
        )

    def _check_apart(self) -> None:
        """Refuse samples that several have: what one holds out, another would train on."""
        if isinstance(self.clients, Subsets):
            everything = torch.cat(self.clients.indices)
            if len(everything.unique()) < len(everything):
                raise CadisError(
                    "Some samples belong to several clients, or twice to one, so they cannot be "
                    "held out; deal each sample once, or leave client_test out."
                )

    def pooled(self) -> "Federation":
        """The data that clients train on in the hands of a single one."""
        if isinstance(self.clients, Subsets):
            return Federation(self.clients.pooled(), self.test, ("everyone",))
        return Federation([joined(self.clients)], self.test, ("everyone",))


@dataclass(frozen=True)
class EngineSettings:
    """How a federation is run.

    Attributes:
        rounds: how many rounds.
        per_round: k, clients that take part in a round; None for all.
        seed: of everything random.
        workers: processes that train clients; "auto" takes one for each core.
        device: where models are trained; "auto" takes an accelerator if there is one.
        local: how a client trains.
        test_clients: after how many rounds, and the last, the global model is tested on clients'
            own data, of many clients on a sample of them; 0 is never.
        eval_every: after how many rounds, and the last, the global model is tested on the test set.
        stack: whether several clients are trained at once where the model is small; the results
            are the same but for rounding.
        client_test: what share of each client's examples is held out: the client never trains on
            them, and is tested on them instead of on its training data.
        speeds: how many samples a second clients handle, for the simulated clock: "LOW:HIGH" to be
            drawn from, a file, or a number for each client; if empty, one per unit of time.
    """

    rounds: Annotated[int, Gt(0)]
    per_round: Annotated[int, Gt(0)] | None = None
    seed: int = 0
    workers: Annotated[int, Gt(0), Le(1024)] | Literal["auto"] = "auto"
    device: Device = "auto"
    local: LocalSettings = field(default_factory=LocalSettings)
    test_clients: Annotated[int, Ge(0)] = 10
    eval_every: Annotated[int, Gt(0)] = 1
    stack: bool = True
    client_test: Annotated[float, Ge(0), Lt(1)] = 0.0
    speeds: Speeds = ""


def sizes_of(clients: Sequence[Examples]) -> list[int]:
    """How many examples each has."""
    return clients.sizes() if isinstance(clients, Subsets) else [len(own) for own in clients]


def labels_of(clients: Sequence[Examples]) -> list[Tensor]:
    """The labels of each one's examples."""
    return clients.labels() if isinstance(clients, Subsets) else [own.labels for own in clients]


def _parts_of(clients: Sequence[Examples], chosen: Sequence[Tensor]) -> Sequence[Examples]:
    """Of each one's examples those that are chosen, (n,) of truth values each."""
    if not isinstance(clients, Subsets):
        return [own.take(mask) for own, mask in zip(clients, chosen, strict=True)]
    pairs = zip(clients.indices, chosen, strict=True)
    return Subsets(clients.examples, tuple(own[mask] for own, mask in pairs))
