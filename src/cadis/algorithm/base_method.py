"""The base class of methods: federated averaging, written as hooks that a method overrides."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.aggregation import average_updates, compute_sample_weights
from cadis.algorithm.method import (
    Aggregation,
    BatchExtras,
    ClientOutput,
    ClientWeights,
    LocalClient,
    LocalResult,
    ModelOutputs,
    ServerRound,
    ServerState,
    Step,
)
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState


class BaseMethod:
    """Base class of all methods, and by itself federated averaging (FedAvg).

    To write a method, derive a frozen dataclass from this class. Its fields are the parameters of
    the method, and each becomes an option of the command line. Override only the hooks that differ
    from FedAvg. In the order in which a round calls them:

    | hook | side | returns |
    | --- | --- | --- |
    | ``init(model, generator)`` | server, before round 1 | first models, tensors of the method |
    | ``eligible_clients(server_round, state, clients)`` | server | clients for the sampler |
    | ``broadcast(server_round, state, client)`` | server, each participant | message to send |
    | ``prepare(outputs)`` | client, before training | values per sample, scalars to send |
    | ``epoch_order(labels, generator)`` | client, each epoch | indices of the samples, in order |
    | ``calibrate(step)`` | client, each batch | logits that the loss is computed from |
    | ``penalty(step)`` | client, each batch | term that is added to the loss |
    | ``finish(result, received, client_state)`` | client, after training | what to send and keep |
    | ``weigh(server_round, updates, state)`` | server | weight of each update in the mean |
    | ``aggregate(server_round, updates, state)`` | server | new models; calls ``weigh`` |
    | ``model_name_for(client, state)`` | server | model that a client trains and is tested with |
    | ``cluster_labels(server_round, state, clients)`` | server | cluster of each client |

    ``local(client)`` runs the whole client side. Override it only if a client does more than train
    the received model once. To send a number about the received model, such as its loss, set
    ``needs_model_outputs`` and return it as a scalar of ``prepare``.

    Three rules keep a method reproducible and let it run unchanged in the simulation engine and on
    Flower:

    - A method object stores nothing between calls. All state is passed in and returned: the
      server's in ``ServerState``, a client's in ``ClientOutput.state``.
    - Inputs are never changed in place.
    - ``prepare``, ``calibrate`` and ``penalty`` do not branch on values of tensors, because they
      may run for several clients at once. Gradients of a penalty come from autograd.

    Example:
        A method that adds weight decay to the local loss and gives each client the same weight:

        >>> from dataclasses import dataclass
        >>> import torch
        >>> import cadis
        >>> from cadis.algorithm import BaseMethod, ClientWeights
        >>> @dataclass(frozen=True)
        ... class EqualDecay(BaseMethod):
        ...     name = "equal-decay"
        ...     mu: float = 0.01
        ...
        ...     def penalty(self, step):  # mu / 2 * ||w||^2
        ...         return self.mu / 2 * step.parameters.square().sum()
        ...
        ...     def weigh(self, server_round, updates, state):
        ...         weights = torch.full((len(updates),), 1 / len(updates))
        ...         return ClientWeights(weights, state.tensors)
        >>>
        >>> x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> clients = [(x[:10], y[:10]), (x[10:40], y[10:40])]
        >>> model, test = torch.nn.Linear(4, 2), (x[40:], y[40:])
        >>> result = cadis.run(model, clients, test, rounds=2, method=EqualDecay(mu=0.1))
        >>> result.history[-1].weights
        [0.5, 0.5]

        In a file ``mine.py`` the same class runs by ``cadis run --method mine.py:EqualDecay``.

    Attributes:
        name: name of the method in options and files; lower case, digits and hyphens.
        pools_clients: True for centralized training: one client has the data of all clients.
        needs_head: True if the server reads the updates of the classifier layer; a model without
            such a layer is then rejected.
        needs_clock: True if the server reads the simulated seconds of clients, which only the
            simulation engine knows.
        needs_scalars: names of the scalars that each update must contain.
        needs_tensors: names of the tensors that each update must contain.
        needs_representation: True if clients read ``representation``, the inputs of the classifier
            layer; a model without such a layer is then rejected.
        needs_class_outputs: True if the model must have one output per class.
        label: name for tables and figures; by default the name of the class.
        about: paper, sent data and state of the method, as ``cadis methods`` shows them.
        default_parts: names of the other parts that the method uses unless the user chooses
            others, by kind, such as ``{"sampler": "clusters"}``.
    """

    name: ClassVar[str]
    pools_clients: ClassVar[bool] = False
    needs_head: ClassVar[bool] = False
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
        """Server: True if :meth:`cluster_labels` returns clusters, which some samplers need."""
        return False

    @property
    def has_profiles(self) -> bool:
        """Server: True if :meth:`client_profiles` compares clients, which some samplers need."""
        return False

    @property
    def needs_model_outputs(self) -> bool:
        """Client: True if :meth:`prepare` is used; it costs a forward pass over the data."""
        return False

    def local(self, client: LocalClient) -> ClientOutput:
        """Client: train the received model on the client's data.

        Called once per round and participant. The default computes :meth:`prepare` if it is needed,
        trains with :meth:`penalty`, :meth:`calibrate` and :meth:`epoch_order`, and then calls
        :meth:`finish`. An override may train or test several models (IFCA), and usually ends with
        :meth:`collect_output`.

        Args:
            client: message, state and data of the client, with ``train``, ``compute_outputs`` and
                ``compute_loss``.

        Returns:
            The trained models, tensors and scalars to send, and the state that the client keeps.
        """
        model = client.received.model
        extras = (
            self.prepare(client.compute_outputs(model))
            if self.needs_model_outputs
            else BatchExtras()
        )
        hooks = self.penalty, extras, self.calibrate, self.epoch_order
        return self.collect_output(client, extras, client.train(model, *hooks))

    def collect_output(
        self, client: LocalClient, extras: BatchExtras, result: LocalResult
    ) -> ClientOutput:
        """Client: return the output of :meth:`finish`, with the trained model and its loss.

        Args:
            client: the client that has been trained.
            extras: result of :meth:`prepare`; its scalars are sent.
            result: result of ``client.train``.

        Returns:
            The output of :meth:`finish` with the model and the scalar "train_loss" added.
        """
        output = self.finish(result, client.received, client.state)
        scalars = {key: float(value) for key, value in extras.scalars.items()}
        scalars |= {"train_loss": result.loss, **output.scalars}
        models = {client.received.model_name: result.model}
        return replace(output, scalars=scalars, models=models)

    def prepare(self, outputs: ModelOutputs) -> BatchExtras:
        """Client: compute values from the received model's outputs before training.

        Called once per round, only if :attr:`needs_model_outputs` is True. The default does
        nothing.

        Args:
            outputs: outputs of the received model for all n samples of the client.

        Returns:
            Tensors with one row per sample, (n, ...), whose rows :meth:`penalty` and
            :meth:`calibrate` get as ``step.per_sample``; and scalars to send to the server.
        """
        del outputs
        return BatchExtras()

    def penalty(self, step: Step) -> Tensor | None:
        """Client: return the term that is added to the mean loss of a batch.

        Called for each batch. The default adds nothing.

        Args:
            step: the batch: ``step.parameters`` is the local model w, (P,), ``step.received`` the
                global model w_t, (P,), ``step.logits`` the outputs, (b, outputs).

        Returns:
            A scalar, (), that autograd can differentiate; or None.
        """
        del step
        return None

    def calibrate(self, step: Step) -> Tensor:
        """Client: return the logits that the loss of a batch is computed from.

        Called for each batch. The default returns the model's own logits. If several clients are
        trained at once, each tensor of the step has a leading dimension of clients; an expression
        such as ``step.class_counts[..., None, :]`` matches the logits in both cases.

        Args:
            step: the batch; ``step.logits`` has the shape (..., b, outputs).

        Returns:
            Logits of the same shape, (..., b, outputs).
        """
        return step.logits

    def epoch_order(self, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Client: return the samples of an epoch, in the order of training.

        Called at the start of each epoch. The default is a random permutation of all samples.

        Args:
            labels: labels of the client's n samples, (n,).
            generator: random generator of this client and round.

        Returns:
            Indices of samples, (n,), int64; an index may occur several times or not at all.
        """
        return torch.randperm(len(labels), generator=generator)

    def finish(
        self, result: LocalResult, received: Message, client_state: TensorState
    ) -> ClientOutput:
        """Client: return what to send besides the model, and the state to keep.

        Called once per round after training. The default sends nothing more and keeps the state.

        Args:
            result: trained and received parameters, (P,), number of steps, learning rate and loss.
            received: message of the server.
            client_state: tensors that this client kept from its last round; empty at first.

        Returns:
            New state, tensors and scalars; :meth:`local` adds the trained model.
        """
        del result, received
        return ClientOutput(client_state)

    def init(self, model: ModelState, generator: torch.Generator) -> ServerState:
        """Server: return the state before the first round.

        Called once per run. The default has one model, named "model", and no tensors.

        Args:
            model: the initial model.
            generator: random generator for the initial state.

        Returns:
            The global models by name, and the tensors that the method keeps between rounds.
        """
        del generator
        return ServerState({"model": model})

    def eligible_clients(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Sequence[ClientId]:
        """Server: return the clients that the sampler may choose from.

        Called at the start of each round. The default returns all of them.

        Args:
            server_round: number and random generator of the round.
            state: models and tensors of the server.
            clients: the clients that are available in this round.

        Returns:
            A subset of ``clients``, in the same order.
        """
        del server_round, state
        return clients

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        """Server: return the message for one participant.

        Called for each participant of a round. The default sends the model that the client uses.

        Args:
            server_round: number and random generator of the round.
            state: models and tensors of the server.
            client: id of the participant.

        Returns:
            The models, by name, and further flat tensors, which clients see as ``step.tensors``.
        """
        del server_round
        name = self.model_name_for(client, state)
        return Message({name: state.models[name]})

    def model_name_for(self, client: ClientId, state: ServerState) -> str:
        """Server: return the name of the model that a client uses.

        Called to send models and to test them, also for clients that never took part. The default
        is the first model.

        Args:
            client: id of any client of the federation.
            state: models and tensors of the server.

        Returns:
            A key of ``state.models``.
        """
        del client
        return next(iter(state.models))

    def cluster_labels(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Tensor:
        """Server: return the cluster of each client.

        Called in each round if the sampler or a report asks for clusters. The default knows none.

        Args:
            server_round: number and random generator of the round.
            state: models and tensors of the server.
            clients: ids of n clients.

        Returns:
            Labels of clusters, (n,), int64; -1 for a client whose cluster is not known.
        """
        del server_round, state
        return torch.full((len(clients),), -1)

    def client_profiles(self, state: ServerState, clients: Sequence[ClientId]) -> Tensor:
        """Server: return a vector for each client whose cosines are the clients' similarities.

        Called in each round if the sampler asks for it. The default knows none.

        Args:
            state: models and tensors of the server.
            clients: ids of n clients.

        Returns:
            Vectors, (n, d); zeros for a client that is not known yet.
        """
        del state
        return torch.zeros(len(clients), 0)

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> ClientWeights:
        """Server: return the weight of each update in the mean of the models.

        Called once per round by the default :meth:`aggregate`. The default is n_i / N, the number
        of samples of a client divided by that of all participants.

        Args:
            server_round: number and random generator of the round.
            updates: the k valid updates of the round, k >= 1, with finite numbers.
            state: models and tensors of the server.

        Returns:
            Weights, (k,), not negative, with sum 1; the tensors to keep for the next round; and
            arrays for the report of the run.
        """
        del server_round
        weights = compute_sample_weights([update.num_samples for update in updates])
        return ClientWeights(weights, state.tensors)

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """Server: return the new global models.

        Called once per round. The default averages each model over the clients that trained it,
        with the weights of :meth:`weigh`.

        Args:
            server_round: number and random generator of the round.
            updates: the k valid updates of the round, k >= 1, with finite numbers.
            state: models and tensors of the server.

        Returns:
            The aggregated models, the tensors to keep, and the weight of each update, (k,).
        """
        client_weights = self.weigh(server_round, updates, state)
        models, weights = average_updates(updates, client_weights.weights)
        return Aggregation(models, client_weights.tensors, weights, client_weights.report)
