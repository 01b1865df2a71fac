"""Settings of a strategy, except the algorithm."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from annotated_types import Ge, Gt, Le
from flwr.app import MetricRecord, RecordDict

from cadis.store import ModelInputs

MetricsFunction: TypeAlias = Callable[[list[RecordDict], str], MetricRecord]


@dataclass(frozen=True)
class StrategySettings:
    """Settings of a strategy: all settings of Flower's FedAvg, with the same names, and others.

    Attributes:
        fraction_train: fraction of connected clients that train in a round.
        fraction_evaluate: fraction of connected clients that evaluate the global model after a
            round; 0 for none.
        min_train_nodes: minimum number of clients that train in a round.
        min_evaluate_nodes: minimum number of clients that evaluate.
        min_available_nodes: minimum number of connected clients to start a round.
        weighted_by_key: key of the number of samples in a client's metrics.
        arrayrecord_key: key of the model in a message.
        configrecord_key: key of the config in a message.
        train_metrics_aggr_fn: function that aggregates the train metrics of clients; by default
            the mean weighted by the number of samples.
        evaluate_metrics_aggr_fn: function that aggregates the evaluation metrics of clients.
        per_round: number of clients that train in a round, instead of ``fraction_train``.
        num_clients: number of clients of the federation. The first round waits for all of them. By
            default, it is the number of clients that have connected so far.
        patience: seconds to wait for clients to connect.
        count_limit: largest share of the samples of a round that a client gets by the number of
            samples that it reports, as a multiple of an equal share. A larger number is reduced,
            with a warning. Raise it if the sizes of your sites really differ.
        min_replies: minimum number of valid updates to aggregate.
        attempts: number of times that a round with too few valid updates is tried before the run
            stops.
        head: name of the model's classifier layer; by default the last linear layer.
        seed: seed of all random numbers.
        out: folder for the files of the run; without a folder, the run cannot be resumed.
        resume: whether to continue the run in ``out``.
        profiles: whether to keep class profiles and similarities of clients in ``out``.
        notes: further entries for ``config.toml``.
        federation: content of ``federation.json``, if the server knows the data of the clients.
        inputs: description of the model's inputs, if the server knows it; it is saved with the
            model, for :func:`cadis.load`.

    Example:
        >>> StrategySettings(fraction_train=0.1, min_train_nodes=1).count_trainers(50)
        5
    """

    fraction_train: Annotated[float, Gt(0), Le(1)] = 1.0
    fraction_evaluate: Annotated[float, Ge(0), Le(1)] = 1.0
    min_train_nodes: Annotated[int, Gt(0)] = 2
    min_evaluate_nodes: Annotated[int, Ge(0)] = 2
    min_available_nodes: Annotated[int, Gt(0)] = 2
    weighted_by_key: str = "num-examples"
    arrayrecord_key: str = "arrays"
    configrecord_key: str = "config"
    train_metrics_aggr_fn: MetricsFunction | None = None
    evaluate_metrics_aggr_fn: MetricsFunction | None = None
    per_round: Annotated[int, Gt(0)] | None = None
    num_clients: Annotated[int, Gt(0)] | None = None
    patience: Annotated[float, Gt(0)] = 600.0
    count_limit: Annotated[float, Ge(1)] = 2.0
    min_replies: Annotated[int, Gt(0)] = 1
    attempts: Annotated[int, Gt(0)] = 3
    head: str | None = None
    seed: int = 0
    out: Path | None = None
    resume: bool = False
    profiles: bool = True
    notes: Mapping[str, Any] = field(default_factory=dict)
    federation: Mapping[str, Any] | None = None
    inputs: ModelInputs | None = None

    def count_trainers(self, available: int) -> int:
        """Return the number of clients that train in a round, if ``available`` are connected."""
        by_fraction = max(int(available * self.fraction_train), self.min_train_nodes)
        return min(available, self.per_round or by_fraction)

    def count_evaluators(self, available: int) -> int:
        """Return the number of clients that evaluate, if ``available`` are connected."""
        if not self.fraction_evaluate:
            return 0
        return min(available, max(int(available * self.fraction_evaluate), self.min_evaluate_nodes))
