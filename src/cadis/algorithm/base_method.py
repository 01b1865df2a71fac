"""Both halves as plain federated averaging has them; a method overrides what it changes."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.aggregation import example_weights, mean_state
from cadis.algorithm.method import (
    Aggregation,
    Calibration,
    EpochOrder,
    Finished,
    LocalClient,
    LocalView,
    Prepared,
    Reply,
    ServerRound,
    ServerState,
    Slopes,
    Step,
    Training,
    Weighing,
)
from cadis.errors import CadisError
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState


class Defaults:
    """Plain local training, and the mean of the models by number of samples.

    A method overrides, on the client, ``prepare``, ``penalty`` and ``finish``, or the whole of
    ``local``; besides, ``calibrate`` and ``epoch_order``, if the loss itself or the samples of an
    epoch are others; on the server ``weigh``, or the whole of ``aggregate``. What it overrides on
    the client, but for ``local``, never branches on a tensor's value, so that several clients can
    be trained at once.

    Attributes:
        penalty_stacks: whether the penalty itself takes several clients at once: every tensor of a
            step with a dimension of clients before its own, and a number for each of them as the
            result. Others are called by ``torch.func.vmap``, which takes longer.
        needs_representation: whether clients look at what goes into the classifier layer, which
            the model must then have: ``representation`` of a step or a view.
        needs_class_outputs: whether the model must have an output for each class.
        about: facts for whoever looks for it.
        slopes_known: whether :meth:`penalty_slopes` tells the gradient of the penalty, which then
            need not be found by differentiating; for a penalty on representations alone.
    """

    pools_clients: ClassVar[bool] = False
    compares_heads: ClassVar[bool] = False
    needs_clock: ClassVar[bool] = False
    penalty_stacks: ClassVar[bool] = False
    slopes_known: ClassVar[bool] = False
    needs_scalars: ClassVar[tuple[str, ...]] = ()
    needs_tensors: ClassVar[tuple[str, ...]] = ()
    goes_with: ClassVar[Mapping[str, str]] = {}
    needs_representation: ClassVar[bool] = False
    needs_class_outputs: ClassVar[bool] = False
    about: ClassVar[About] = About()

    @property
    def finds_clusters(self) -> bool:
        """Server: whether :meth:`clusters_of` tells anything."""
        return False

    @property
    def needs_view(self) -> bool:
        """Whether :meth:`prepare` wants a view of the data; it costs a pass over them."""
        return False

    def local(self, client: LocalClient) -> Reply:
        """Train the received model with this method's penalty."""
        model = client.received.model
        prepared = self.prepare(client.view(model)) if self.needs_view else Prepared()
        hooks = *self.loss_hooks(), self._known_slopes()
        training = client.train(model, self.penalty, prepared, *hooks)
        return self.reply(client, prepared, training)

    def reply(self, client: LocalClient, prepared: Prepared, training: Training) -> Reply:
        """Client: what to send and what to remember, of what local training came to."""
        finished = self.finish(training, client.received, client.memory)
        scalars = {key: float(value) for key, value in prepared.scalars.items()}
        scalars |= {"train_loss": training.loss, **finished.scalars}
        name = client.received.model_name
        return Reply(Message({name: training.model}, finished.tensors, scalars), finished.memory)

    def loss_hooks(self) -> tuple[Calibration | None, EpochOrder | None]:
        """Client: :meth:`calibrate` and :meth:`epoch_order`, each None unless it is overridden."""
        kind = type(self)
        calibrates = kind.calibrate is not Defaults.calibrate
        orders = kind.epoch_order is not Defaults.epoch_order
        return self.calibrate if calibrates else None, self.epoch_order if orders else None

    def _known_slopes(self) -> Slopes | None:
        """Client: :meth:`parameter_slopes`, if it is overridden, and is that of the penalty."""
        known = type(self).parameter_slopes is not Defaults.parameter_slopes
        return self.parameter_slopes if known and self.is_of_penalty("parameter_slopes") else None

    def is_of_penalty(self, name: str) -> bool:
        """Whether what a class says of its penalty under this name is said of the one it has.

        A class that derives from it and has a penalty of its own says nothing of that.
        """
        line = type(self).__mro__
        said, defined = (
            next(place for place, kind in enumerate(line) if each in vars(kind))
            for each in (name, "penalty")
        )
        return said <= defined

    def prepare(self, view: LocalView) -> Prepared:  # noqa: ARG002
        """Client: look at the received model and the own data before training."""
        return Prepared()

    def penalty(self, step: Step) -> Tensor | None:  # noqa: ARG002
        """Client: the term that is added to the mean loss of a batch; here there is none."""
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

    def parameter_slopes(self, step: Step) -> Tensor:
        """Client: the gradient of a penalty on parameters alone by them, (P,), if it is known.

        It is asked for instead of :meth:`penalty` where clients are trained one by one: of a large
        model, differentiating costs several times what the gradient itself does.
        """
        return torch.zeros_like(step.parameters)

    def penalty_slopes(self, step: Step) -> Tensor | None:  # noqa: ARG002
        """Client: the gradient of the penalty by the representations, (m, b, d), if it is known.

        It is asked for instead of :meth:`penalty` where several clients are trained at once: every
        tensor of the step has a dimension of clients before its own.
        """
        return None

    def finish(
        self,
        training: Training,  # noqa: ARG002
        received: Message,  # noqa: ARG002
        memory: TensorState,
    ) -> Finished:
        """Client: what to remember, and what to send besides the model; here nothing new."""
        return Finished(memory)

    def init(
        self,
        model: ModelState,
        generator: torch.Generator,  # noqa: ARG002
    ) -> ServerState:
        """Server: one model."""
        return ServerState({"model": model})

    def candidates(
        self,
        server_round: ServerRound,  # noqa: ARG002
        state: ServerState,  # noqa: ARG002
        clients: Sequence[ClientId],
    ) -> Sequence[ClientId]:
        """Server: everybody who is there may take part."""
        return clients

    def broadcast(
        self,
        server_round: ServerRound,  # noqa: ARG002
        state: ServerState,
        client: ClientId,
    ) -> Message:
        """Server: the model that the client uses."""
        name = self.model_of(client, state)
        return Message({name: state.models[name]})

    def model_of(self, client: ClientId, state: ServerState) -> str:  # noqa: ARG002
        """Server: everybody uses the first model."""
        return next(iter(state.models))

    def clusters_of(
        self,
        server_round: ServerRound,  # noqa: ARG002
        state: ServerState,  # noqa: ARG002
        clients: Sequence[ClientId],
    ) -> Tensor:
        """Server: nobody's cluster is known."""
        return torch.full((len(clients),), -1)

    def weigh(
        self,
        server_round: ServerRound,  # noqa: ARG002
        updates: Sequence[ClientUpdate],
        state: ServerState,
    ) -> Weighing:
        """Server: how much each update counts; here n_i / N over the participants."""
        weights = example_weights([update.num_examples for update in updates])
        return Weighing(weights, state.memory)

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """Server: the weighted mean of the models, of those who trained each of them."""
        weighing = self.weigh(server_round, updates, state)
        models, weights = weighted_models(updates, weighing.weights)
        return Aggregation(models, weighing.memory, weights, weighing.report)


def weighted_models(
    updates: Sequence[ClientUpdate], weights: Tensor
) -> tuple[dict[str, ModelState], Tensor]:
    """The weighted mean of each model over those who trained it, and the weights in it, (k,).

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
