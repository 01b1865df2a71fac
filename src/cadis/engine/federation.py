"""A federation (clients with their data, and the test set) and the settings of the engine.

:mod:`cadis.experiment` creates both, and :class:`~cadis.engine.Engine` uses them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from cadis._io import short_repr
from cadis.data import Preprocessing, Samples, Subsets, concatenate, format_nonfinite_error
from cadis.data.partition import hold_out
from cadis.engine.speeds import Speeds
from cadis.errors import CadisError
from cadis.options import Device
from cadis.rng import derive_generator
from cadis.training import LocalSettings, check_labels
from cadis.types import ClientId, validate_client_id

_MAX_CLUSTERS = 100_000
"""Limit of the numbers of true clusters, by which tables are indexed."""


@dataclass(frozen=True, repr=False)
class Federation:
    """Clients with their data, and the test set.

    Attributes:
        clients: training samples of each client.
        test: test set of the global model; no client trains on it.
        client_ids: ids of the clients; by default their indices.
        true_clusters: true cluster of each client, if known, (n,).
        classes: names of the classes, if known.
        client_tests: held-out samples of each client, on which it never trains. The entry of a
            client with too few samples is empty. If there are no entries, clients are tested on
            their training data.
        preprocessing: converts raw inputs to inputs of the model, if known.
    """

    clients: Sequence[Samples]
    test: Samples
    client_ids: tuple[ClientId, ...] = ()
    true_clusters: Tensor | None = None
    classes: tuple[str, ...] = ()
    client_tests: Sequence[Samples] = ()
    preprocessing: Preprocessing | None = None

    __repr__ = short_repr

    def __post_init__(self) -> None:
        ids = self.client_ids or range(len(self.clients))
        object.__setattr__(self, "client_ids", tuple(map(validate_client_id, ids)))

    def sizes(self) -> list[int]:
        """Return the number of training samples of each client."""
        return count_samples(self.clients)

    def labels(self) -> list[Tensor]:
        """Return the training labels of each client."""
        return get_labels(self.clients)

    def get_client_evaluation_sets(self) -> Sequence[Samples]:
        """Return the data on which each client is tested.

        These are ``client_tests``, or the training data of all clients if ``client_tests`` is
        empty.
        """
        return self.client_tests if len(self.client_tests) else self.clients

    def check(self, num_classes: int) -> None:
        """Raise an error if the federation cannot be trained.

        Args:
            num_classes: number of classes that the model predicts.
        """
        if not len(self.clients):
            raise CadisError("A federation needs at least one client.")
        if len(self.client_ids) != len(self.clients):
            raise CadisError(
                f"{len(self.client_ids)} ids are given for {len(self.clients)} clients; give one "
                "id per client."
            )
        for client_id, count in Counter(map(str, self.client_ids)).items():
            if count > 1:  # compared as text: 1 and "1" look the same in reports
                raise CadisError(
                    f"{count} clients have the id {client_id}; give every client its own id."
                )
        self._check_class_names()
        if self.classes and len(self.classes) != num_classes:
            raise CadisError(
                f"The model predicts {num_classes} classes, but the data have {len(self.classes)}; "
                "change the number of outputs of its classifier layer."
            )
        if self.true_clusters is not None:
            self._check_true_clusters(self.true_clusters)
        for name, samples in self._iter_sample_sets():
            samples.check_format(name)
            if samples.scaling != self.test.scaling:
                raise CadisError(
                    f"{name} and the test set are scaled differently; scale both the same way."
                )
            if samples.input_format != self.test.input_format:
                raise CadisError(
                    f"{name} has inputs of {samples.input_format}, but the test set has inputs of "
                    f"{self.test.input_format}; use the same type for both."
                )
            check_labels(samples.labels, num_classes, name)
        self._check_finite()

    def _check_class_names(self) -> None:
        for name, count in Counter(self.classes).items():
            if count > 1:
                raise CadisError(
                    f"{count} classes have the name {name}; give every class its own name."
                )

    def _check_finite(self) -> None:
        """Raise an error that names the client if inputs are NaN or infinite."""
        self.test.check_finite("The test set")
        for client_id, test_set in self._list_unshared_client_tests():
            test_set.check_finite(f"The test data of client {client_id}")
        if not isinstance(self.clients, Subsets):
            for client_id, client in zip(self.client_ids, self.clients, strict=True):
                client.check_finite(f"Client {client_id}")
            return
        nonfinite = self.clients.samples.find_nonfinite()
        for client_id, indices in zip(self.client_ids, self.clients.indices, strict=True):
            client_nonfinite = (
                indices[torch.isin(indices, nonfinite)] if len(nonfinite) else nonfinite
            )
            if len(client_nonfinite):
                first, count = int(client_nonfinite[0]), len(client_nonfinite)
                sample = f"sample {first} of the training set"
                where = self.clients.samples.describe_nonfinite(first)
                raise CadisError(
                    format_nonfinite_error(f"Client {client_id}", count, sample, where)
                )

    def _iter_sample_sets(self) -> Iterator[tuple[str, Samples]]:
        """Yield a name for error messages and each set of samples; a shared dataset only once."""
        if isinstance(self.clients, Subsets):
            for client_id, indices in zip(self.client_ids, self.clients.indices, strict=True):
                if not len(indices):
                    raise CadisError(f"Client {client_id} has no samples; leave it out.")
            yield "The training set", self.clients.samples
        else:
            for client_id, client in zip(self.client_ids, self.clients, strict=True):
                yield f"Client {client_id}", client
        for client_id, test_set in self._list_unshared_client_tests():
            yield f"The test data of client {client_id}", test_set
        yield "The test set", self.test

    def _check_true_clusters(self, clusters: Tensor) -> None:
        if len(clusters) != len(self.clients):
            raise CadisError(
                f"True clusters are given for {len(clusters)} clients, but there are "
                f"{len(self.clients)}; give one per client."
            )
        if (highest := int(clusters.max())) >= _MAX_CLUSTERS:
            raise CadisError(
                f"There is a true cluster {highest:,}, but the numbers must be below "
                f"{_MAX_CLUSTERS:,}; number the clusters from 0."
            )

    def _list_unshared_client_tests(self) -> list[tuple[ClientId, Samples]]:
        """Return the clients' test sets, unless they are subsets of a shared dataset."""
        if isinstance(self.client_tests, Subsets):
            return []
        pairs = zip(self.client_ids, self.client_tests, strict=False)
        return [(client_id, test_set) for client_id, test_set in pairs if len(test_set)]

    def true_clusters_by_id(self) -> dict[ClientId, int] | None:
        """Return the true cluster of each client; None if they are unknown."""
        if self.true_clusters is None:
            return None
        return dict(zip(self.client_ids, self.true_clusters.tolist(), strict=True))

    def hold_out(self, share: float, seed: int) -> "Federation":
        """Return a federation in which a share of each client's samples is held out for tests.

        The held-out samples depend only on the seed, the client's id and its labels. Clients whose
        samples are subsets of one dataset still share that dataset in memory.

        Args:
            share: share of the samples, from 0 to 1; 0 returns the federation unchanged.
            seed: seed of the draw.
        """
        if not share:
            return self
        self._check_disjoint()
        masks = [
            hold_out(labels, share, derive_generator(seed, "client-test", client_id))
            for client_id, labels in zip(self.client_ids, self.labels(), strict=True)
        ]
        return replace(
            self,
            clients=_select_samples(self.clients, [~mask for mask in masks]),
            client_tests=_select_samples(self.clients, masks),
        )

    def _check_disjoint(self) -> None:
        """Raise an error if clients share samples: one could train on a test sample of another."""
        if isinstance(self.clients, Subsets):
            indices = torch.cat(self.clients.indices)
            if len(indices.unique()) < len(indices):
                raise CadisError(
                    "Some samples belong to several clients, or twice to one, so they cannot be "
                    "held out; assign each sample to one client, or do not set client_test."
                )

    def pool(self) -> "Federation":
        """Return a federation of a single client with the training data of all clients."""
        if isinstance(self.clients, Subsets):
            return Federation(self.clients.pool(), self.test, ("everyone",))
        return Federation([concatenate(self.clients)], self.test, ("everyone",))


