"""Any of our methods as a Flower strategy."""

import time
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from cadis.core import CadisError, RunError
from cadis.flower.book import Book
from cadis.flower.gathering import LOGGER
from cadis.flower.record import record_round, tell
from cadis.flower.replies import Outcome, mean_metrics
from cadis.flower.rounds import Rounds
from cadis.flower.settings import MetricsFunction, StrategySettings
from cadis.flower.testing import EvaluateFunction, Tests
from cadis.methods import Method
from cadis.options import check_names, checked_method, names_of, validated


class MethodStrategy(Strategy):
    """Runs any of our methods on Flower: own seeded sampling, own aggregation, exact resume.

    A client app that sends its ``state_dict`` and ``num-examples`` works as it is; with
    :func:`cadis.flower.local_train` in it, the method's client half is run, too.

    Attributes:
        method: how the federation learns.
        settings: all the rest.
    """

    def __init__(self, method: Method, **settings: Any) -> None:
        """Take a method, and what :class:`StrategySettings` has."""
        self.method = checked_method(method)
        if method.pools_clients:
            raise CadisError(
                f"{method.name} needs everybody's data in one place; run it by cadis.run."
            )
        check_names("option", settings, names_of(StrategySettings))
        self.settings = validated(StrategySettings, settings)
        self._rounds: Rounds | None = None
        self._outcome: Outcome | None = None
        self._attempt = 0

    def summary(self) -> None:
        """Log what will be done."""
        LOGGER.info("\t├──> Method: %s", self.method)
        out = self.settings.out
        LOGGER.info("\t└──> Kept in: %s", "memory only" if out is None else out.resolve())

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose clients, and tell each what to do and as whom."""
        return self._begun(arrays).ask(server_round, arrays, config, grid, self._attempt)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The new global model; None if there are too few good updates."""
        if self._rounds is None:
            raise CadisError("Nobody was asked: call configure_train before aggregate_train.")
        self._outcome = outcome = self._rounds.take(server_round, replies)
        if outcome.aggregation is None:
            return None, None
        arrays = self._rounds.layout.to_arrays(outcome.aggregation.state)
        return arrays, self._mean(outcome.replies, self.settings.train_metrics_aggr_fn)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose clients that test the global model."""
        return self._begun(arrays).ask_to_test(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self,
        server_round: int,  # noqa: ARG002
        replies: Iterable[Message],
    ) -> MetricRecord | None:
        """The mean of the clients' tests, of those that sent any."""
        good = self._rounds.take_tests(replies) if self._rounds is not None else []
        return self._mean(good, self.settings.evaluate_metrics_aggr_fn)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFunction | None = None,
    ) -> Result:
        """Run the rounds, as Flower's strategies do, and keep each as it ends.

        Args:
            grid: Flower's connection to the nodes.
            initial_arrays: the initial global model; a resumed run goes on with its own.
            num_rounds: how many rounds, those before a resume included.
            timeout: seconds to wait for the answers of a round.
            train_config: what clients are to know when they train, e.g. ``lr``.
            evaluate_config: what they are to know when they test.
            evaluate_fn: tests the global model on the server after every round.

        Returns:
            The last global model, and the metrics of the rounds that were run.
        """
        self.summary()
        self._rounds = rounds = Rounds.begin(self.method, self.settings, initial_arrays)
        rounds.timeout = timeout
        result = Result(arrays=initial_arrays)
        tests = Tests(self, grid, evaluate_config or ConfigRecord(), evaluate_fn, timeout)
        with closing(Book(self.settings, self.method, rounds.layout)) as book:
            rounds.go_on(book.begin(rounds.state, num_rounds, train_config or {}))
            result.arrays = rounds.layout.to_arrays(rounds.state.model)
            first = rounds.state.round + 1
            central = tests.central(rounds.state.round, result) if first == 1 else None
            for number in range(first, num_rounds + 1):
                started = time.perf_counter()
                outcome = self._train(number, result, train_config or ConfigRecord(), grid)
                testing = time.perf_counter()
                federated = tests.federated(number, result)
                central = tests.central(number, result)
                spent = time.perf_counter() - testing, time.perf_counter() - started
                record = record_round(number, outcome, [central, federated], *spent)
                book.keep(record, rounds.state)
                tell(record, num_rounds)
            if first > num_rounds:  # a resumed run may have no round left
                central = tests.central(rounds.state.round, result)
            book.finish(rounds.state, central)
        return result

    def _begun(self, arrays: ArrayRecord) -> Rounds:
        """What is known from round to round, also if someone else's loop runs them."""
        if self._rounds is None:
            self._rounds = Rounds.begin(self.method, self.settings, arrays)
        return self._rounds

    def _train(self, number: int, result: Result, config: ConfigRecord, grid: Grid) -> Outcome:
        """A round, tried again if too few answers are good."""
        for attempt in range(self.settings.attempts):
            self._attempt = attempt
            messages = self.configure_train(number, result.arrays, config, grid)
            replies = grid.send_and_receive(messages, timeout=self._begun(result.arrays).timeout)
            arrays, metrics = self.aggregate_train(number, replies)
            assert self._outcome is not None
            if arrays is not None:
                self._attempt, result.arrays = 0, arrays
                if metrics is not None:
                    result.train_metrics_clientapp[number] = metrics
                return self._outcome
            LOGGER.warning("Round %d has too few good updates.", number)
        raise RunError(self._too_few(number))

    def _too_few(self, number: int) -> str:
        assert self._outcome is not None
        reasons = "; ".join(f"{r.client}: {r.reason}" for r in self._outcome.rejected)
        kept = f" The rounds before are kept in {self.settings.out}; resume it from there."
        return (
            f"Round {number} had {len(self._outcome.updates)} good updates of at least "
            f"{self.settings.min_replies}, {self.settings.attempts} times ({reasons})."
            f"{kept if self.settings.out else ''}"
        )

    def _mean(self, replies: list[Message], given: MetricsFunction | None) -> MetricRecord | None:
        if given is not None and replies:
            return given([reply.content for reply in replies], self.settings.weighted_by_key)
        return mean_metrics(replies, self.settings.weighted_by_key, self.settings.count_limit)
