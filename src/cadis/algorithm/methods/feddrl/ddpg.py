"""DDPG: deep deterministic policy gradient, as pure functions of tensors.

An actor network chooses actions, and a critic network estimates their value. The parameters of a
network are one flat vector. Functions get an agent and return a new agent.

Lillicrap et al.: Continuous Control with Deep Reinforcement Learning. ICLR 2016.
https://arxiv.org/abs/1509.02971
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

ActionMap: TypeAlias = Callable[[Tensor], Tensor]
"""Function from the outputs of the actor network to valid actions, (..., actions)."""

_BETAS = (0.9, 0.999)  # decay rates of the two moments of Adam
_LAST_LAYER_SCALE = 0.1  # small initial outputs, so that all actions and values are similar


@dataclass(frozen=True)
class Hyperparameters:
    """Hyperparameters of DDPG."""

    hidden: int = 64  # width of the two hidden layers
    actor_lr: float = 1e-4  # learning rate of the actor
    critic_lr: float = 1e-3  # learning rate of the critic
    discount: float = 0.9  # gamma, discount factor of the value of the next state
    target_rate: float = 0.02  # step size of the soft update of the target networks
    batch: int = 32  # transitions per training step


@dataclass(frozen=True)
class Agent:
    """The networks and the state of their optimizers. Checkpoints contain the field names."""

    actor: Tensor  # policy network, from states to actions, (A,)
    critic: Tensor  # value network, from states and actions to Q, (C,)
    actor_target: Tensor  # target network of the actor, (A,)
    critic_target: Tensor  # target network of the critic, (C,)
    actor_moments: Tensor  # first and second moment of Adam, (2, A)
    critic_moments: Tensor  # first and second moment of Adam, (2, C)
    steps: Tensor  # number of training steps

    @classmethod
    def initialize(
        cls, state_size: int, action_size: int, hidden: int, generator: torch.Generator
    ) -> "Agent":
        """Return an agent with random networks."""
        actor = _init_network([state_size, hidden, hidden, action_size], generator)
        critic = _init_network([state_size + action_size, hidden, hidden, 1], generator)
        moments = torch.zeros(2, len(actor)), torch.zeros(2, len(critic))
        return cls(actor, critic, actor.clone(), critic.clone(), *moments, torch.tensor(0))


@dataclass(frozen=True)
class ReplayBuffer:
    """The last transitions (state, action, reward, next state), oldest first; immutable."""

    states: Tensor  # (n, states)
    actions: Tensor  # (n, actions)
    rewards: Tensor  # (n,)
    next_states: Tensor  # (n, states)

    @classmethod
    def empty(cls, state_size: int, action_size: int) -> "ReplayBuffer":
        """Return a buffer without transitions."""
        shapes = (0, state_size), (0, action_size), (0,), (0, state_size)
        return cls(*(torch.zeros(shape) for shape in shapes))

    def add(
        self, state: Tensor, action: Tensor, reward: Tensor, next_state: Tensor, capacity: int
    ) -> "ReplayBuffer":
        """Append a transition, and remove the oldest transition if the buffer is full."""
        pairs = zip(vars(self).values(), (state, action, reward, next_state), strict=True)
        return ReplayBuffer(*(torch.cat([rows, row[None]])[-capacity:] for rows, row in pairs))

    def standardize_rewards(self) -> "ReplayBuffer":
        """Standardize rewards to mean 0 and standard deviation 1."""
        offsets = self.rewards - self.rewards.mean()
        return replace(self, rewards=offsets / (offsets.square().mean().sqrt() + 1e-6))

    def sample(self, count: int, generator: torch.Generator) -> "ReplayBuffer":
        """Draw transitions uniformly, with replacement."""
        rows = torch.randint(len(self.rewards), (count,), generator=generator)
        return ReplayBuffer(*(tensor[rows] for tensor in vars(self).values()))


def compute_actor_outputs(actor: Tensor, states: Tensor, hidden: int, action_size: int) -> Tensor:
    """Return the outputs of the actor, (..., actions), for states, (..., states)."""
    return _forward(actor, states, [states.shape[-1], hidden, hidden, action_size])


def compute_q_values(critic: Tensor, states: Tensor, actions: Tensor, hidden: int) -> Tensor:
    """Return the critic's estimate Q(s, a), (...)."""
    inputs = torch.cat([states, actions], dim=-1)
    return _forward(critic, inputs, [inputs.shape[-1], hidden, hidden, 1])[..., 0]


