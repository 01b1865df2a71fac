import pytest
import torch

from cadis.algorithm import ServerRound, Weighing, example_weights
from cadis.algorithm.methods import FedDRL
from cadis.algorithm.methods.feddrl.method import facts_of, reward_of
from cadis.rng import generator_for
from cadis.types import ClientUpdate, ModelState, TensorState
from support import same, state_of, update_of, view

MODEL = ModelState(torch.zeros(1), torch.zeros(0), torch.zeros(0).long())


def client(name: int, examples: int, before: float, during: float = 0.5) -> ClientUpdate:
    return update_of(name, examples, MODEL, received_loss=before, train_loss=during)


def weigh(
    updates: list[ClientUpdate],
    memory: TensorState | None = None,
    number: int = 1,
    method: FedDRL | None = None,
) -> Weighing:
    server_round = ServerRound(number, (), 9, generator_for(0, number))
    return (method or FedDRL()).weigh(server_round, updates, state_of(MODEL, memory))


def test_state_by_hand() -> None:
    facts = facts_of([client(0, 30, 1.5, 0.25), client(1, 10, 20.0, float("nan"))])
    expected = [1.5, 0.25, 2 * 30 / 40, 10, 10, 2 * 10 / 40]
    assert facts.flatten().tolist() == pytest.approx(expected)
    memory = weigh([client(0, 30, 1.5, 0.25), client(1, 10, 20.0, 3.0)]).memory
    assert memory["state"].tolist() == pytest.approx([10, 3, 0.5, 1.5, 0.25, 1.5])


def test_reward_by_hand() -> None:
    losses = torch.tensor([1.0, 4.0, 2.5])
    assert reward_of(losses).item() == pytest.approx(-((1 + 4 + 2.5) / 3 + (4 - 1)))


def test_policy_by_hand() -> None:
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


def test_loss_is_that_of_the_received_model() -> None:
    shown = view(torch.randn(5, 3), torch.randn(5, 2), torch.tensor([0, 1, 2, 0, 1]))
    assert FedDRL().prepare(shown).scalars["received_loss"] is shown.loss


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