@dataclass(frozen=True)
class EngineSettings:
    """Settings of the engine.

    Attributes:
        rounds: number of rounds.
        per_round: k, number of clients that take part in a round; None for all.
        seed: seed of all random numbers.
        workers: number of processes that train clients; "auto" is one per CPU core.
        device: device of the models; "auto" uses an accelerator if there is one.
        local: settings of the clients' training.
        test_clients: test the model on the clients' own data every this many rounds and after the
            last round; 0 means never. If there are many clients, a random sample of them is tested.
        eval_every: test the model on the test set every this many rounds and after the last round.
        stack: whether small models of several clients are trained at once; results are the same
            except for rounding.
        client_test: share of each client's samples that is held out: the client is tested on these
            samples and does not train on them.
        speeds: samples per second of each client, for the simulated clock: "LOW:HIGH" to draw them
            at random, a file, or one number per client; if empty, 1 for all clients.
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


def count_samples(clients: Sequence[Samples]) -> list[int]:
    """Return the number of samples of each client."""
    return clients.sizes() if isinstance(clients, Subsets) else [len(part) for part in clients]


def get_labels(clients: Sequence[Samples]) -> list[Tensor]:
    """Return the labels of each client's samples."""
    return clients.labels() if isinstance(clients, Subsets) else [part.labels for part in clients]


def _select_samples(clients: Sequence[Samples], masks: Sequence[Tensor]) -> Sequence[Samples]:
    """Return the samples of each client that its boolean mask selects."""
    if not isinstance(clients, Subsets):
        return [part.take(mask) for part, mask in zip(clients, masks, strict=True)]
    pairs = zip(clients.indices, masks, strict=True)
    return Subsets(clients.samples, tuple(indices[mask] for indices, mask in pairs))
