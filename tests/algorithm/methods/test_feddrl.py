"""FedDRL and its DDPG agent: arithmetic by hand, comparison with torch, and bandits."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from cadis.algorithm import ClientWeights, compute_sample_weights
from cadis.algorithm.methods import FedDRL
from cadis.algorithm.methods.feddrl.ddpg import (
    Agent,
    Hyperparameters,
    ReplayBuffer,
    compute_actor_outputs,
    compute_q_values,
    critic_loss,
    ddpg_step,
    from_tensors,
    to_tensors,
)
from cadis.algorithm.methods.feddrl.method import compute_features, compute_reward
from cadis.rng import derive_generator, use_one_thread
from cadis.types import ClientUpdate, TensorState
from method_support import are_equal_tensors, make_server_round
from parts_support import copy_tensors
from support import flat_model, is_identical, make_server_state, make_update

HYPER = Hyperparameters(hidden=8, batch=16, actor_lr=1e-3)


def make_module(vector: Tensor, widths: list[int]) -> nn.Sequential:
    """Return the network of a flat vector as layers of torch."""
    layers: list[nn.Module] = []
    for rows, columns in pairwise(widths):
        layer, size = nn.Linear(rows, columns), (rows + 1) * columns
        matrix, vector = vector[:size].view(rows + 1, columns), vector[size:]
        layer.weight.data, layer.bias.data = matrix[:-1].T.clone(), matrix[-1].clone()
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def flatten_module(module: nn.Sequential) -> Tensor:
    """Return the parameters of a network as a flat vector."""
    linears = [layer for layer in module if isinstance(layer, nn.Linear)]
    parts = [torch.cat([layer.weight.T, layer.bias[None]]).flatten() for layer in linears]
    return torch.cat(parts).detach()


def make_experience(number: int = 20) -> tuple[Agent, ReplayBuffer]:
    generator = torch.Generator().manual_seed(3)
    agent, buffer = Agent.initialize(3, 2, 8, generator), ReplayBuffer.empty(3, 2)
    for _ in range(number):
        state, next_state = torch.rand(2, 3, generator=generator)
        action, reward = torch.rand(2, generator=generator), torch.rand((), generator=generator)
        buffer = buffer.add(state, action, reward, next_state, capacity=100)
    return agent, buffer


def test_networks_match_torch() -> None:
    agent, buffer = make_experience()
    actions = make_module(agent.actor, [3, 8, 8, 2])(buffer.states)
    torch.testing.assert_close(compute_actor_outputs(agent.actor, buffer.states, 8, 2), actions)
    inputs = torch.cat([buffer.states, buffer.actions], dim=1)
    values = make_module(agent.critic, [5, 8, 8, 1])(inputs)[:, 0]
    torch.testing.assert_close(
        compute_q_values(agent.critic, buffer.states, buffer.actions, 8), values
    )


def test_critic_loss_by_hand() -> None:
    """Networks with only a bias: the actor returns 0, Q is 3, and Q' is 2."""
    agent, buffer = make_experience(1)
    critic, target = torch.zeros_like(agent.critic), torch.zeros_like(agent.critic)
    critic[-1], target[-1] = 3.0, 2.0
    agent = replace(agent, critic=critic, critic_target=target)
    batch = replace(buffer, rewards=torch.tensor([0.5]))
    loss = critic_loss(agent, batch, torch.sigmoid, replace(HYPER, discount=0.9))
    assert loss.item() == pytest.approx((3 - (0.5 + 0.9 * 2)) ** 2)


