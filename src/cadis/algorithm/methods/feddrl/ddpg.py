"""DDPG (Lillicrap et al., 2016): an actor that acts on a state, and a critic that learns its worth.

Everything is a pure function of tensors: an agent goes in, and the agent that has learned comes
out. A network is one flat vector, so that a step of Adam or of a target network is one line.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

Policy: TypeAlias = Callable[[Tensor], Tensor]
"""What actions the outputs of an actor mean, (..., actions) of (..., actions)."""

_BETAS = (0.9, 0.999)  # of Adam
_LAST = 0.1  # how small the last layer of a new network is, so that all is the same at first


@dataclass(frozen=True)
class Learning:
    """How an agent learns."""

    hidden: int = 64  # width of the two hidden layers
    actor_lr: float = 1e-4  # Adam's learning rate of the actor
    critic_lr: float = 1e-3  # of the critic
    discount: float = 0.9  # gamma, what the worth of a later state counts
    soft: float = 0.02  # rho, how far target networks go to the others in a step
    batch: int = 32  # transitions that a step looks at


@dataclass(frozen=True)
class Agent:
    """The networks, and what Adam remembers of them."""

    actor: Tensor  # from states to actions, (A,)
    critic: Tensor  # from states and actions to their worth Q, (C,)
    actor_target: Tensor  # the slow copy that the worth of later states is computed with, (A,)
    critic_target: Tensor  # likewise, (C,)
    actor_moments: Tensor  # Adam's means of gradients and of their squares, (2, A)
    critic_moments: Tensor  # likewise, (2, C)
    steps: Tensor  # how many were taken, ()

    @classmethod
    def new(cls, state: int, action: int, hidden: int, generator: torch.Generator) -> "Agent":
        """An agent that knows nothing yet, for states and actions of so many numbers."""
        actor = _new_network([state, hidden, hidden, action], generator)
        critic = _new_network([state + action, hidden, hidden, 1], generator)
        moments = torch.zeros(2, len(actor)), torch.zeros(2, len(critic))
        return cls(actor, critic, actor.clone(), critic.clone(), *moments, torch.tensor(0))


@dataclass(frozen=True)
class Replay:
    """What was done, and what came of it: n transitions, the latest last."""

    states: Tensor  # (n, states)
    actions: Tensor  # (n, actions)
    rewards: Tensor  # (n,)
    following: Tensor  # the states after them, (n, states)

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


def critic_loss(agent: Agent, batch: Replay, policy: Policy, learning: Learning) -> Tensor:
    """The mean squared error of Q(s, a) from r + gamma Q'(s', mu'(s'))."""
    hidden, actions = learning.hidden, batch.actions.shape[-1]
    with torch.no_grad():
        later = policy(act(agent.actor_target, batch.following, hidden, actions))
        value = worth(agent.critic_target, batch.following, later, hidden)
        target = batch.rewards + learning.discount * value
    return F.mse_loss(worth(agent.critic, batch.states, batch.actions, hidden), target)


def ddpg_step(agent: Agent, batch: Replay, policy: Policy, learning: Learning) -> Agent:
    """Do one DDPG update: critic regression, policy gradient, soft target update."""
    hidden, actions = learning.hidden, batch.actions.shape[-1]
    steps = agent.steps + 1
    free = agent.critic.detach().requires_grad_()
    (grad,) = torch.autograd.grad(
        critic_loss(replace(agent, critic=free), batch, policy, learning), free
    )
    critic, critic_moments = _adam(
        agent.critic, grad, agent.critic_moments, int(steps), learning.critic_lr
    )
    free = agent.actor.detach().requires_grad_()
    chosen = policy(act(free, batch.states, hidden, actions))
    (grad,) = torch.autograd.grad(-worth(critic, batch.states, chosen, hidden).mean(), free)
    actor, actor_moments = _adam(
        agent.actor, grad, agent.actor_moments, int(steps), learning.actor_lr
    )
    actor_target = torch.lerp(agent.actor_target, actor, learning.soft)
    critic_target = torch.lerp(agent.critic_target, critic, learning.soft)
    return Agent(actor, critic, actor_target, critic_target, actor_moments, critic_moments, steps)


def _adam(
    vector: Tensor, grad: Tensor, moments: Tensor, step: int, lr: float
) -> tuple[Tensor, Tensor]:
    """A step of Adam (Kingma and Ba, 2015), and its moments after it."""
    first = torch.lerp(grad, moments[0], _BETAS[0])
    second = torch.lerp(grad.square(), moments[1], _BETAS[1])
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


_Part = TypeVar("_Part", Agent, Replay)


def to_tensors(part: Agent | Replay, prefix: str) -> dict[str, Tensor]:
    """Plain tensors, for a checkpoint."""
    return {f"{prefix}.{name}": tensor for name, tensor in vars(part).items()}


def from_tensors(kind: type[_Part], memory: Mapping[str, Tensor], prefix: str) -> _Part:
    """The inverse of :func:`to_tensors`."""
    return kind(**{field.name: memory[f"{prefix}.{field.name}"] for field in fields(kind)})
