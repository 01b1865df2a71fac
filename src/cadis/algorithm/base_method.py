"""Base class of methods: federated averaging, as functions that a method can override."""

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
from cadis.algorithm.weight_limits import limit_weights
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState


class BaseMethod:
    """Base class of all methods; without overrides it is federated averaging (FedAvg).

    A method defines what clients train and send, and how the server aggregates their updates. To
    write a method, derive a frozen dataclass from this class and override the functions that differ
    from FedAvg. The fields of the dataclass are the parameters of the method, and each becomes an
    option of the command line. A round calls the functions in this order, except the last three,
    which are called whenever they are needed:

    | function | called | returns |
    | --- | --- | --- |
    | ``init(model, generator)`` | server, before round 1 | ``ServerState(models, tensors)`` |
    | ``eligible_clients(server_round, state, clients)`` | server | clients for the sampler |
    | ``broadcast(server_round, state, client)`` | server, per participant | ``Message`` to send |
    | ``prepare(outputs)`` | client, before training | ``BatchExtras(per_sample, scalars)`` |
    | ``epoch_order(labels, generator)`` | client, each epoch | indices of the samples, (n,) |
    | ``calibrate(step)`` | client, each batch | logits for the loss, (b, outputs) |
    | ``penalty(step)`` | client, each batch | term to add to the loss, a scalar tensor |
    | ``finish(result, received, client_state)`` | client, after training | ``ClientOutput`` |
    | ``aggregate(server_round, updates, state)`` | server | ``Aggregation`` |
    | ``weigh(server_round, updates, state)`` | server, by ``aggregate`` | ``ClientWeights`` |
    | ``model_name_for(client, state)`` | server, to send and test | name of the client's model |
    | ``cluster_labels(server_round, state, clients)`` | server, for samplers | clusters, (n,) |
    | ``client_profiles(state, clients)`` | server, for samplers | vectors to compare, (n, d) |

    ``local(client)`` runs all client functions. Override it only if a client does more than train
    the received model once. The arguments are:

    - ``server_round``: facts about the round, such as ``number``, ``num_clients``, ``generator``.
    - ``state``: state of the server between rounds. ``state.models`` has the global models by name
      (most methods have one, named "model"); ``state.tensors`` has further tensors of the method.
    - ``updates``: updates of the participants. An update has ``client_id``, ``num_samples``, the
      trained ``model``, and the ``scalars`` and ``message.tensors`` that the client sent.
    - ``step``: a batch of local training, with the parameters w of the local model
      (``step.parameters``) and w_t of the received model (``step.received``), (P,) each.
    - ``result``: result of local training, with the parameters after training (``result.trained``)
      and before it (``result.received``), (P,) each, the number of steps and the learning rate.

    A model has three flat vectors: ``model.parameters``, (P,), and ``model.buffers`` and
    ``model.counters``, such as those of batch norm. To send or keep tensors besides the model:

    - From the server to a client: ``broadcast`` returns ``Message(models, tensors)``. ``penalty``
      reads the tensors as ``step.tensors``, and ``finish`` as ``received.tensors``.
    - From a client to the server: ``finish`` returns ``ClientOutput(tensors=..., scalars=...)``.
      ``weigh`` and ``aggregate`` read ``update.message.tensors`` and ``update.scalars``.
    - State of a client: ``finish`` returns ``ClientOutput(state=...)``. In the next round of this
      client, ``penalty`` reads it as ``step.client_state``, and ``finish`` as ``client_state``. It
      is empty before the client's first round.
    - State of the server: ``init`` returns ``ServerState(models, tensors)``. ``weigh`` returns the
      new tensors in ``ClientWeights(weights, tensors)``. Server functions read ``state.tensors``.

    Three rules make a run reproducible, and let a method run both in the simulation engine and on
    Flower:

    - A method object stores nothing between calls. All state is passed in and returned.
    - Arguments are never changed in place.
    - ``prepare``, ``calibrate`` and ``penalty`` have no ``if`` on values of tensors, because they
      may run for several clients at once. Autograd computes the gradient of a penalty.

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

        From a file ``mine.py``, the class runs with ``cadis run --method mine.py:EqualDecay``.

        docs/how-to/method.md has a method that keeps states and sends tensors.

    Attributes:
        name: name of the method in options and files; letters, digits and hyphens.
        pools_clients: True for centralized training: one client has the data of all clients.
        needs_head: True if the server reads the updates of the classifier layer (head). A model
            without a classifier layer then raises an error.
        needs_clock: True if the server reads the simulated time that clients need for a round. The
            method then runs only in the simulation engine.
        needs_scalars: names of scalars that a client must send; an update without them is rejected.
        needs_tensors: names of tensors that a client must send; an update without them is rejected.
        scalar_ranges: lowest and highest valid value of scalars that clients send, by name; an
            update with a value outside is rejected. Give one for each name in ``needs_scalars``.
        largest_share: largest weight of a client, as a multiple of an equal share, 1 / k. It limits
            the weights of :meth:`weigh` if ``needs_scalars`` is not empty, because a client could
            otherwise get any weight by what it reports. A client whose share of the samples is
            larger keeps this share. ``inf`` declares that large weights are the point of the
            method, such as those of a client that is alone in its cluster.
        needs_representation: True if clients read ``representation``, the inputs of the classifier
            layer. A model without a classifier layer then raises an error.
        needs_class_outputs: True if the model must have one output per class.
        label: name for tables and figures; by default the name of the class.
        about: paper, sent data and kept state of the method, which ``cadis methods`` lists.
        default_parts: other parts that the method uses if the user does not choose them, by kind,
            such as ``{"sampler": "clusters"}``.
    """

    name: ClassVar[str]
    pools_clients: ClassVar[bool] = False
    needs_head: ClassVar[bool] = False
    needs_clock: ClassVar[bool] = False
    needs_scalars: ClassVar[tuple[str, ...]] = ()
    needs_tensors: ClassVar[tuple[str, ...]] = ()
    scalar_ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}
    largest_share: ClassVar[float] = 2.0
    needs_representation: ClassVar[bool] = False
    needs_class_outputs: ClassVar[bool] = False
    label: ClassVar[str] = ""
    about: ClassVar[About] = About()
    default_parts: ClassVar[Mapping[str, str]] = {}

    @property
    def finds_clusters(self) -> bool:
        """True if :meth:`cluster_labels` returns clusters, which some samplers need."""
        return False

    @property
    def has_profiles(self) -> bool:
        """Server: True if :meth:`client_profiles` compares clients, which some samplers need."""
        return False

    @property
    def needs_model_outputs(self) -> bool:
        """True if clients call :meth:`prepare`, which costs a forward pass over their data."""
        return False

    def local(self, client: LocalClient) -> ClientOutput:
        """Client: train the received model on the client's data.

        Called once per round and participant. The default calls :meth:`prepare` if
        :attr:`needs_model_outputs` is True, trains with :meth:`penalty`, :meth:`calibrate` and
        :meth:`epoch_order`, and then calls :meth:`finish`. An override may train or test several
        models, as IFCA does, and usually ends with :meth:`collect_output`.

        Args:
            client: the participant. ``client.received`` is the message of the server,
                ``client.state`` the state of the client; ``client.train``,
                ``client.compute_outputs`` and ``client.compute_loss`` use the client's data.

        Returns:
            The trained models, tensors and scalars to send, and the state that the client keeps.
        """
        model = client.received.model
        extras = BatchExtras()
        if self.needs_model_outputs:
            extras = self.prepare(client.compute_outputs(model))
        result = client.train(model, self.penalty, extras, self.calibrate, self.epoch_order)
        return self.collect_output(client, extras, result)

    def collect_output(
        self, client: LocalClient, extras: BatchExtras, result: LocalResult
    ) -> ClientOutput:
        """Client: call :meth:`finish`, and add the trained model and the scalars to its output.

        Not meant to be overridden; :meth:`local` ends with it.

        Args:
            client: the participant.
            extras: output of :meth:`prepare`, whose scalars are sent.
            result: output of ``client.train``.

        Returns:
            The output of :meth:`finish` with the trained model, the scalars of ``extras`` and the
            scalar "train_loss".
        """
        output = self.finish(result, client.received, client.state)
        scalars = {key: float(value) for key, value in extras.scalars.items()}
        scalars |= {"train_loss": result.loss, **output.scalars}
        models = {client.received.model_name: result.model}
        return replace(output, scalars=scalars, models=models)

    def prepare(self, outputs: ModelOutputs) -> BatchExtras:
        """Client: compute values from the outputs of the received model, before training.

        Called once per round, only if :attr:`needs_model_outputs` is True. The default computes
        nothing. Example: ``return BatchExtras(scalars={"received_loss": outputs.loss})`` sends the
        loss of the received model to the server.

        Args:
            outputs: logits, representations, labels and mean loss of the received model for all n
                samples of the client.

        Returns:
            ``BatchExtras(per_sample, scalars)``. ``per_sample`` has tensors with one row per
            sample, (n, ...); :meth:`penalty` and :meth:`calibrate` get the rows of their batch as
            ``step.per_sample``. ``scalars`` has 0-dimensional tensors to send to the server.
        """
        del outputs
        return BatchExtras()

    def penalty(self, step: Step) -> Tensor | None:
        """Client: return the term that is added to the mean loss of a batch.

        Called for each batch. The default adds nothing. The tensors of the step have the shapes of
        one client: if several clients are trained at once, this function is called through
        ``torch.func.vmap``. Exceptions are the built-in penalties that
        :mod:`cadis.training.fast.closed_forms` lists: they are called once with all clients, like
        :meth:`calibrate`.

        Args:
            step: the batch. ``step.parameters`` are the parameters w of the local model, (P,),
                ``step.received`` the parameters w_t of the received model, (P,), ``step.logits``
                the outputs, (b, outputs), and ``step.labels`` the labels, (b,).

        Returns:
            A scalar tensor that autograd can differentiate; None adds nothing.
        """
        del step
        return None

    def calibrate(self, step: Step) -> Tensor:
        """Client: return the logits that the loss of a batch is computed from.

        Called for each batch. The default returns the logits of the model. If several clients are
        trained at once, this function is called once with all of them (unlike :meth:`penalty`): the
        first dimension of each tensor of the step is the client. Index from the end, so that the
        code works in both cases: ``step.class_counts[..., None, :]`` has the shape (..., 1,
        classes) and can be added to the logits.

        Args:
            step: the batch; ``step.logits`` has the shape (..., b, outputs).

        Returns:
            Logits of the same shape, (..., b, outputs).
        """
        return step.logits

    def epoch_order(self, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Client: return the indices of the samples of an epoch, in the order of training.

        Called at the start of each epoch. The default is a random permutation of all samples.

        Args:
            labels: labels of the client's n samples, (n,).
            generator: random generator of this client and round.

        Returns:
            Indices of samples, (n,), int64. A sample may occur several times or not at all.
        """
        return torch.randperm(len(labels), generator=generator)

    def finish(
        self, result: LocalResult, received: Message, client_state: TensorState
    ) -> ClientOutput:
        """Client: return the data to send besides the model, and the state to keep.

        Called once per round after training. The default sends only the model and keeps the state
        unchanged.

        Args:
            result: result of the training: ``trained`` and ``received`` parameters, (P,) each,
                number of ``steps``, learning rate ``lr`` and mean ``loss``.
            received: message of the server, with its ``models``, ``tensors`` and ``scalars``.
            client_state: tensors that this client kept from its last round; empty at first.

        Returns:
            ``ClientOutput(state, tensors, scalars)``: the state to keep, and flat tensors and
            numbers to send. :meth:`local` adds the trained model.
        """
        del result, received
        return ClientOutput(client_state)

    def init(self, model: ModelState, generator: torch.Generator) -> ServerState:
        """Server: return the state of the server before the first round.

        Called once per run. By default the state has one model, named "model", and no tensors.

        Args:
            model: the initial model.
            generator: random generator, for example to draw several initial models.

        Returns:
            ``ServerState(models, tensors)``: the global models by name, and the tensors that the
            method keeps between rounds.
        """
        del generator
        return ServerState({"model": model})

    def eligible_clients(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Sequence[ClientId]:
        """Server: return the clients that the sampler may choose from.

        Called at the start of each round. The default returns all available clients.

        Args:
            server_round: facts about the round, such as its number and random generator.
            state: global models by name, and tensors that the method keeps.
            clients: ids of the clients that are available in this round.

        Returns:
            A subset of ``clients``, in the same order.
        """
        del server_round, state
        return clients

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        """Server: return the message for one participant.

        Called for each participant of a round. The default sends the model that the client uses.

        Args:
            server_round: facts about the round, such as its number and random generator.
            state: global models by name, and tensors that the method keeps.
            client: id of the participant.

        Returns:
            ``Message(models, tensors, scalars)``. The client gets the tensors, which must be flat,
            as ``step.tensors``.
        """
        del server_round
        name = self.model_name_for(client, state)
        return Message({name: state.models[name]})

    def model_name_for(self, client: ClientId, state: ServerState) -> str:
        """Server: return the name of the model that a client uses.

        Called to send models and to test them, also for clients that never took part. The default
        returns the name of the first model.

        Args:
            client: id of any client of the federation.
            state: global models by name, and tensors that the method keeps.

        Returns:
            A key of ``state.models``.
        """
        del client
        return next(iter(state.models))

    def cluster_labels(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Tensor:
        """Server: return the cluster of each client.

        Called in each round if the sampler uses clusters. The default finds no clusters.

        Args:
            server_round: facts about the round, such as its number and random generator.
            state: global models by name, and tensors that the method keeps.
            clients: ids of n clients.

        Returns:
            Cluster labels, (n,), int64; -1 for a client whose cluster is not known.
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
        """Server: return the weight of each update in the weighted mean of the models.

        Called once per round, by :meth:`aggregate`. The default weight of client i is n_i / N: its
        number of samples, divided by the number of samples of all participants.

        Args:
            server_round: facts about the round, such as its number and random generator.
            updates: the k >= 1 valid updates of the round; updates with NaN are already rejected.
            state: global models by name, and tensors that the method keeps.

        Returns:
            ``ClientWeights(weights, tensors, report)``: weights, (k,), not negative, with sum 1;
            the tensors that the server keeps for the next round; named arrays for the report.
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
            server_round: facts about the round, such as its number and random generator.
            updates: the k >= 1 valid updates of the round; updates with NaN are already rejected.
            state: global models by name, and tensors that the method keeps.

        Returns:
            ``Aggregation(models, tensors, weights, report, clock)``: the aggregated models by name,
            the tensors that the server keeps for the next round, the weight of each update, (k,),
            named arrays for the report, and the simulated time at the end of the round (None: when
            the slowest participant has finished).
        """
        client_weights = self.weigh(server_round, updates, state)
        weights = self.limit_reported_weights(updates, client_weights.weights)
        models, weights = average_updates(updates, weights)
        return Aggregation(models, client_weights.tensors, weights, client_weights.report)

    def limit_reported_weights(self, updates: Sequence[ClientUpdate], weights: Tensor) -> Tensor:
        """Server: limit weights that depend on scalars of the clients; see ``largest_share``.

        Not meant to be overridden. :meth:`aggregate` calls it; an override of :meth:`aggregate`
        should do so, too, if its weights depend on ``update.scalars``.

        Args:
            updates: the updates of the round.
            weights: weights with sum 1, (k,).

        Returns:
            Weights with sum 1, (k,); unchanged if they are within the limit.
        """
        if not self.needs_scalars:
            return weights
        shares = compute_sample_weights([update.num_samples for update in updates])
        return limit_weights(weights, shares, self.largest_share)