def critic_loss(
    agent: Agent, batch: ReplayBuffer, to_actions: ActionMap, hyper: Hyperparameters
) -> Tensor:
    """Return the mean squared TD error, the distance of Q(s, a) from r + gamma * Q'(s', mu'(s')).

    Q' and mu' are the target networks of the critic and of the actor.
    """
    hidden, action_size = hyper.hidden, batch.actions.shape[-1]
    with torch.no_grad():
        outputs = compute_actor_outputs(agent.actor_target, batch.next_states, hidden, action_size)
        next_actions = to_actions(outputs)
        value = compute_q_values(agent.critic_target, batch.next_states, next_actions, hidden)
        target = batch.rewards + hyper.discount * value
    return F.mse_loss(compute_q_values(agent.critic, batch.states, batch.actions, hidden), target)


def ddpg_step(
    agent: Agent, batch: ReplayBuffer, to_actions: ActionMap, hyper: Hyperparameters
) -> Agent:
    """Do one DDPG update: critic regression, policy gradient, soft target update."""
    hidden, action_size = hyper.hidden, batch.actions.shape[-1]
    steps = agent.steps + 1
    leaf = agent.critic.detach().requires_grad_()
    (grad,) = torch.autograd.grad(
        critic_loss(replace(agent, critic=leaf), batch, to_actions, hyper), leaf
    )
    critic, critic_moments = _adam_step(
        agent.critic, grad, agent.critic_moments, int(steps), hyper.critic_lr
    )
    leaf = agent.actor.detach().requires_grad_()
    actions = to_actions(compute_actor_outputs(leaf, batch.states, hidden, action_size))
    value = compute_q_values(critic, batch.states, actions, hidden).mean()
    (grad,) = torch.autograd.grad(-value, leaf)
    actor, actor_moments = _adam_step(
        agent.actor, grad, agent.actor_moments, int(steps), hyper.actor_lr
    )
    actor_target = torch.lerp(agent.actor_target, actor, hyper.target_rate)
    critic_target = torch.lerp(agent.critic_target, critic, hyper.target_rate)
    return Agent(actor, critic, actor_target, critic_target, actor_moments, critic_moments, steps)


def _adam_step(
    parameters: Tensor, grad: Tensor, moments: Tensor, step: int, lr: float
) -> tuple[Tensor, Tensor]:
    """Do one step of Adam; return the new parameters and moments."""
    first = torch.lerp(grad, moments[0], _BETAS[0])
    second = torch.lerp(grad.square(), moments[1], _BETAS[1])
    scale = (second / (1 - _BETAS[1] ** step)).sqrt() + 1e-8
    return parameters - lr / (1 - _BETAS[0] ** step) * first / scale, torch.stack([first, second])


def _forward(parameters: Tensor, inputs: Tensor, widths: Sequence[int]) -> Tensor:
    """Return the outputs of a network of linear layers with ReLU between them."""
    sizes = [(rows + 1) * columns for rows, columns in pairwise(widths)]
    layers = zip(parameters.split(sizes), widths[1:], strict=True)
    for index, (layer, width) in enumerate(layers):
        matrix = layer.view(-1, width)  # the last row is the bias
        inputs = torch.addmm(matrix[-1], inputs.reshape(-1, len(matrix) - 1), matrix[:-1]).view(
            *inputs.shape[:-1], width
        )
        inputs = inputs if index == len(sizes) - 1 else inputs.relu()
    return inputs


def _init_network(widths: Sequence[int], generator: torch.Generator) -> Tensor:
    """Draw parameters uniformly in +-1 / sqrt(inputs); for the last layer, in a tenth of that."""
    layers = []
    for index, (rows, columns) in enumerate(pairwise(widths)):
        bound = rows**-0.5 * (_LAST_LAYER_SCALE if index == len(widths) - 2 else 1)
        layers.append((2 * torch.rand((rows + 1) * columns, generator=generator) - 1) * bound)
    return torch.cat(layers)


_Part = TypeVar("_Part", Agent, ReplayBuffer)

_CHECKPOINT_KEYS = {"next_states": "following"}  # keys that differ from the name of the field


def to_tensors(part: Agent | ReplayBuffer, prefix: str) -> dict[str, Tensor]:
    """Return an agent or a buffer as named tensors for a checkpoint."""
    return {f"{prefix}.{_CHECKPOINT_KEYS.get(k, k)}": tensor for k, tensor in vars(part).items()}


def from_tensors(kind: type[_Part], tensors: Mapping[str, Tensor], prefix: str) -> _Part:
    """Restore the result of :func:`to_tensors`."""
    names = [field.name for field in fields(kind)]
    return kind(**{k: tensors[f"{prefix}.{_CHECKPOINT_KEYS.get(k, k)}"] for k in names})
