"""The base class of methods: federated averaging, of which a method overrides what it changes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.aggregation import example_weights, mean_state
from cadis.algorithm.method import (
    Aggregation,
    BatchExtras,
    ClientOutput,
    LocalClient,
    LocalResult,
    ModelOutputs,
    ServerRound,
    ServerState,
    Step,
    Weighing,
)
from cadis.errors import CadisError
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState


class BaseMethod:
    """Federated averaging: plain local training, and the mean of the models by number of samples.

    A method is a frozen dataclass of its parameters that derives from this class. State goes in and
    comes out: a method keeps nothing itself, opens no file and names no device. It overrides what
    it changes:

    | where | override | to change |
    | --- | --- | --- |
    | client | ``penalty`` | the term that is added to the loss of a batch |
    | client | ``calibrate`` | the logits that the loss is computed from |
    | client | ``epoch_order`` | which samples an epoch uses, and in which order |
    | client | ``prepare`` | what is computed from the received model before training |
    | client | ``finish`` | what is sent besides the model, and what the client keeps |
    | client | ``local`` | local training as a whole |
    | server | ``init``, ``broadcast`` | the models and tensors that the server has and sends |
    | server | ``weigh`` | the weight of each update |
    | server | ``aggregate`` | aggregation as a whole |
    | server | ``eligible_clients`` | which clients may take part in a round |
    | server | ``model_name_for``, ``cluster_labels`` | the model and the cluster of a client |

    Functions of the client, except ``local``, never branch on the value of a tensor, so that
    several clients can be trained at once. A penalty is written once, and differentiated by
    autograd.

    Example:
        >>> from dataclasses import dataclass
        >>> import torch
        >>> import cadis
        >>> from cadis.algorithm import BaseMethod, Weighing
        >>> @dataclass(frozen=True)
        ... class EqualDecay(BaseMethod):
        ...     name = "equal-decay"
        ...     mu: float = 0.01
        ...     def penalty(self, step):  # weight decay, mu / 2 * ||w||^2
        ...         return self.mu / 2 * step.parameters.square().sum()
        ...     def weigh(self, server_round, updates, state):  # the same weight for every client
        ...         return Weighing(torch.full((len(updates),), 1 / len(updates)), state.memory)
        >>> x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> clients = [(x[:10], y[:10]), (x[10:40], y[10:40])]
        >>> model, test = torch.nn.Linear(4, 2), (x[40:], y[40:])
        >>> result = cadis.run(model, clients, test, rounds=2, method=EqualDecay(mu=0.1))
        >>> result.history[-1].weights
        [0.5, 0.5]

    Attributes:
        name: as users type it.
        pools_clients: whether one client holds the data of all (centralised training).
        compares_heads: whether the server uses the updates of the classifier layer.
        needs_clock: whether the server must know how long clients take, as only simulated ones do.
        needs_scalars: names of the scalars that every update must contain.
        needs_tensors: names of the tensors that every update must contain.
        needs_representation: whether clients use the inputs of the classifier layer, which the
            model must then have: ``representation`` of a step or a view.
        needs_class_outputs: whether the model must have an output for each class.
        label: its name as people write it; by default that of the class.
        about: the method's paper, what it sends and what it keeps, as ``cadis methods`` shows it.
        default_parts: names of the other parts that the method is meant to be used with, by kind;
            they are taken unless the user chooses others.
    """

    name: ClassVar[str]
    pools_clients: ClassVar[bool] = False
    compares_heads: ClassVar[bool] = False
    needs_clock: ClassVar[bool] = False
    needs_scalars: ClassVar[tuple[str, ...]] = ()
    needs_tensors: ClassVar[tuple[str, ...]] = ()
    needs_representation: ClassVar[bool] = False
    needs_class_outputs: ClassVar[bool] = False
    label: ClassVar[str] = ""
    about: ClassVar[About] = About()
    default_parts: ClassVar[Mapping[str, str]] = {}

    @property
    def finds_clusters(self) -> bool:
        """Server: whether :meth:`cluster_labels` tells clusters, which a sampler may want."""
        return False

    @property
    def needs_view(self) -> bool:
        """Client: whether :meth:`prepare` wants a view of the data; it costs a pass over them."""
        return False

    def local(self, client: LocalClient) -> ClientOutput:
        """Client: train the received model, and say what to send and what to remember."""
        model = client.received.model
        prepared = self.prepare(client.view(model)) if self.needs_view else BatchExtras()
        hooks = self.penalty, prepared, self.calibrate, self.epoch_order
        return self.collect_output(client, prepared, client.train(model, *hooks))

    def collect_output(
        self, client: LocalClient, prepared: BatchExtras, training: LocalResult
    ) -> ClientOutput:
        """Client: what to send and what to keep, after local training."""
        output = self.finish(training, client.received, client.memory)
        scalars = {key: float(value) for key, value in prepared.scalars.items()}
        scalars |= {"train_loss": training.loss, **output.scalars}
        models = {client.received.model_name: training.model}
        return replace(output, scalars=scalars, models=models)

    def prepare(self, view: ModelOutputs) -> BatchExtras:
        """Client: look at the received model and the own data before training."""
        del view
        return BatchExtras()

    def penalty(self, step: Step) -> Tensor | None:
        """Client: the term that is added to the mean loss of a batch; here there is none."""
        del step
        return None

    def calibrate(self, step: Step) -> Tensor:
        """Client: the logits that the loss is taken of, (..., b, outputs); here the model's own.

        Where several clients are trained at once, every tensor of the step has a dimension of
        clients before its own: ``step.class_counts[..., None, :]`` fits the logits either way.
        """
        return step.logits

    def epoch_order(self, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Client: the samples that an epoch goes through, as many as there are, (n,)."""
        return torch.randperm(len(labels), generator=generator)

    def finish(self, training: LocalResult, received: Message, memory: TensorState) -> ClientOutput:
        """Client: what to remember, and what to send besides the model; here nothing new."""
        del training, received
        return ClientOutput(memory)

    def init(self, model: ModelState, generator: torch.Generator) -> ServerState:
        """Server: the state before the first round, from the initial model; here that model."""
        del generator
        return ServerState({"model": model})

    def eligible_clients(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Sequence[ClientId]:
        """Server: those of the clients that are there who may take part; here everybody."""
        del server_round, state
        return clients

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        """Server: what to send to one of the participants; here the model that it uses."""
        del server_round
        name = self.model_name_for(client, state)
        return Message({name: state.models[name]})

    def model_name_for(self, client: ClientId, state: ServerState) -> str:
        """Server: the name of the model that a client uses, be it one that was never asked.

        Here everybody uses the first model.
        """
        del client
        return next(iter(state.models))

    def cluster_labels(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Tensor:
        """Server: the cluster of each of these clients, -1 if it is not known yet, (n,)."""
        del server_round, state
        return torch.full((len(clients),), -1)

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Weighing:
        """Server: how much each update counts; here n_i / N over the participants."""
        del server_round
        weights = example_weights([update.num_examples for update in updates])
        return Weighing(weights, state.memory)

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """Server: the aggregated models from one or more finite updates.

        Here the weighted mean of the models, of those who trained each of them.
        """
        weighing = self.weigh(server_round, updates, state)
        models, weights = weighted_models(updates, weighing.weights)
        return Aggregation(models, weighing.memory, weights, weighing.report)


def weighted_models(
    updates: Sequence[ClientUpdate], weights: Tensor
) -> tuple[dict[str, ModelState], Tensor]:
    """Average each model over those who trained it; return them and the weights in them, (k,).

    Where there are several models, the weights are shared out anew among those who trained the
    same one.
    """
    if weights.shape != (len(updates),):
        raise CadisError(f"{weights.numel()} weights cannot average {len(updates)} models.")
    places: dict[str, list[int]] = {}
    for place, update in enumerate(updates):
        places.setdefault(update.message.model_name, []).append(place)
    if len(places) > 1:
        weights = weights.clone()
        for own in places.values():
            weights[own] /= weights[own].sum()
    models = {
        name: mean_state([updates[place].model for place in own], weights[own])
        for name, own in places.items()
    }
    return models, weights
