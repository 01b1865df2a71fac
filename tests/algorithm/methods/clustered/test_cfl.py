"""CFL: recursive splits of clusters with contradicting clients."""

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
from cadis.algorithm.methods.clustered.cfl import (
    assign_similar_clients,
    compute_inner_products,
    find_bipartition,
    find_fully_observed,
)
from cadis.algorithm.methods.clustered.cluster_tree import ClusterTree
from cadis.engine import Federation
from cadis.rng import derive_generator
from cadis.types import ClientUpdate, Message
from method_support import (
    are_equal_tensors,
    get_next_state,
    make_server_round,
    make_similarity,
    run_with_clusters,
)
from support import (
    blobs,
    check_resumed_runs_are_identical,
    flat_model,
    get_models,
    is_identical,
    make_update,
)


def run_round(
    method: CFL, state: ServerState, changes_by_client: dict[int, list[float]]
) -> tuple[Aggregation, ServerState]:
    """Run a round with these updates; return the aggregation and the next state."""
    updates = []
    for client, change in changes_by_client.items():
        name = method.model_name_for(client, state)
        trained = flat_model(*(state.models[name].parameters + torch.tensor(change)).tolist())
        updates.append(ClientUpdate(client, 10, Message({name: trained})))
    result = method.aggregate(make_server_round(), updates, state)
    return result, get_next_state(state, result)


def find_max_across(similarity: Tensor, sides: Tensor) -> float:
    """Return the largest similarity across a cut."""
    return float(similarity[sides == 0][:, sides == 1].max())


def test_bipartition_by_hand() -> None:
    """0 and 2 are similar, and 1 and 3; 0.3 is the largest similarity across."""
    similarity = torch.tensor(
        [[1.0, 0.1, 0.9, 0.2], [0.1, 1.0, 0.3, 0.8], [0.9, 0.3, 1.0, 0.0], [0.2, 0.8, 0.0, 1.0]]
    )
    sides = find_bipartition(similarity)
    assert sides.tolist() == [0, 1, 0, 1]
    assert find_max_across(similarity, sides) == pytest.approx(0.3)


@given(st.integers(2, 8), st.integers(0, 10_000), st.booleans())
def test_bipartition_is_optimal(number: int, seed: int, rounded: bool) -> None:
    """Compare with all bipartitions, also with equal similarities."""
    noise = 2 * torch.rand(number, number, generator=torch.Generator().manual_seed(seed)) - 1
    similarity = (noise + noise.T) / 2
    if rounded:
        similarity = (2 * similarity).round() / 2
    similarity.fill_diagonal_(1)
    cuts = (torch.tensor(sides) for sides in product((0, 1), repeat=number) if sum(sides) > 0)
    best = min(find_max_across(similarity, sides) for sides in cuts if sides.min() == 0)
    sides = find_bipartition(similarity)
    assert 0 < sides.sum() < number
    assert find_max_across(similarity, sides) == best


def test_inner_products_by_hand() -> None:
    updates = [make_update(n, 1, flat_model(*w)) for n, w in enumerate([(2.0, 1.0), (0.0, 5.0)])]
    products = compute_inner_products(updates, torch.tensor([1.0, 1.0]))
    assert products.tolist() == [[1 * 1 + 0 * 0, 1 * -1 + 0 * 4], [-1 * 1 + 4 * 0, 1 + 16]]


def test_thresholds_by_hand() -> None:
    """The largest mean norm is 2; later it is 0.6, and the largest single norm is 2.5."""
    changes = {0: [2.5, 0.0], 1: [-1.3, 0.0]}  # the mean is (2.5 - 1.3) / 2 = 0.6
    for eps1, eps2, splits in ((0.31, 1.2, True), (0.29, 1.2, False), (0.31, 1.3, False)):
        method = CFL(eps1, eps2)
        state = method.init(flat_model(0.0, 0.0), derive_generator(0))
        _, state = run_round(method, state, {0: [0.0, 2.0], 1: [0.0, 2.0]})
        assert state.tensors["longest"].item() == pytest.approx(2)
        result, _ = run_round(method, state, changes)
        assert ("cluster-1" in result.models) is splits, (eps1, eps2)
        assert result.tensors["longest"].item() == pytest.approx(2)


def split_federation() -> tuple[CFL, ServerState]:
    """Run two rounds of clients 0 to 3; in the second, 0 and 1 contradict 2 and 3."""
    method = CFL()
    state = method.init(flat_model(0.0, 0.0), derive_generator(0))
    _, state = run_round(method, state, {n: [0.0, 1.0] for n in range(4)})
    changes = {0: [2.0, 0.1], 1: [2.0, 0.0], 2: [-2.0, 0.0], 3: [-2.0, 0.1]}
    return method, run_round(method, state, changes)[1]


def test_split_by_hand() -> None:
    method, state = split_federation()
    assert list(state.models) == ["model", "cluster-1", "cluster-2"]
    used = [method.model_name_for(n, state) for n in range(5)]
    assert used == ["cluster-1", "cluster-1", "cluster-2", "cluster-2", "model"]
    assert state.models["model"].parameters.tolist() == [0, 1]  # not changed by the split
    for name, right in (("cluster-1", 1), ("cluster-2", -1)):
        expected = [right * 2.0, 1 + 0.1 / 2]  # the mean of the updates of each side
        assert state.models[name].parameters.tolist() == pytest.approx(expected)
    labels = method.cluster_labels(make_server_round(3), state, [0, 2, 4, "unknown"])
    assert labels.tolist() == [1, 2, -1, -1]


