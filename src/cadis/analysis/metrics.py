"""Compute the metrics of the paper's evaluation for a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from cadis.analysis.run_data import RunData
from cadis.store import compute_client_spread, format_metric_name, get_metric

LAST_ROUNDS = 10
"""Number of rounds over which the paper averages metrics."""
_NUM_TIMES = 240  # common points in time, since rounds end at different times for each seed
_MAX_TIME_RATIO = 5
"""If a run takes longer than another by this factor, the time axis is logarithmic."""


@dataclass(frozen=True)
class Scores:
    """Metrics of one run; None for metrics that were not computed.

    Attributes:
        seed: seed of the run; runs of different methods with the same seed form a pair.
        values_by_round: main metric after each tested round, as pairs of round and value.
        best: highest value of the main metric.
        last: value of the main metric after the last tested round.
        ten_rounds: mean of the main metric over the last ten rounds, as far as they were tested.
        amplitude: highest minus lowest value of the main metric in these ten rounds.
        accuracy: last top-1 accuracy.
        rare: last accuracy on the classes that only the smallest clusters have.
        client_mean: mean over clients of the last accuracy of a client on its own data.
            :attr:`RunData.own_data` says whether these are test or training data.
        client_deviation: standard deviation of this accuracy over clients.
        client_worst: lowest such accuracy of any client.
        agreement: adjusted Rand index of estimated and true clusters, averaged over rounds.
        server_seconds: seconds per round that the method takes on the server.
        samples_per_second: number of samples that one worker process trains on per second; a sample
            counts once per epoch.
        task_metrics: further metrics of the task by name, from the last round that has any.
        round_end_times: simulated time at the end of each round; empty if clients have no speeds.
    """

    seed: int
    values_by_round: tuple[tuple[int, float], ...]
    best: float | None
    last: float | None
    ten_rounds: float | None
    amplitude: float | None
    accuracy: float | None
    rare: float | None
    client_mean: float | None
    client_deviation: float | None
    client_worst: float | None
    agreement: float | None
    server_seconds: float
    samples_per_second: float | None
    task_metrics: Mapping[str, float]
    round_end_times: tuple[float, ...] = ()

    @classmethod
    def from_run(cls, run_data: RunData, metric: str = "accuracy") -> "Scores":
        """Compute the metrics of a run; ``metric`` is the name of the main metric."""
        metrics = ((record.round, get_metric(record, metric)) for record in run_data.history)
        by_round = tuple((index, value) for index, value in metrics if value is not None)
        values = [value for _, value in by_round]
        tail = [value for index, value in by_round if index > by_round[-1][0] - LAST_ROUNDS]
        clients = compute_client_spread(run_data.last_client_accuracy.values())
        further = next((r.metrics for r in reversed(run_data.history) if r.metrics), {})
        return cls(
            seed=run_data.seed,
            values_by_round=by_round,
            best=max(values, default=None),
            last=values[-1] if values else None,
            ten_rounds=fmean(tail) if tail else None,
            amplitude=max(tail) - min(tail) if tail else None,
            accuracy=run_data.last_tested.accuracy,
            rare=run_data.summary["rare_accuracy"],
            client_mean=clients.get("mean"),
            client_deviation=clients.get("deviation"),
            client_worst=clients.get("worst"),
            agreement=run_data.summary.get("round_agreement"),
            server_seconds=fmean(record.seconds.aggregate for record in run_data.history),
            samples_per_second=_compute_speed(run_data),
            task_metrics={name: value for name, value in further.items() if value is not None},
            round_end_times=tuple(run_data.round_end_times),
        )

    def count_rounds_to(self, target: float) -> int | None:
        """Return the first round that reaches the target; None if no round does."""
        return next((index for index, value in self.values_by_round if value >= target), None)

    def measure_time_to(self, target: float) -> float | None:
        """Return the simulated time until a round reaches the target; None if unknown."""
        rounds = self.count_rounds_to(target)
        times = self.round_end_times
        return times[rounds - 1] if rounds is not None and times else None


@dataclass(frozen=True)
class Metric:
    """A metric of a run, which is a column of the tables.

    Attributes:
        key: name in CSV files.
        title: name in tables.
        compute: function that returns the value for a run, or None if it was not computed.
        higher_is_better: None if neither high nor low values are better.
    """

    key: str
    title: str
    compute: Callable[[Scores], float | None]
    higher_is_better: bool | None = True


METRICS = {
    metric.key: metric
    for metric in (
        Metric("best", "best round", lambda s: s.best),
        Metric("last", "last round", lambda s: s.last),
        Metric("ten_rounds", "last 10 rounds", lambda s: s.ten_rounds),
        Metric("amplitude", "amplitude", lambda s: s.amplitude, None),
        Metric("rare", "rare classes", lambda s: s.rare),
        Metric("client_mean", "mean of clients", lambda s: s.client_mean),
        Metric("client_deviation", "std. dev. of clients", lambda s: s.client_deviation, False),
        Metric("client_worst", "worst client", lambda s: s.client_worst),
        Metric("agreement", "clusters (ARI)", lambda s: s.agreement),
        Metric("server_seconds", "server s/round", lambda s: s.server_seconds, None),
        Metric(
            "samples_per_second",
            "training samples/s per worker",
            lambda s: s.samples_per_second,
            None,
        ),
    )
}
"""Metrics of runs by their key, in the order of tables."""

_HIGHER_IS_BETTER = {"auc": True, "balanced_accuracy": True, "f1": True, "log_loss": False}

ACCURACY = Metric("accuracy", "accuracy", lambda s: s.accuracy)
"""Last top-1 accuracy. Tables show it as a further column if it is not the main metric."""


def add_article(name: str) -> str:
    """Return the name of a metric with its indefinite article, such as "an AUC"."""
    return f"{'an' if name[0] in 'aeioAF' else 'a'} {name}"


def make_task_metric(name: str) -> Metric:
    """Return a metric of the task.

    For metrics that are not in ``_HIGHER_IS_BETTER``, neither high nor low values count as better.
    """
    title = format_metric_name(name)
    return Metric(
        name, title, lambda scores: scores.task_metrics.get(name), _HIGHER_IS_BETTER.get(name)
    )


def _compute_speed(run_data: RunData) -> float | None:
    """Return how many samples one worker process trains on per second.

    A sample counts once per epoch.
    """
    counts = {client["id"]: client["samples"] for client in run_data.federation["clients"]}
    epochs = run_data.options.get("epochs")
    if None in counts.values() or not isinstance(epochs, int | float):
        return None
    sizes = {client: sum(samples) for client, samples in counts.items()}
    pooled = sum(sizes.values())  # size of the only participant of a method that pools data
    num_samples = sum(
        sizes.get(client, pooled) for record in run_data.history for client in record.participants
    )
    seconds = sum(record.seconds.train for record in run_data.history)
    return epochs * num_samples / seconds if seconds else None


def make_time_axis(runs: Sequence[RunData]) -> tuple[NDArray[np.float64], bool]:
    """Return times from the end of the first round to the end of the last round.

    Returns:
        The times, (times,), and whether they are spaced logarithmically.
    """
    times_by_run = [run_data.round_end_times for run_data in runs if run_data.round_end_times]
    first, ends = min(times[0] for times in times_by_run), [times[-1] for times in times_by_run]
    is_logarithmic = max(ends) > _MAX_TIME_RATIO * min(ends) and first > 0
    make_times = np.geomspace if is_logarithmic else np.linspace
    return make_times(first, max(ends), _NUM_TIMES), is_logarithmic


def resample_at_times(
    values: NDArray[np.float64], round_end_times: Sequence[float], times: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return, for each time, the value of the last tested round that has ended by then.

    Args:
        values: one value per round, NaN for rounds without a test, (rounds,).
        round_end_times: time at the end of each round, (rounds,).
        times: times to return values for, (times,).

    Returns:
        One value per time; NaN before the end of the first tested round and after the end of the
        last round, (times,).
    """
    is_tested = ~np.isnan(values)
    if not is_tested.any():
        return np.full(len(times), np.nan)
    ends, known = np.array(round_end_times)[is_tested], values[is_tested]
    indices = np.searchsorted(ends, times, side="right") - 1
    is_inside = (indices >= 0) & (times <= round_end_times[-1])
    return np.where(is_inside, known[indices], np.nan)
