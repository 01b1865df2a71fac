"""How a strategy goes about its rounds."""

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
    """Flower's own options under Flower's own names, then ours.

    Attributes:
        fraction_train: the part of the clients present that trains in a round.
        fraction_evaluate: the part of them that tests the global model after a round; 0 is none.
        min_train_nodes: the fewest clients that train in a round.
        min_evaluate_nodes: the fewest clients that test.
        min_available_nodes: the fewest clients present to begin a round with.
        weighted_by_key: the scalar that tells how many samples a client has.
        arrayrecord_key: where in a message the model is.
        configrecord_key: where in a message the config is.
        train_metrics_aggr_fn: what makes one record of the clients' training metrics; by default
            means by number of samples.
        evaluate_metrics_aggr_fn: the same for their test metrics.
        per_round: k, how many clients train in a round, instead of a fraction.
        num_clients: n, all clients of the federation. The first round waits for them. By default
            as many as were ever seen.
        patience: seconds to wait for clients to connect.
        count_limit: how many times the median of a round's numbers of samples a client counts for,
            at the most, whatever it says; who says more is named.
        min_replies: the fewest good updates to make a new global model of.
        attempts: how often a round with too few good updates is tried, before the run stops.
        head: name of the model's classifier layer, by default the last linear one.
        seed: of everything random.
        out: folder to keep the run in; without one, it cannot be resumed.
        resume: go on with the run in ``out``.
        notes: further options to keep in ``config.toml``.
        federation: what ``federation.json`` is to hold, if the server knows who has what.
        inputs: what the model is given, if the server knows: its file then says how to use it.
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
    count_limit: Annotated[float, Ge(1)] = 100.0
    min_replies: Annotated[int, Gt(0)] = 1
    attempts: Annotated[int, Gt(0)] = 3
    head: str | None = None
    seed: int = 0
    out: Path | None = None
    resume: bool = False
    notes: Mapping[str, Any] = field(default_factory=dict)
    federation: Mapping[str, Any] | None = None
    inputs: ModelInputs | None = None

    def trainers(self, present: int) -> int:
        """How many of the clients present train in a round."""
        wanted = max(int(present * self.fraction_train), self.min_train_nodes)
        return min(present, self.per_round or wanted)

    def testers(self, present: int) -> int:
        """How many of the clients present test the global model."""
        if not self.fraction_evaluate:
            return 0
        return min(present, max(int(present * self.fraction_evaluate), self.min_evaluate_nodes))
