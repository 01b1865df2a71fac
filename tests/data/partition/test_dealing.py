import torch
from hypothesis import given
from hypothesis import strategies as st

from cadis.data.partition.splitting import apportion, deal_out, lift
from cadis.rng import generator_for

COUNTS = st.lists(st.integers(0, 50), min_size=2, max_size=8)


def test_apportion_by_hand() -> None:
    # 10 by 3:3:2:1:1 is exact. 7 by 1:1:1 is 2.33 each: the first gets the one left over.
    # 5 by 0:4:1 is 0, 4, 1. 3 by 5:3:1 is 1.67, 1.0, 0.33: the largest remainder is the first's.
    assert apportion(torch.tensor([10]), torch.tensor([[3, 3, 2, 1, 1]])).tolist() == [
        [3, 3, 2, 1, 1]
    ]
    rows = apportion(torch.tensor([7, 5, 3]), torch.tensor([[1, 1, 1], [0, 4, 1], [5, 3, 1]]))
    assert rows.tolist() == [[3, 2, 2], [0, 4, 1], [2, 1, 0]]


@given(total=st.integers(0, 10**6), weights=COUNTS.filter(any))
def test_apportion_is_within_one_of_the_exact_share(total: int, weights: list[int]) -> None:
    given_out = apportion(torch.tensor([total]), torch.tensor([weights]))[0].tolist()
    assert sum(given_out) == total
    for count, weight in zip(given_out, weights, strict=True):
        assert abs(count - total * weight / sum(weights)) < 1 + 1e-6
        assert weight or not count


@given(rows=st.lists(COUNTS, min_size=2, max_size=6), minimum=st.integers(0, 20))
def test_lift_moves_as_little_as_needed(rows: list[list[int]], minimum: int) -> None:
    width = min(map(len, rows))
    counts = torch.tensor([row[:width] for row in rows])
    minimum = min(minimum, int(counts.sum()) // len(counts))
    lifted = lift(counts, minimum, generator_for(0))
    before, after = counts.sum(dim=1), lifted.sum(dim=1)
    assert (lifted >= 0).all()
    assert torch.equal(lifted.sum(dim=0), counts.sum(dim=0))  # nothing is lost
    lacking = before < minimum
    assert (after[lacking] == minimum).all()
    assert (after[~lacking] >= minimum).all()
    assert (after[~lacking] <= before[~lacking]).all()


def test_deal_out_gives_what_the_counts_say() -> None:
    labels = torch.tensor([2, 0, 2, 1, 0, 2, 0, 2])
    counts = torch.tensor([[1, 0, 2], [0, 0, 0], [2, 1, 1]])
    dealt = deal_out(labels, counts, generator_for(0))
    assert [sorted(labels[indices].tolist()) for indices in dealt] == [[0, 2, 2], [], [0, 0, 1, 2]]
    assert len(torch.cat(dealt).unique()) == 7
