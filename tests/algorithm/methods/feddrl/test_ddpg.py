"""DDPG: golden arithmetic, torch's own layers and Adam as oracles, and what an agent learns."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from cadis.algorithm.methods.feddrl.ddpg import (
    Agent,
    Learning,
    Replay,
    act,
    agent_from,
    critic_loss,
    ddpg_step,
    replay_from,
    to_tensors,
    worth,
)
from cadis.rng import one_thread
from support import same

LEARNING = Learning(hidden=8, batch=16, actor_lr=1e-3)


def module_of(vector: Tensor, widths: list[int]) -> nn.Sequential:
    """The network that a vector holds, of torch's own layers."""
    layers: list[nn.Module] = []
    for rows, columns in pairwise(widths):
        layer, size = nn.Linear(rows, columns), (rows + 1) * columns
        matrix, vector = vector[:size].view(rows + 1, columns), vector[size:]
        layer.weight.data, layer.bias.data = matrix[:-1].T.clone(), matrix[-1].clone()
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def vector_of(module: nn.Sequential) -> Tensor:
    """The inverse of :func:`module_of`."""
    linears = [layer for layer in module if isinstance(layer, nn.Linear)]
    parts = [torch.cat([layer.weight.T, layer.bias[None]]).flatten() for layer in linears]
    return torch.cat(parts).detach()


def experience(number: int = 20) -> tuple[Agent, Replay]:
    generator = torch.Generator().manual_seed(3)
    agent, replay = Agent.new(3, 2, 8, generator), Replay.new(3, 2)
    for _ in range(number):
        state, following = torch.rand(2, 3, generator=generator)
        action, reward = torch.rand(2, generator=generator), torch.rand((), generator=generator)
        replay = replay.add(state, action, reward, following, capacity=100)
    return agent, replay


def test_networks_are_as_those_of_torch() -> None:
    agent, replay = experience()
    actions = module_of(agent.actor, [3, 8, 8, 2])(replay.states)
    torch.testing.assert_close(act(agent.actor, replay.states, 8, 2), actions)
    inputs = torch.cat([replay.states, replay.actions], dim=1)
    values = module_of(agent.critic, [5, 8, 8, 1])(inputs)[:, 0]
    torch.testing.assert_close(worth(agent.critic, replay.states, replay.actions, 8), values)


def test_critic_loss_by_hand() -> None:
    """Networks that are nothing but a bias: the actor says 0, Q is 3, and Q' is 2."""
    agent, replay = experience(1)
    critic, target = torch.zeros_like(agent.critic), torch.zeros_like(agent.critic)
    critic[-1], target[-1] = 3.0, 2.0
    agent = replace(agent, critic=critic, critic_target=target)
    batch = replace(replay, rewards=torch.tensor([0.5]))
    loss = critic_loss(agent, batch, torch.sigmoid, replace(LEARNING, discount=0.9))
    assert loss.item() == pytest.approx((3 - (0.5 + 0.9 * 2)) ** 2)


def test_steps_are_as_those_of_torchs_adam() -> None:
    agent, batch = experience()
    actor, critic = module_of(agent.actor, [3, 8, 8, 2]), module_of(agent.critic, [5, 8, 8, 1])
    by_actor = torch.optim.Adam(actor.parameters(), LEARNING.actor_lr)
    by_critic = torch.optim.Adam(critic.parameters(), LEARNING.critic_lr)
    slow = agent.actor
    for _ in range(5):
        by_critic.zero_grad()
        later = act(agent.actor_target, batch.following, 8, 2).sigmoid()
        target = batch.rewards + 0.9 * worth(agent.critic_target, batch.following, later, 8)
        found = critic(torch.cat([batch.states, batch.actions], dim=1))[:, 0]
        (found - target).square().mean().backward()
        by_critic.step()
        by_actor.zero_grad()
        chosen = actor(batch.states).sigmoid()
        (-critic(torch.cat([batch.states, chosen], dim=1)).mean()).backward()
        by_actor.step()
        agent = ddpg_step(agent, batch, torch.sigmoid, LEARNING)
        torch.testing.assert_close(agent.critic, vector_of(critic), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(agent.actor, vector_of(actor), rtol=1e-4, atol=1e-6)
        slow = 0.98 * slow + 0.02 * agent.actor
        torch.testing.assert_close(agent.actor_target, slow)
    assert agent.steps.item() == 5


def test_a_step_changes_nothing_that_it_is_given() -> None:
    agent, batch = experience()
    before = [tensor.clone() for part in (agent, batch) for tensor in vars(part).values()]
    first, again = (ddpg_step(agent, batch, torch.sigmoid, LEARNING) for _ in range(2))
    after = [tensor for part in (agent, batch) for tensor in vars(part).values()]
    assert all(map(same, before, after))
    assert all(map(same, vars(first).values(), vars(again).values()))
    assert not any(tensor.requires_grad for tensor in vars(first).values())


def test_the_oldest_experience_goes_first() -> None:
    replay = Replay.new(1, 1)
    for number in range(5):
        row = torch.full((1,), float(number))
        replay = replay.add(row, row, row[0], row + 1, capacity=3)
    assert replay.rewards.tolist() == [2, 3, 4]
    assert replay.following.tolist() == [[3], [4], [5]]
    scaled = replay.standardised().rewards
    assert scaled.tolist() == pytest.approx([-(1.5**0.5), 0, 1.5**0.5], rel=1e-4)


def test_an_agent_is_made_of_its_tensors_again() -> None:
    agent, replay = experience()
    memory = {**to_tensors(agent, "agent"), **to_tensors(replay, "replay")}
    assert all(map(same, vars(agent_from(memory, "agent")).values(), vars(agent).values()))
    assert all(map(same, vars(replay_from(memory, "replay")).values(), vars(replay).values()))


@one_thread()
def test_learns_a_planted_bandit() -> None:
    """The reward is how near the action is to the state: the critic finds out, the actor goes."""
    generator = torch.Generator().manual_seed(0)
    learning = Learning(hidden=32, actor_lr=2e-3, critic_lr=2e-3, discount=0.0)
    states, actions = torch.rand(2, 500, 1, generator=generator)
    rewards = -(actions - states).square()[:, 0]
    replay = Replay(states, actions, rewards, states).standardised()
    agent = Agent.new(1, 1, 32, generator)
    losses = []
    for _ in range(700):
        batch = replay.drawn(32, generator)
        losses.append(float(critic_loss(agent, batch, torch.sigmoid, learning)))
        agent = ddpg_step(agent, batch, torch.sigmoid, learning)
    assert sum(losses[-50:]) < 0.1 * sum(losses[:50])
    found = act(agent.actor, torch.tensor([[0.2], [0.5], [0.8]]), 32, 1).sigmoid()
    assert found.flatten().tolist() == pytest.approx([0.2, 0.5, 0.8], abs=0.1)