def test_steps_match_adam_of_torch() -> None:
    agent, batch = make_experience()
    actor, critic = make_module(agent.actor, [3, 8, 8, 2]), make_module(agent.critic, [5, 8, 8, 1])
    actor_optimizer = torch.optim.Adam(actor.parameters(), HYPER.actor_lr)
    critic_optimizer = torch.optim.Adam(critic.parameters(), HYPER.critic_lr)
    target_actor = agent.actor
    for _ in range(5):
        critic_optimizer.zero_grad()
        next_actions = compute_actor_outputs(agent.actor_target, batch.next_states, 8, 2).sigmoid()
        target = batch.rewards + 0.9 * compute_q_values(
            agent.critic_target, batch.next_states, next_actions, 8
        )
        value = critic(torch.cat([batch.states, batch.actions], dim=1))[:, 0]
        (value - target).square().mean().backward()
        critic_optimizer.step()
        actor_optimizer.zero_grad()
        actions = actor(batch.states).sigmoid()
        (-critic(torch.cat([batch.states, actions], dim=1)).mean()).backward()
        actor_optimizer.step()
        agent = ddpg_step(agent, batch, torch.sigmoid, HYPER)
        torch.testing.assert_close(agent.critic, flatten_module(critic), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(agent.actor, flatten_module(actor), rtol=1e-4, atol=1e-6)
        target_actor = 0.98 * target_actor + 0.02 * agent.actor
        torch.testing.assert_close(agent.actor_target, target_actor)
    assert agent.steps.item() == 5


def test_a_step_does_not_change_its_inputs() -> None:
    agent, batch = make_experience()
    before = copy_tensors(vars(agent)), copy_tensors(vars(batch))
    first, again = (ddpg_step(agent, batch, torch.sigmoid, HYPER) for _ in range(2))
    assert are_equal_tensors(before[0], vars(agent))
    assert are_equal_tensors(before[1], vars(batch))
    assert are_equal_tensors(vars(first), vars(again))
    assert not any(tensor.requires_grad for tensor in vars(first).values())


def test_the_oldest_transition_is_dropped_first() -> None:
    buffer = ReplayBuffer.empty(1, 1)
    for number in range(5):
        row = torch.full((1,), float(number))
        buffer = buffer.add(row, row, row[0], row + 1, capacity=3)
    assert buffer.rewards.tolist() == [2, 3, 4]
    assert buffer.next_states.tolist() == [[3], [4], [5]]
    scaled = buffer.standardize_rewards().rewards
    assert scaled.tolist() == pytest.approx([-(1.5**0.5), 0, 1.5**0.5], rel=1e-4)


def test_agent_and_buffer_survive_a_checkpoint() -> None:
    agent, buffer = make_experience()
    tensors = {**to_tensors(agent, "agent"), **to_tensors(buffer, "replay")}
    again = from_tensors(Agent, tensors, "agent"), from_tensors(ReplayBuffer, tensors, "replay")
    assert are_equal_tensors(vars(again[0]), vars(agent))
    assert are_equal_tensors(vars(again[1]), vars(buffer))


@use_one_thread()
def test_learns_a_planted_bandit() -> None:
    """The reward is the negative squared distance of action and state."""
    generator = torch.Generator().manual_seed(0)
    hyper = Hyperparameters(hidden=32, actor_lr=2e-3, critic_lr=2e-3, discount=0.0)
    states, actions = torch.rand(2, 500, 1, generator=generator)
    rewards = -(actions - states).square()[:, 0]
    buffer = ReplayBuffer(states, actions, rewards, states).standardize_rewards()
    agent = Agent.initialize(1, 1, 32, generator)
    losses = []
    for _ in range(700):
        batch = buffer.sample(32, generator)
        losses.append(float(critic_loss(agent, batch, torch.sigmoid, hyper)))
        agent = ddpg_step(agent, batch, torch.sigmoid, hyper)
    assert sum(losses[-50:]) < 0.1 * sum(losses[:50])
    result = compute_actor_outputs(
        agent.actor, torch.tensor([[0.2], [0.5], [0.8]]), 32, 1
    ).sigmoid()
    assert result.flatten().tolist() == pytest.approx([0.2, 0.5, 0.8], abs=0.1)


def make_client(name: int, samples: int, before: float, during: float = 0.5) -> ClientUpdate:
    return make_update(name, samples, flat_model(0.0), received_loss=before, train_loss=during)


def weigh(
    updates: list[ClientUpdate],
    tensors: TensorState | None = None,
    number: int = 1,
    method: FedDRL | None = None,
) -> ClientWeights:
    known = make_server_round(number, generator=derive_generator(0, number))
    return (method or FedDRL()).weigh(known, updates, make_server_state(flat_model(0.0), tensors))


def test_state_by_hand() -> None:
    features = compute_features(
        [make_client(0, 30, 1.5, 0.25), make_client(1, 10, 20.0, float("nan"))]
    )
    expected = [1.5, 0.25, 2 * 30 / 40, 10, 10, 2 * 10 / 40]
    assert features.flatten().tolist() == pytest.approx(expected)
    tensors = weigh([make_client(0, 30, 1.5, 0.25), make_client(1, 10, 20.0, 3.0)]).tensors
    assert tensors["state"].tolist() == pytest.approx([10, 3, 0.5, 1.5, 0.25, 1.5])


def test_reward_and_policy_by_hand() -> None:
    losses = torch.tensor([1.0, 4.0, 2.5])
    assert compute_reward(losses).item() == pytest.approx(-((1 + 4 + 2.5) / 3 + (4 - 1)))
    result = FedDRL(reach=3.0, exploration=0.5).to_actions(torch.zeros(4))
    assert result.tolist() == pytest.approx([1.5, 1.5, 0.5 * 1.5 * 0.5, 0.5 * 1.5 * 0.5])


def test_weights_are_the_softmax_of_the_draws() -> None:
    result = weigh([make_client(0, 10, 1.0), make_client(1, 10, 3.0), make_client(2, 10, 2.0)])
    draws = result.tensors["action"][:3].double()
    order = [1, 2, 0]  # from the highest loss to the lowest
    assert result.weights[order].tolist() == pytest.approx(torch.softmax(draws, 0).tolist())
    assert result.weights.sum().item() == pytest.approx(1)


def test_the_next_round_completes_a_transition() -> None:
    first = weigh([make_client(0, 10, 1.0), make_client(1, 10, 3.0)])
    second = weigh([make_client(2, 10, 2.0), make_client(0, 10, 1.0)], first.tensors, 2)
    assert second.tensors["replay.rewards"].tolist() == pytest.approx([-(1.5 + 1)])
    assert is_identical(second.tensors["replay.states"][0], first.tensors["state"])
    assert is_identical(second.tensors["replay.actions"][0], first.tensors["action"])
    assert is_identical(second.tensors["replay.following"][0], second.tensors["state"])
    assert second.tensors["agent.steps"].item() == FedDRL().learning_steps
    assert not is_identical(second.tensors["agent.actor"], first.tensors["agent.actor"])


def test_the_order_of_participants_does_not_matter() -> None:
    updates = [make_client(n, 10 + n, 3.0 - n / 2) for n in range(4)]
    order, tensors = [2, 0, 3, 1], weigh(updates).tensors
    one = weigh(updates, tensors, 2)
    other = weigh([updates[index] for index in order], tensors, 2)
    assert torch.equal(one.weights[order], other.weights)


def test_fewer_and_more_participants_than_in_the_first_round() -> None:
    updates = [make_client(n, 10 + n, 1.0 + n) for n in range(4)]
    first = weigh(updates[:3])
    fewer = weigh(updates[:2], first.tensors, 2)
    assert fewer.weights.shape == (2,)
    assert fewer.weights.sum().item() == pytest.approx(1)
    assert fewer.tensors["state"][6:].tolist() == [0, 0, 0]
    more = weigh(updates, fewer.tensors, 3)
    assert torch.equal(more.weights, compute_sample_weights([10, 11, 12, 13]))
    assert "state" not in more.tensors
    again = weigh(updates[:3], more.tensors, 4)
    assert len(again.tensors["replay.rewards"]) == 1  # the round before has no transition


@pytest.mark.parametrize("better", [0, 2])
def test_learns_to_prefer_the_better_client(better: int) -> None:
    """A planted bandit: a larger weight of one client lowers the next loss of all."""
    method = FedDRL(discount=0.0)
    tensors = dict[str, torch.Tensor]()
    loss, shares = 1.0, []
    for number in range(1, 201):
        updates = [make_client(n, 10, loss) for n in range(3)]
        result = weigh(updates, tensors, number, method)
        tensors = dict(result.tensors)
        shares.append(result.weights[better].item())
        loss = 2 - 2 * shares[-1]
    assert shares[0] == pytest.approx(1 / 3, abs=0.15)
    assert sum(shares[-20:]) / 20 > 0.6