def test_absent_clients_are_assigned_in_their_next_round() -> None:
    """Their updates of the split node's model are not averaged."""
    method, state = split_federation()
    before = {name: model.parameters.clone() for name, model in state.models.items()}
    result, state = run_round(method, state, {4: [-0.1, 0.5], 5: [0.3, -2.0]})
    assert result.models == {}
    assert result.weights.tolist() == [0, 0]
    assert result.report["clusters"].tolist() == [2, 1]
    assert method.model_name_for(4, state) == "cluster-2"
    assert method.model_name_for(5, state) == "cluster-1"
    assert all(torch.equal(state.models[name].parameters, before[name]) for name in before)


def test_a_split_includes_absent_clients_with_observed_pairs() -> None:
    method = CFL()
    state = method.init(flat_model(0.0, 0.0), derive_generator(0))
    # 4 was observed with 0 to 3 and is similar to 0; 5 was observed only with 4, and differs.
    first = {n: [0.3 if n in (0, 1, 4) else -0.3, 1.0] for n in range(5)}
    changes = {0: [2.0, 0.0], 1: [2.0, 0.0], 2: [-2.0, 0.0], 3: [-2.0, 0.0]}
    for changes_by_client in (first, {4: [0.0, 0.9], 5: [0.0, -0.9]}, changes):
        _, state = run_round(method, state, changes_by_client)
    used = [method.model_name_for(n, state) for n in range(6)]
    assert used == [*["cluster-1"] * 2, *["cluster-2"] * 2, "cluster-1", "model"]


def test_fully_observed_clients_by_hand() -> None:
    similarity = torch.tensor([[1.0, 0.5, 0.2], [0.5, 1.0, 0.1], [0.2, 0.1, 1.0]])
    pairs, _ = ObservedPairs().observe(["c", "a", "b"], similarity)
    pairs, _ = pairs.observe(["d", "a"], make_similarity(0.7))
    clients, similarity = find_fully_observed(pairs, ["a", "b"])
    assert clients == ["a", "b", "c"]
    expected = torch.tensor([[1.0, 0.1, 0.5], [0.1, 1.0, 0.2], [0.5, 0.2, 1.0]])
    assert torch.equal(similarity, expected)
    assert find_fully_observed(pairs, ["d"])[0] == ["d", "a"]


def test_similar_clients_are_assigned_by_hand() -> None:
    """d joins a (0.6) and e joins d (0.7); f has only 0.5 with b, below (1 + 0.1) / 2."""
    pairs, _ = ObservedPairs().observe(["a", "b"], make_similarity(0.1))
    for first, second, similarity in (("d", "a", 0.6), ("e", "d", 0.7), ("f", "b", 0.5)):
        pairs, _ = pairs.observe([first, second], make_similarity(similarity))
    clients, sides = assign_similar_clients(pairs, ["a", "b"], torch.tensor([0, 1]), max_across=0.1)
    assert clients == ["a", "b", "d", "e"]
    assert sides.tolist() == [0, 1, 0, 0]


def test_tree_survives_a_checkpoint() -> None:
    _, state = split_federation()
    tree = ClusterTree.from_tensors(state.tensors)
    assert tree.children.tolist() == [1, -1, -1]
    assert set(tree.directions) == {0}
    again = ClusterTree.from_tensors(tree.to_tensors())
    assert again.find_nodes([0, 2, 4]).tolist() == [1, 2, 0]
    assert are_equal_tensors(tree.to_tensors(), again.to_tensors())


def make_contradicting_federation() -> Federation:
    """Return four clients with classes 0 and 1, and two with swapped labels, as in the paper.

    No model can serve both groups. One model can serve clusters with different classes, as in
    ``planted_federation``, and CFL does not split them.
    """
    clients = [blobs(24, [0, 1], seed=n) for n in range(6)]
    for client in (1, 4):
        clients[client] = replace(clients[client], labels=1 - clients[client].labels)
    return Federation(clients, blobs(20, [0, 1, 2, 3], seed=99))


def test_cfl_finds_contradicting_clusters(tmp_path: Path) -> None:
    one, two = (
        run_with_clusters(CFL(), tmp_path, 20, make_contradicting_federation(), workers)
        for workers in (1, 2)
    )
    state = one[-1].state.server
    used = [CFL().model_name_for(client, state) for client in range(6)]
    assert used[0] == used[2] == used[3] == used[5] != used[1] == used[4]
    for first, second in zip(get_models(one[-1]), get_models(two[-1]), strict=True):
        assert is_identical(first.parameters, second.parameters)
    counts = {model.name: model.clients for model in one[-1].record.models}
    assert counts["model"] == 0  # listed, but not used any more
    assert sum(counts.values()) == 6


def test_clients_that_one_model_can_serve_are_not_split(tmp_path: Path) -> None:
    last = run_with_clusters(CFL(), tmp_path, 20)[-1]
    assert list(last.state.server.models) == ["model"]
    assert last.record.client_accuracy == pytest.approx([1.0] * 6)


def test_a_run_stopped_at_a_split_can_be_resumed(tmp_path: Path) -> None:
    options = {"per_round": 4, "epochs": 2, "batch_size": 4, "lr": 0.1, "seed": 7}
    check_resumed_runs_are_identical(
        CFL(), make_contradicting_federation(), tmp_path, rounds=20, **options
    )
