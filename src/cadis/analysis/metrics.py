"""A run in the measures of the paper's evaluation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from cadis.analysis.run_data import RunData
from cadis.store import client_spread, measured, metric_words

LAST_ROUNDS = 10
"""The paper's 10-round average."""
_POINTS = 240
"""Times at which runs are looked at: seeds have clocks of their own, which never agree."""
_FAR_APART = 5  # runs that end at times so many times apart are seen on a logarithmic axis only


@dataclass(frozen=True)
class Scores:
    """One run in numbers; None where something was not measured.

    Attributes:
        seed: the run's seed, by which it is paired with runs of other methods.
        tested: the measure that decides after each round that was tested, with the round.
        best: the best of them.
        last: the last of them.
        ten_rounds: mean of the last ten rounds, of those among them that were tested.
        amplitude: difference of the best and the worst of these.
        accuracy: last top-1 accuracy.
        rare: last accuracy on the classes of the smallest cluster.
        client_mean: mean over the clients tested of the last model's accuracy on their own data:
            what they have held out, or what they train on if nothing is (:attr:`RunData.own_data`).
        client_deviation: its standard deviation over the clients.
        client_worst: that of the worst client.
        agreement: adjusted Rand index of found and true clusters, mean over the rounds.
        server_seconds: seconds a round that the method takes on the server.
        samples_per_second: samples that a client trains on in a second.
        measures: further measures after the last round that has any.
        clocks: the simulated time at the end of each round; empty if clients had no speeds.
    """

    seed: int
    tested: tuple[tuple[int, float], ...]
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
    measures: Mapping[str, float]
    clocks: tuple[float, ...] = ()

    @classmethod
    def of(cls, run_data: RunData, metric: str = "accuracy") -> "Scores":
        """Score one run by its records; ``metric`` is the measure that decides."""
        told = ((record.round, measured(record, metric)) for record in run_data.history)
        tested = tuple((number, value) for number, value in told if value is not None)
        values = [value for _, value in tested]
        tail = [value for number, value in tested if number > tested[-1][0] - LAST_ROUNDS]
        clients = client_spread(run_data.last_client_accuracy.values())
        measures = next((r.measures for r in reversed(run_data.history) if r.measures), {})
        return cls(
            seed=run_data.seed,
            tested=tested,
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
            samples_per_second=_samples_per_second(run_data),
            measures={name: value for name, value in measures.items() if value is not None},
            clocks=tuple(run_data.clocks),
        )

    def rounds_to(self, target: float) -> int | None:
        """The first round that reaches at least the target; None if there is none."""
        return next((number for number, value in self.tested if value >= target), None)

    def time_to(self, target: float) -> float | None:
        """The simulated time at the end of that round; None also if there is no clock."""
        number = self.rounds_to(target)
        return self.clocks[number - 1] if number is not None and self.clocks else None


@dataclass(frozen=True)
class Measure:
    """A column of the tables.

    Attributes:
        key: its name in files.
        title: its name in tables.
        of: its value in a run.
        higher_is_better: None if it is no merit.
    """

    key: str
    title: str
    of: Callable[[Scores], float | None]
    higher_is_better: bool | None = True


MEASURES = (
    Measure("best", "best", lambda s: s.best),
    Measure("last", "last", lambda s: s.last),
    Measure("ten_rounds", "10-round mean", lambda s: s.ten_rounds),
    Measure("amplitude", "amplitude", lambda s: s.amplitude, None),
    Measure("rare", "rare", lambda s: s.rare),
    Measure("client_mean", "clients' mean", lambda s: s.client_mean),
    Measure("client_deviation", "deviation", lambda s: s.client_deviation, False),
    Measure("client_worst", "worst client", lambda s: s.client_worst),
    Measure("agreement", "clusters found (ARI)", lambda s: s.agreement),
    Measure("server_seconds", "server seconds a round", lambda s: s.server_seconds, None),
    Measure("samples_per_second", "client samples/s", lambda s: s.samples_per_second, None),
)
MEASURE = {measure.key: measure for measure in MEASURES}

_MERITS = {"auc": True, "balanced_accuracy": True, "f1": True, "log_loss": False}
"""Further measures, and whether more of them is better."""


ACCURACY = Measure("accuracy", "accuracy", lambda s: s.accuracy)
"""A column of its own only where another measure decides."""


def with_article(words: str) -> str:
    """A measure in words, as it is spoken of."""
    return f"{'an' if words[0] in 'aeioAF' else 'a'} {words}"


def task_measure(name: str) -> Measure:
    """A further measure as a column; of one that nobody knows here, none is best."""
    title = metric_words(name)
    return Measure(name, title, lambda scores: scores.measures.get(name), _MERITS.get(name))


def _samples_per_second(run_data: RunData) -> float | None:
    """Samples trained on, each epoch anew, in a second of one worker."""
    counts = {client["id"]: client["samples"] for client in run_data.federation["clients"]}
    epochs = run_data.options.get("epochs")
    if None in counts.values() or not isinstance(epochs, int | float):
        return None
    sizes = {client: sum(samples) for client, samples in counts.items()}
    pooled = sum(sizes.values())  # what a method that pools clients trains on
    seen = sum(sizes.get(c, pooled) for record in run_data.history for c in record.participants)
    seconds = sum(record.seconds.train for record in run_data.history)
    return epochs * seen / seconds if seconds else None


def time_axis(runs: Sequence[RunData]) -> tuple[NDArray[np.float64], bool]:
    """Return times from the first end of a round to the last, and whether by equal ratios."""
    clocks = [run_data.clocks for run_data in runs if run_data.clocks]
    first, ends = min(own[0] for own in clocks), [own[-1] for own in clocks]
    far_apart = max(ends) > _FAR_APART * min(ends) and first > 0
    spaced = np.geomspace if far_apart else np.linspace
    return spaced(first, max(ends), _POINTS), far_apart


def at_times(
    values: NDArray[np.float64], clocks: Sequence[float], times: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the value of the last tested round that had ended at each time, NaN before and beyond.

    There is a value a round, NaN where nobody tested; ``clocks`` are the ends of the rounds.
    """
    tested = ~np.isnan(values)
    if not tested.any():
        return np.full(len(times), np.nan)
    ended, known = np.array(clocks)[tested], values[tested]
    places = np.searchsorted(ended, times, side="right") - 1
    inside = (places >= 0) & (times <= clocks[-1])
    return np.where(inside, known[places], np.nan)
