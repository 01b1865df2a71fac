"""DDPG (Lillicrap et al., 2016): an actor that acts on a state, and a critic that learns its worth.

Everything is a pure function of tensors: an agent goes in, and the agent that has learned comes
out. A network is one flat vector, so that a step of Adam or of a target network is one line.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

Policy: TypeAlias = Callable[[Tensor], Tensor]
"""What actions the outputs of an actor mean, (..., actions) of (..., actions)."""

_BETAS = (0.9, 0.999)
"""Of Adam."""

_LAST = 0.1
"""By how much the last layer of a new network is smaller than usual: all is the same at first."""


@dataclass(frozen=True)
class Learning:
    """How an agent learns.

    Attributes:
        hidden: width of the two hidden layers.
        actor_lr: Adam's learning rate of the actor.
        critic_lr: of the critic.
        discount: gamma, what the worth of a later state counts.
        soft: rho, how far target networks go to the others in a step.
        batch: transitions that a step looks at.
    """

    hidden: int = 64
    actor_lr: float = 1e-4
    critic_lr: float = 1e-3
    discount: float = 0.9
    soft: float = 0.02
    batch: int = 32


@dataclass(frozen=True)
class Agent:
    """The networks, and what Adam remembers of them.

    Attributes:
        actor: from states to actions, (A,).
        critic: from states and actions to their worth Q, (C,).
        actor_target: the slow copy that the worth of later states is told by, (A,).
        critic_target: likewise, (C,).
        actor_moments: Adam's means of gradients and of their squares, (2, A).
        critic_moments: likewise, (2, C).
        steps: how many were taken, ().
    """

    actor: Tensor
    critic: Tensor
    actor_target: Tensor
    critic_target: Tensor
    actor_moments: Tensor
    critic_moments: Tensor
    steps: Tensor

    @classmethod
    def new(cls, state: int, action: int, hidden: int, generator: torch.Generator) -> "Agent":
        """An agent that knows nothing yet, for states and actions of so many numbers."""
        actor = _new_network([state, hidden, hidden, action], generator)
        critic = _new_network([state + action, hidden, hidden, 1], generator)
        moments = torch.zeros(2, len(actor)), torch.zeros(2, len(critic))
        return cls(actor, critic, actor.clone(), critic.clone(), *moments, torch.tensor(0))


@dataclass(frozen=True)
class Replay:
    """What was done, and what came of it: n transitions, the latest last.

    Attributes:
        states: (n, states).
        actions: (n, actions).
        rewards: (n,).
        following: the states after them, (n, states).
    """

    states: Tensor
    actions: Tensor
    rewards: Tensor
    following: Tensor

    @classmethod
    def new(cls, state: int, action: int) -> "Replay":
        """Nothing yet, of states and actions of so many numbers."""
        shapes = (0, state), (0, action), (0,), (0, state)
        return cls(*(torch.zeros(shape) for shape in shapes))

    def add(
        self, state: Tensor, action: Tensor, reward: Tensor, following: Tensor, capacity: int
    ) -> "Replay":
        """With one transition more; of more than so many, the oldest goes."""
        pairs = zip(vars(self).values(), (state, action, reward, following), strict=True)
        return Replay(*(torch.cat([rows, row[None]])[-capacity:] for rows, row in pairs))

    def standardised(self) -> "Replay":
        """The same with rewards of mean 0 and deviation 1, so that any scale can be learned."""
        off = self.rewards - self.rewards.mean()
        return replace(self, rewards=off / (off.square().mean().sqrt() + 1e-6))

    def drawn(self, number: int, generator: torch.Generator) -> "Replay":
        """So many of them at random, each as often as it comes."""
        places = torch.randint(len(self.rewards), (number,), generator=generator)
        return Replay(*(rows[places] for rows in vars(self).values()))


def act(actor: Tensor, states: Tensor, hidden: int, actions: int) -> Tensor:
    """The outputs of an actor, (..., actions), for states, (..., states)."""
    return _network(actor, states, [states.shape[-1], hidden, hidden, actions])


def worth(critic: Tensor, states: Tensor, actions: Tensor, hidden: int) -> Tensor:
    """Q(s, a), (...)."""
    inputs = torch.cat([states, actions], dim=-1)
    return _network(critic, inputs, [inputs.shape[-1], hidden, hidden, 1])[..., 0]


def critic_loss(
    agent: Agent, batch: Replay, policy: Policy, learning: Learning, critic: Tensor | None = None
) -> Tensor:
    """The mean squared error of Q(s, a) from r + gamma Q'(s', mu'(s'))."""
    hidden, actions = learning.hidden, batch.actions.shape[-1]
    with torch.no_grad():
        later = policy(act(agent.actor_target, batch.following, hidden, actions))
        value = worth(agent.critic_target, batch.following, later, hidden)
        target = batch.rewards + learning.discount * value
    found = agent.critic if critic is None else critic
    return F.mse_loss(worth(found, batch.states, batch.actions, hidden), target)


def ddpg_step(agent: Agent, batch: Replay, policy: Policy, learning: Learning) -> Agent:
    """One step: the critic towards its targets, the actor up the critic, the targets behind."""
    hidden, actions = learning.hidden, batch.actions.shape[-1]
    steps = agent.steps + 1
    critic = agent.critic.detach().requires_grad_()
    (slope,) = torch.autograd.grad(critic_loss(agent, batch, policy, learning, critic), critic)
    moved = _adam(agent.critic, slope, agent.critic_moments, int(steps), learning.critic_lr)
    actor = agent.actor.detach().requires_grad_()
    chosen = policy(act(actor, batch.states, hidden, actions))
    (slope,) = torch.autograd.grad(-worth(moved[0], batch.states, chosen, hidden).mean(), actor)
    acting = _adam(agent.actor, slope, agent.actor_moments, int(steps), learning.actor_lr)
    return Agent(
        actor=acting[0],
        critic=moved[0],
        actor_target=torch.lerp(agent.actor_target, acting[0], learning.soft),
        critic_target=torch.lerp(agent.critic_target, moved[0], learning.soft),
        actor_moments=acting[1],
        critic_moments=moved[1],
        steps=steps,
    )


def _adam(
    vector: Tensor, slope: Tensor, moments: Tensor, step: int, lr: float
) -> tuple[Tensor, Tensor]:
    """A step of Adam (Kingma and Ba, 2015) against a slope, and its moments after it."""
    first = torch.lerp(slope, moments[0], _BETAS[0])
    second = torch.lerp(slope.square(), moments[1], _BETAS[1])
    size = (second / (1 - _BETAS[1] ** step)).sqrt() + 1e-8
    return vector - lr / (1 - _BETAS[0] ** step) * first / size, torch.stack([first, second])


def _network(vector: Tensor, inputs: Tensor, widths: Sequence[int]) -> Tensor:
    """The outputs of a network of linear layers with ReLU between them, held as one vector."""
    sizes = [(rows + 1) * columns for rows, columns in pairwise(widths)]
    layers = zip(vector.split(sizes), widths[1:], strict=True)
    for place, (layer, width) in enumerate(layers):
        matrix = layer.view(-1, width)  # the last row is the bias
        inputs = torch.addmm(matrix[-1], inputs.reshape(-1, len(matrix) - 1), matrix[:-1]).view(
            *inputs.shape[:-1], width
        )
        inputs = inputs if place == len(sizes) - 1 else inputs.relu()
    return inputs


def _new_network(widths: Sequence[int], generator: torch.Generator) -> Tensor:
    """A new network: uniform in +-1 / sqrt(inputs), the last layer much smaller."""
    layers = []
    for place, (rows, columns) in enumerate(pairwise(widths)):
        bound = rows**-0.5 * (_LAST if place == len(widths) - 2 else 1)
        layers.append((2 * torch.rand((rows + 1) * columns, generator=generator) - 1) * bound)
    return torch.cat(layers)


def to_tensors(part: Agent | Replay, prefix: str) -> dict[str, Tensor]:
    """Plain tensors, for a checkpoint."""
    return {f"{prefix}.{name}": tensor for name, tensor in vars(part).items()}


def agent_from(memory: Mapping[str, Tensor], prefix: str) -> Agent:
    """The inverse of :func:`to_tensors` of an agent."""
    return Agent(**{field.name: memory[f"{prefix}.{field.name}"] for field in fields(Agent)})


def replay_from(memory: Mapping[str, Tensor], prefix: str) -> Replay:
    """The inverse of :func:`to_tensors` of what was done."""
    return Replay(**{field.name: memory[f"{prefix}.{field.name}"] for field in fields(Replay)})
