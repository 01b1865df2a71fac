"""FedDRL (Nguyen et al., 2022): an agent on the server learns how much each client is to count."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.aggregation import example_weights
from cadis.algorithm.method import ServerRound, ServerState, Weighing
from cadis.algorithm.methods.fedcav import SendsReceivedLoss
from cadis.algorithm.methods.feddrl.ddpg import (
    Agent,
    Learning,
    Replay,
    act,
    ddpg_step,
    from_tensors,
    to_tensors,
)
from cadis.rng import one_thread
from cadis.types import ClientUpdate, TensorState

_LARGEST_LOSS = 10.0  # what any larger loss is taken for, so that none can upset the agent
_CAPACITY = 1000  # transitions that are remembered


@dataclass(frozen=True)
class FedDRL(SendsReceivedLoss):
    """Weights that an agent on the server learns, DDPG, from the losses that they lead to.

    State: of each of the k participants the received model's loss, the loss in training, and n_i.
    Action: mu_i and sigma_i of a Gaussian each; the weights are the softmax of a draw of each.
    Reward: -(mean + (max - min)) of the participants' losses by the model that comes of it, which
    they tell in the round that follows.

    Departure: only the paper's online part, one agent that learns as the federation does; its
    second stage, agents of several federations whose experience trains one more before a run, is
    no part of a run. Experience is drawn evenly, not by its temporal difference: there is little of
    it. The loss after training is the mean over its batches, since another pass would cost as much
    as the first. Participants stand in the order of their losses, as theirs in a round is chance.
    What the critic sees of the action are the draws, not their means: it cannot learn from what it
    does not see. Rewards are standardised, and losses above 10 count as 10. The number k is that of
    the first round; where fewer take part, the last places are zeros, and where more do, they weigh
    n_i / N.

    Attributes:
        reach: mu_i lies between 0 and this: weights differ by exp(reach) at the most, but for
            chance.
        exploration: beta: sigma_i is at the most this part of mu_i.
        discount: gamma, what later rounds count for the agent.
        actor_lr: learning rate of the actor; ten times as much leads it astray while it has seen
            little.
        learning_steps: steps that the agent takes in a round.
    """

    name: ClassVar[str] = "feddrl"
    about: ClassVar[About] = About(
        kind="weights on the server",
        paper="Nguyen et al., 2022",
        sends="the received model's loss",
        server_memory="an agent and 1,000 rounds of losses",
    )
    needs_scalars: ClassVar[tuple[str, ...]] = ("received_loss", "train_loss")
    reach: Annotated[float, Gt(0)] = 2.0
    exploration: Annotated[float, Gt(0), Le(1)] = 0.5
    discount: Annotated[float, Ge(0), Lt(1)] = 0.9
    actor_lr: Annotated[float, Gt(0)] = 1e-4
    learning_steps: Annotated[int, Ge(0)] = 4

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Weighing:
        """Learn from what came of the last round, then act."""
        facts = facts_of(updates)  # (number, 3)
        generator, memory = server_round.generator, state.memory
        places = int(memory["places"]) if memory else len(updates)
        agent, replay = self._recall(memory, places, generator)
        if len(updates) > places:
            weights = example_weights([update.num_examples for update in updates])
            return Weighing(weights, _memory(places, agent, replay))
        order = facts[:, 0].argsort(descending=True, stable=True)
        empty = facts.new_zeros(places - len(updates), 3)
        observed = torch.cat([facts[order], empty]).flatten()  # (3 k,)
        if "state" in memory:
            done = memory["state"], memory["action"]
            replay = replay.add(*done, reward_of(facts[:, 0]), observed, capacity=_CAPACITY)
            agent = self._learned(agent, replay, generator)
        outputs = act(agent.actor, observed, self._learning.hidden, 2 * places)
        means, deviations = self.policy(outputs).split(places)
        draws = means + deviations * torch.randn(places, generator=generator)  # (k,)
        weights = torch.empty(len(updates), dtype=torch.float64)
        weights[order] = torch.softmax(draws[: len(updates)].double(), dim=0)
        last = {"state": observed, "action": torch.cat([draws, deviations])}
        return Weighing(weights, {**_memory(places, agent, replay), **last})

    def policy(self, outputs: Tensor) -> Tensor:
        """From what an actor says to mu in (0, reach) and sigma in (0, beta mu), (..., 2 k)."""
        means, deviations = outputs.sigmoid().chunk(2, dim=-1)
        means = self.reach * means
        return torch.cat([means, self.exploration * means * deviations], dim=-1)

    @property
    def _learning(self) -> Learning:
        return Learning(discount=self.discount, actor_lr=self.actor_lr)

    def _recall(
        self, memory: TensorState, places: int, generator: torch.Generator
    ) -> tuple[Agent, Replay]:
        """The agent and its experience; new ones in the first round."""
        if memory:
            return from_tensors(Agent, memory, "agent"), from_tensors(Replay, memory, "replay")
        sizes = 3 * places, 2 * places
        return Agent.new(*sizes, self._learning.hidden, generator), Replay.new(*sizes)

    @one_thread()
    def _learned(self, agent: Agent, replay: Replay, generator: torch.Generator) -> Agent:
        """The agent after the steps of a round."""
        experience = replay.standardised()
        for _ in range(self.learning_steps):
            batch = experience.drawn(self._learning.batch, generator)
            agent = ddpg_step(agent, batch, self.policy, self._learning)
        return agent


def facts_of(updates: Sequence[ClientUpdate]) -> Tensor:
    """The received model's loss, the loss in training, and n_i / N times k, (k, 3)."""
    losses = [[u.scalars["received_loss"], u.scalars["train_loss"]] for u in updates]
    bounded = torch.tensor(losses).nan_to_num(nan=_LARGEST_LOSS).clamp(0, _LARGEST_LOSS)
    shares = len(updates) * example_weights([update.num_examples for update in updates])
    return torch.cat([bounded, shares[:, None].float()], dim=1)


def reward_of(losses: Tensor) -> Tensor:
    """-(mean + (max - min)) of the participants' losses: good for all, and alike for all, ()."""
    return -(losses.mean() + losses.max() - losses.min())


def _memory(places: int, agent: Agent, replay: Replay) -> dict[str, Tensor]:
    tensors = {**to_tensors(agent, "agent"), **to_tensors(replay, "replay")}
    return {"places": torch.tensor(places), **tensors}
