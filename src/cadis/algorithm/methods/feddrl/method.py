"""FedDRL: aggregation weights learned with deep reinforcement learning.

Problem: with clusters of similar clients, no fixed rule for the weights is good for all
federations.

Nguyen et al., ICPP 2022, https://arxiv.org/abs/2208.02442
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.aggregation import compute_sample_weights
from cadis.algorithm.method import ClientWeights, ServerRound, ServerState
from cadis.algorithm.methods.fedcav import ReceivedLossMethod
from cadis.algorithm.methods.feddrl.ddpg import (
    Agent,
    Hyperparameters,
    ReplayBuffer,
    compute_actor_outputs,
    ddpg_step,
    from_tensors,
    to_tensors,
)
from cadis.rng import use_one_thread
from cadis.types import ClientUpdate, TensorState

_MAX_LOSS = 10.0  # larger losses are clipped, so that one client cannot dominate the rewards
_CAPACITY = 1000  # largest number of transitions in the replay buffer


@dataclass(frozen=True)
class FedDRL(ReceivedLossMethod):
    """Weights chosen by a reinforcement learning agent that learns from the clients' losses.

    Use it for long runs: the agent needs hundreds of rounds to learn.

    The agent is trained on the server with DDPG. Its state has three numbers per participant: the
    loss of the received model, the training loss, and the number of samples n_i. Its action is one
    Gaussian per participant, with mean mu_i and standard deviation sigma_i. One number is drawn
    from each Gaussian, and the softmax of these numbers gives the weights. The reward is
    ``-(mean_i l_i + max_i l_i - min_i l_i)``, where l_i are the losses of the new model, which the
    participants of the next round send.

    Departure from the paper: only the online stage is implemented, in which one agent learns during
    the run. The second stage, which trains an agent offline on the experience of several runs, is
    left out. Transitions are drawn uniformly, not according to their temporal difference, because
    there are few. The training loss is the mean over the batches, because another pass over the
    data would be expensive. Participants are sorted by their losses, because their order in a round
    is random. The critic gets the drawn numbers as actions, not their means, because the weights
    depend on the drawn numbers. Rewards are standardized, and losses above 10 count as 10. The
    agent is built for the number of participants k of the first round. If a round has fewer
    participants, the last entries of the state are zeros. If a round has more, the weights are
    n_i / N.

    The agent may give a client more than twice an equal share (``largest_share``), because large
    weights are its means to learn. What clients report does not change by how much: losses are
    limited to the range from 0 to 10, and ``reach`` limits the weights.

    Attributes:
        reach: upper limit of mu_i, the number that the agent's actor (a neural network on the
            server) computes for client i. The weights are the softmax of mu_i plus random noise.
            Without the noise, the largest weight is less than exp(reach) times the smallest.
        exploration: largest standard deviation of the random noise added to mu_i, as a fraction of
            mu_i.
        discount: factor by which a reward counts less for each round that it lies in the future.
        actor_lr: learning rate of the actor.
        learning_steps: training steps of the agent's networks in each round.
    """

    name: ClassVar[str] = "feddrl"
    about: ClassVar[About] = About(
        topic="aggregation weights",
        paper=Paper(
            title="FedDRL: Deep Reinforcement Learning-based Adaptive Aggregation for Non-IID Data "
            "in Federated Learning",
            authors="Nang Hung Nguyen, Phi Le Nguyen, Duc Long Nguyen, Trung Thanh Nguyen, "
            "Thuy Dung Nguyen, Huy Hieu Pham, Truong Thao Nguyen",
            venue="ICPP",
            year=2022,
            link="https://arxiv.org/abs/2208.02442",
        ),
        sends="the received model's loss",
        server_state="an agent and the losses of 1,000 rounds",
    )
    needs_scalars: ClassVar[tuple[str, ...]] = ("received_loss", "train_loss")
    largest_share: ClassVar[float] = inf
    reach: Annotated[float, Gt(0)] = 2.0
    exploration: Annotated[float, Gt(0), Le(1)] = 0.5
    discount: Annotated[float, Ge(0), Lt(1)] = 0.9
    actor_lr: Annotated[float, Gt(0)] = 1e-4
    learning_steps: Annotated[int, Ge(0)] = 4

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> ClientWeights:
        """Train the agent on the transition of the last round, then draw weights."""
        features = compute_features(updates)  # (participants, 3)
        generator, tensors = server_round.generator, state.tensors
        size = int(tensors["places"]) if tensors else len(updates)  # k
        agent, buffer = self._load_agent(tensors, size, generator)
        if len(updates) > size:
            weights = compute_sample_weights([update.num_samples for update in updates])
            return ClientWeights(weights, _to_state(size, agent, buffer))
        order = features[:, 0].argsort(descending=True, stable=True)
        padding = features.new_zeros(size - len(updates), 3)
        observation = torch.cat([features[order], padding]).flatten()  # (3 k,)
        if "state" in tensors:
            last = tensors["state"], tensors["action"]
            reward = compute_reward(features[:, 0])
            buffer = buffer.add(*last, reward, observation, capacity=_CAPACITY)
            agent = self._train_agent(agent, buffer, generator)
        hidden = self._hyperparameters.hidden
        outputs = compute_actor_outputs(agent.actor, observation, hidden, 2 * size)
        means, deviations = self.to_actions(outputs).split(size)
        draws = means + deviations * torch.randn(size, generator=generator)  # (k,)
        weights = torch.empty(len(updates), dtype=torch.float64)
        weights[order] = torch.softmax(draws[: len(updates)].double(), dim=0)
        new = {"state": observation, "action": torch.cat([draws, deviations])}
        return ClientWeights(weights, {**_to_state(size, agent, buffer), **new})

    def to_actions(self, outputs: Tensor) -> Tensor:
        """Map actor outputs to mu in (0, reach) and sigma in (0, exploration * mu), (..., 2 k)."""
        means, deviations = outputs.sigmoid().chunk(2, dim=-1)
        means = self.reach * means
        return torch.cat([means, self.exploration * means * deviations], dim=-1)

    @property
    def _hyperparameters(self) -> Hyperparameters:
        return Hyperparameters(discount=self.discount, actor_lr=self.actor_lr)

    def _load_agent(
        self, tensors: TensorState, size: int, generator: torch.Generator
    ) -> tuple[Agent, ReplayBuffer]:
        """Restore the agent and its replay buffer; initialize them in the first round."""
        if tensors:
            agent = from_tensors(Agent, tensors, "agent")
            return agent, from_tensors(ReplayBuffer, tensors, "replay")
        sizes = 3 * size, 2 * size
        agent = Agent.initialize(*sizes, self._hyperparameters.hidden, generator)
        return agent, ReplayBuffer.empty(*sizes)

    @use_one_thread()
    def _train_agent(self, agent: Agent, buffer: ReplayBuffer, generator: torch.Generator) -> Agent:
        """Do the training steps of a round."""
        transitions = buffer.standardize_rewards()
        for _ in range(self.learning_steps):
            batch = transitions.sample(self._hyperparameters.batch, generator)
            agent = ddpg_step(agent, batch, self.to_actions, self._hyperparameters)
        return agent


def compute_features(updates: Sequence[ClientUpdate]) -> Tensor:
    """Return for each client the received model's loss, the training loss, k * n_i / N, (k, 3)."""
    losses = [[u.scalars["received_loss"], u.scalars["train_loss"]] for u in updates]
    clipped = torch.tensor(losses).nan_to_num(nan=_MAX_LOSS).clamp(0, _MAX_LOSS)
    shares = len(updates) * compute_sample_weights([update.num_samples for update in updates])
    return torch.cat([clipped, shares[:, None].float()], dim=1)


def compute_reward(losses: Tensor) -> Tensor:
    """Return -(mean + max - min) of the losses, which is largest for low and similar losses."""
    return -(losses.mean() + losses.max() - losses.min())


def _to_state(size: int, agent: Agent, buffer: ReplayBuffer) -> dict[str, Tensor]:
    tensors = {**to_tensors(agent, "agent"), **to_tensors(buffer, "replay")}
    return {"places": torch.tensor(size), **tensors}
