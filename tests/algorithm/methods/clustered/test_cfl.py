"""CFL: clusters are split where their clients disagree."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cadis.algorithm import Aggregation, ServerState
from cadis.algorithm.methods import CFL
from cadis.algorithm.methods.cadis import ObservedPairs
from cadis.algorithm.methods.clustered.cfl import acquainted, bipartition, followers, inner_products
from cadis.algorithm.methods.clustered.cluster_tree import ClusterTree
from cadis.engine import Federation
from cadis.rng import generator_for
from cadis.types import ClientUpdate, Message
from method_support import pair_of, run_clusters, same_tensors, server_round, state_after
from support import blobs, check_same_end, flat_model, models_after, same, update_of


def one_round(
    method: CFL, state: ServerState, moved: dict[int, list[float]]
) -> tuple[Aggregation, ServerState]:
    """A round in which clients move the model that they use by so much, and the state after it."""
    updates = []
    for client, change in moved.items():
        name = method.model_name_for(client, state)
        trained = flat_model(*(state.models[name].parameters + torch.tensor(change)).tolist())
        updates.append(ClientUpdate(client, 10, Message({name: trained})))
    made = method.aggregate(server_round(), updates, state)
    return made, state_after(state, made)


def crossing(similarity: Tensor, sides: Tensor) -> float:
    """The largest similarity across a cut."""
    return float(similarity[sides == 0][:, sides == 1].max())


def test_a_bipartition_by_hand() -> None:
    """0 and 2 are alike, 1 and 3 are; 0.3 is the largest similarity between the pairs."""
    similarity = torch.tensor(
        [[1.0, 0.1, 0.9, 0.2], [0.1, 1.0, 0.3, 0.8], [0.9, 0.3, 1.0, 0.0], [0.2, 0.8, 0.0, 1.0]]
    )
    sides = bipartition(similarity)
    assert sides.tolist() == [0, 1, 0, 1]
    assert crossing(similarity, sides) == pytest.approx(0.3)


@given(st.integers(2, 8), st.integers(0, 10_000), st.booleans())
def test_no_bipartition_is_better(number: int, seed: int, rounded: bool) -> None:
    """All of them are tried, also where similarities are equal."""
    drawn = 2 * torch.rand(number, number, generator=torch.Generator().manual_seed(seed)) - 1
    similarity = (drawn + drawn.T) / 2
    if rounded:
        similarity = (2 * similarity).round() / 2
    similarity.fill_diagonal_(1)
    cuts = (torch.tensor(sides) for sides in product((0, 1), repeat=number) if sum(sides) > 0)
    best = min(crossing(similarity, sides) for sides in cuts if sides.min() == 0)
    sides = bipartition(similarity)
    assert 0 < sides.sum() < number
    assert crossing(similarity, sides) == best


def test_inner_products_by_hand() -> None:
    updates = [update_of(n, 1, flat_model(*w)) for n, w in enumerate([(2.0, 1.0), (0.0, 5.0)])]
    found = inner_products(updates, torch.tensor([1.0, 1.0]))
    assert found.tolist() == [[1 * 1 + 0 * 0, 1 * -1 + 0 * 4], [-1 * 1 + 4 * 0, 1 + 16]]


def test_thresholds_by_hand() -> None:
    """The longest mean is 2; later the mean is 0.6, that of the longest single update 2.5."""
    changes = {0: [2.5, 0.0], 1: [-1.3, 0.0]}  # the mean is (2.5 - 1.3) / 2 = 0.6
    for eps1, eps2, splits in ((0.31, 1.2, True), (0.29, 1.2, False), (0.31, 1.3, False)):
        method = CFL(eps1, eps2)
        state = method.init(flat_model(0.0, 0.0), generator_for(0))
        _, state = one_round(method, state, {0: [0.0, 2.0], 1: [0.0, 2.0]})
        assert state.memory["longest"].item() == pytest.approx(2)
        made, _ = one_round(method, state, changes)
        assert ("cluster-1" in made.models) is splits, (eps1, eps2)
        assert made.memory["longest"].item() == pytest.approx(2)


def split_federation() -> tuple[CFL, ServerState]:
    """Two rounds of 0 to 3, of whom 0 and 1 go right in the second, 2 and 3 left; 4 was absent."""
    method = CFL()
    state = method.init(flat_model(0.0, 0.0), generator_for(0))
    _, state = one_round(method, state, {n: [0.0, 1.0] for n in range(4)})
    changes = {0: [2.0, 0.1], 1: [2.0, 0.0], 2: [-2.0, 0.0], 3: [-2.0, 0.1]}
    return method, one_round(method, state, changes)[1]


def test_a_split_by_hand() -> None:
    method, state = split_federation()
    assert list(state.models) == ["model", "cluster-1", "cluster-2"]
    used = [method.model_name_for(n, state) for n in range(5)]
    assert used == ["cluster-1", "cluster-1", "cluster-2", "cluster-2", "model"]
    assert state.models["model"].parameters.tolist() == [0, 1]  # as it was at the split
    for name, right in (("cluster-1", 1), ("cluster-2", -1)):
        expected = [right * 2.0, 1 + 0.1 / 2]  # each side has averaged its own updates
        assert state.models[name].parameters.tolist() == pytest.approx(expected)
    labels = method.cluster_labels(server_round(3), state, [0, 2, 4, "a stranger"])
    assert labels.tolist() == [1, 2, -1, -1]


def test_who_was_absent_goes_down_the_tree() -> None:
    """By its update of the model at the split, which is not averaged in."""
    method, state = split_federation()
    before = {name: model.parameters.clone() for name, model in state.models.items()}
    made, state = one_round(method, state, {4: [-0.1, 0.5], 5: [0.3, -2.0]})
    assert made.models == {}
    assert made.weights.tolist() == [0, 0]
    assert made.report["clusters"].tolist() == [2, 1]
    assert method.model_name_for(4, state) == "cluster-2"
    assert method.model_name_for(5, state) == "cluster-1"
    assert all(torch.equal(state.models[name].parameters, before[name]) for name in before)


def test_a_split_takes_in_those_absent_who_have_met_everybody() -> None:
    method = CFL()
    state = method.init(flat_model(0.0, 0.0), generator_for(0))
    # 4 has met 0 to 3, and goes with 0; 5 has met nobody but 4, whom it is not like.
    first = {n: [0.3 if n in (0, 1, 4) else -0.3, 1.0] for n in range(5)}
    changes = {0: [2.0, 0.0], 1: [2.0, 0.0], 2: [-2.0, 0.0], 3: [-2.0, 0.0]}
    for moved in (first, {4: [0.0, 0.9], 5: [0.0, -0.9]}, changes):
        _, state = one_round(method, state, moved)
    used = [method.model_name_for(n, state) for n in range(6)]
    assert used == [*["cluster-1"] * 2, *["cluster-2"] * 2, "cluster-1", "model"]


def test_who_has_met_whom() -> None:
    alike = torch.tensor([[1.0, 0.5, 0.2], [0.5, 1.0, 0.1], [0.2, 0.1, 1.0]])
    pairs, _ = ObservedPairs().observe(["c", "a", "b"], alike)
    pairs, _ = pairs.observe(["d", "a"], pair_of(0.7))
    clients, similarity = acquainted(pairs, ["a", "b"])
    assert clients == ["a", "b", "c"]
    expected = torch.tensor([[1.0, 0.1, 0.5], [0.1, 1.0, 0.2], [0.5, 0.2, 1.0]])
    assert torch.equal(similarity, expected)
    assert acquainted(pairs, ["d"])[0] == ["d", "a"]


def test_who_follows_whom() -> None:
    """e follows d, who follows a, by 0.7 and 0.6; f is like b by 0.5, and (1 + 0.1) / 2 is more."""
    pairs, _ = ObservedPairs().observe(["a", "b"], pair_of(0.1))
    for first, second, alike in (("d", "a", 0.6), ("e", "d", 0.7), ("f", "b", 0.5)):
        pairs, _ = pairs.observe([first, second], pair_of(alike))
    clients, sides = followers(pairs, ["a", "b"], torch.tensor([0, 1]), across=0.1)
    assert clients == ["a", "b", "d", "e"]
    assert sides.tolist() == [0, 1, 0, 0]


def test_the_tree_comes_back_from_its_tensors() -> None:
    _, state = split_federation()
    tree = ClusterTree.from_tensors(state.memory)
    assert tree.children.tolist() == [1, -1, -1]
    assert set(tree.directions) == {0}
    again = ClusterTree.from_tensors(tree.to_tensors())
    assert again.nodes([0, 2, 4]).tolist() == [1, 2, 0]
    assert same_tensors(tree.to_tensors(), again.to_tensors())


def contradicting() -> Federation:
    """Four clients tell the classes 0 and 1; two have them the wrong way round, as in the paper.

    No model can serve both. With classes of their own, as in ``planted``, one could, and CFL is
    right not to split.
    """
    clients = [blobs(24, [0, 1], seed=n) for n in range(6)]
    for place in (1, 4):
        clients[place] = replace(clients[place], labels=1 - clients[place].labels)
    return Federation(clients, blobs(20, [0, 1, 2, 3], seed=99))


def test_it_finds_the_clusters(tmp_path: Path) -> None:
    one, two = (run_clusters(CFL(), tmp_path, 20, contradicting(), workers) for workers in (1, 2))
    state = one[-1].state.server
    used = [CFL().model_name_for(client, state) for client in range(6)]
    assert used[0] == used[2] == used[3] == used[5] != used[1] == used[4]
    for first, second in zip(models_after(one[-1]), models_after(two[-1]), strict=True):
        assert same(first.parameters, second.parameters)
    counts = {model.name: model.clients for model in one[-1].record.models}
    assert counts["model"] == 0  # nobody uses it any more; it is told, and counts for nothing
    assert sum(counts.values()) == 6


def test_what_one_model_can_serve_is_not_split(tmp_path: Path) -> None:
    last = run_clusters(CFL(), tmp_path, 20)[-1]
    assert list(last.state.server.models) == ["model"]
    assert last.record.client_accuracy == pytest.approx([1.0] * 6)


def test_a_run_that_was_stopped_at_a_split_goes_on(tmp_path: Path) -> None:
    options = {"per_round": 4, "epochs": 2, "batch_size": 4, "lr": 0.1, "seed": 7}
    check_same_end(CFL(), contradicting(), tmp_path, rounds=20, **options)
