"""What samplers must do in a run."""

from pathlib import Path

import pytest

from cadis.algorithm import Algorithm, Method
from cadis.algorithm.methods import CADIS, IFCA, FedAvg
from cadis.algorithm.samplers import FedCluster, HiCS, PowerOfChoice, Sampler, Uniform
from support import check_goes_on, model_after, run_rounds, same, small_settings


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("method", "sampler"),
    [
        (FedAvg(), FedCluster(num_clusters=3)),
        (CADIS(), FedCluster(num_clusters=3)),
        (FedAvg(), HiCS()),
        (IFCA(), HiCS()),
        (FedAvg(), PowerOfChoice(candidates=4)),
    ],
)
def test_a_stopped_run_goes_on(
    method: Method, sampler: Sampler, workers: int, tmp_path: Path
) -> None:
    check_goes_on(Algorithm(method, sampler=sampler), tmp_path, workers)


@pytest.mark.parametrize(
    ("method", "sampler", "per_round"),
    [(FedAvg(), HiCS(), 5), (CADIS(), PowerOfChoice(), 5), (FedAvg(), FedCluster(1), 3)],
)
def test_where_there_is_no_choice_it_is_uniform(
    method: Method, sampler: Sampler, per_round: int, tmp_path: Path
) -> None:
    """Everybody takes part, or there is one cluster."""
    one, other = (
        run_rounds(Algorithm(method, sampler=s), tmp_path, small_settings(per_round=per_round))[-1]
        for s in (sampler, Uniform())
    )
    assert same(model_after(one).parameters, model_after(other).parameters)
