"""FedDRL, and its DDPG: golden arithmetic, torch's layers and Adam as oracles, and bandits."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from cadis.algorithm import Weighing, example_weights
from cadis.algorithm.methods import FedDRL
from cadis.algorithm.methods.feddrl.ddpg import (
    Agent,
    Learning,
    Replay,
    act,
    critic_loss,
    ddpg_step,
    from_tensors,
    to_tensors,
    worth,
)
from cadis.algorithm.methods.feddrl.method import facts_of, reward_of
from cadis.rng import generator_for, one_thread
from cadis.types import ClientUpdate, TensorState
from method_support import same_tensors, server_round
from parts_support import snapshot
from support import flat_model, same, state_of, update_of

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
    before = snapshot(vars(agent)), snapshot(vars(batch))
    first, again = (ddpg_step(agent, batch, torch.sigmoid, LEARNING) for _ in range(2))
    assert same_tensors(before[0], vars(agent))
    assert same_tensors(before[1], vars(batch))
    assert same_tensors(vars(first), vars(again))
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
    again = from_tensors(Agent, memory, "agent"), from_tensors(Replay, memory, "replay")
    assert same_tensors(vars(again[0]), vars(agent))
    assert same_tensors(vars(again[1]), vars(replay))


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


def client(name: int, examples: int, before: float, during: float = 0.5) -> ClientUpdate:
    return update_of(name, examples, flat_model(0.0), received_loss=before, train_loss=during)


def weigh(
    updates: list[ClientUpdate],
    memory: TensorState | None = None,
    number: int = 1,
    method: FedDRL | None = None,
) -> Weighing:
    known = server_round(number, generator=generator_for(0, number))
    return (method or FedDRL()).weigh(known, updates, state_of(flat_model(0.0), memory))


def test_state_by_hand() -> None:
    facts = facts_of([client(0, 30, 1.5, 0.25), client(1, 10, 20.0, float("nan"))])
    expected = [1.5, 0.25, 2 * 30 / 40, 10, 10, 2 * 10 / 40]
    assert facts.flatten().tolist() == pytest.approx(expected)
    memory = weigh([client(0, 30, 1.5, 0.25), client(1, 10, 20.0, 3.0)]).memory
    assert memory["state"].tolist() == pytest.approx([10, 3, 0.5, 1.5, 0.25, 1.5])


def test_reward_and_policy_by_hand() -> None:
    losses = torch.tensor([1.0, 4.0, 2.5])
    assert reward_of(losses).item() == pytest.approx(-((1 + 4 + 2.5) / 3 + (4 - 1)))
    found = FedDRL(reach=3.0, exploration=0.5).policy(torch.zeros(4))
    assert found.tolist() == pytest.approx([1.5, 1.5, 0.5 * 1.5 * 0.5, 0.5 * 1.5 * 0.5])


def test_weights_are_the_softmax_of_the_draws() -> None:
    found = weigh([client(0, 10, 1.0), client(1, 10, 3.0), client(2, 10, 2.0)])
    draws = found.memory["action"][:3].double()
    order = [1, 2, 0]  # from the highest loss to the lowest
    assert found.weights[order].tolist() == pytest.approx(torch.softmax(draws, 0).tolist())
    assert found.weights.sum().item() == pytest.approx(1)


def test_what_came_of_a_round_is_told_in_the_next() -> None:
    first = weigh([client(0, 10, 1.0), client(1, 10, 3.0)])
    second = weigh([client(2, 10, 2.0), client(0, 10, 1.0)], first.memory, 2)
    assert second.memory["replay.rewards"].tolist() == pytest.approx([-(1.5 + 1)])
    assert same(second.memory["replay.states"][0], first.memory["state"])
    assert same(second.memory["replay.actions"][0], first.memory["action"])
    assert same(second.memory["replay.following"][0], second.memory["state"])
    assert second.memory["agent.steps"].item() == FedDRL().learning_steps
    assert not same(second.memory["agent.actor"], first.memory["agent.actor"])


def test_the_order_of_participants_does_not_matter() -> None:
    updates = [client(n, 10 + n, 3.0 - n / 2) for n in range(4)]
    order, memory = [2, 0, 3, 1], weigh(updates).memory
    one = weigh(updates, memory, 2)
    other = weigh([updates[place] for place in order], memory, 2)
    assert torch.equal(one.weights[order], other.weights)


def test_fewer_and_more_participants_than_at_first() -> None:
    updates = [client(n, 10 + n, 1.0 + n) for n in range(4)]
    first = weigh(updates[:3])
    fewer = weigh(updates[:2], first.memory, 2)
    assert fewer.weights.shape == (2,)
    assert fewer.weights.sum().item() == pytest.approx(1)
    assert fewer.memory["state"][6:].tolist() == [0, 0, 0]
    more = weigh(updates, fewer.memory, 3)
    assert torch.equal(more.weights, example_weights([10, 11, 12, 13]))
    assert "state" not in more.memory
    again = weigh(updates[:3], more.memory, 4)
    assert len(again.memory["replay.rewards"]) == 1  # nothing is known of the round before


@pytest.mark.parametrize("better", [0, 2])
def test_learns_to_prefer_who_makes_everybody_better(better: int) -> None:
    """A planted bandit: everybody's next loss is the lower, the more one of three counted."""
    method = FedDRL(discount=0.0)
    memory = dict[str, torch.Tensor]()
    loss, shares = 1.0, []
    for number in range(1, 201):
        updates = [client(place, 10, loss) for place in range(3)]
        found = weigh(updates, memory, number, method)
        memory = dict(found.memory)
        shares.append(found.weights[better].item())
        loss = 2 - 2 * shares[-1]
    assert shares[0] == pytest.approx(1 / 3, abs=0.15)
    assert sum(shares[-20:]) / 20 > 0.6
