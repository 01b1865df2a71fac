"""A ClientApp for the small federation, and a grid that calls it in this process."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from torch import nn

from cadis.algorithm import Algorithm
from cadis.algorithm.local_optimizers import SGD
from cadis.algorithm.methods import CADIS, FedAvg, FedDyn, FedProx
from cadis.algorithm.samplers import Clusters, FedCluster, HiCS, PowerOfChoice
from cadis.algorithm.server_optimizers import Adam, Momentum
from cadis.algorithm.transforms import Clip, Noise, NormBound, TopK
from cadis.data import Samples
from cadis.engine import Federation
from cadis.flower.client import introduce, local_evaluate, local_train
from cadis.flower.evaluation import server_test
from cadis.flower.strategy import MethodStrategy
from cadis.server import RoundRecord
from cadis.store import RunFolder
from fedcm import FedCM
from fesem import FeSEM
from round_robin import RoundRobin
from support import ALL_METHODS, is_identical, small_federation, small_model

ReplyChange = Callable[[Message], Message]

METHOD_ALGORITHMS = {
    m.name: Algorithm(m) for m in ALL_METHODS if not m.pools_clients and not m.needs_clock
}
"""All methods that can run on Flower, with default parts, by name."""

COMPOSITIONS = {
    "fedcm": Algorithm(FedCM(alpha=0.5)),
    "fesem": Algorithm(FeSEM()),
    "round-robin": Algorithm(FedAvg(), sampler=RoundRobin()),
    "adam": Algorithm(CADIS(), server_optimizer=Adam()),
    "private": Algorithm(CADIS(), transforms=(Clip(clip=1.0), Noise(noise=0.1))),
    "bounded": Algorithm(FedDyn(), transforms=(TopK(keep=0.5), NormBound(max_norm=0.5))),
    "power-of-choice": Algorithm(FedAvg(), sampler=PowerOfChoice(candidates=4)),
    "fedcluster": Algorithm(CADIS(), sampler=FedCluster(num_clusters=2)),
    "hics": Algorithm(FedProx(), sampler=HiCS()),
    "clusters": Algorithm(CADIS(), sampler=Clusters(), server_optimizer=Momentum()),
    "absent": Algorithm(CADIS(absent=0.5, distil="not-true"), server_optimizer=Momentum()),
    "stepping": Algorithm(FedProx(), local_optimizer=SGD(0.9, weight_decay=0.01, lr_decay=0.9)),
}
"""Methods of ``examples/methods``, and combinations of parts, by name."""

CUSTOM_CLASSES = (FedCM, FeSEM)
"""Classes of ``examples/methods`` that the ClientApp must know."""

TRAIN_CONFIG = {"epochs": 2, "batch-size": 4, "lr": 0.1}
"""Config of local training, equal to ``small_settings``."""


def small_app(
    state_dir: Path,
    federation: Federation | None = None,
    model: nn.Module | None = None,
    custom_classes: Sequence[type[Any]] = (),
) -> ClientApp:
    """Return a ClientApp for a federation; the partition id of a node selects the client."""
    app, module = ClientApp(), model or small_model()
    clients = federation or small_federation()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        data = get_client_data(context, clients)
        content = local_train(
            module, data, message.content, custom_classes=custom_classes, state_dir=state_dir
        )
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        data = get_client_data(context, clients)
        content = local_evaluate(module, data, message.content, custom_classes=custom_classes)
        return Message(content, reply_to=message)

    app.query()(introduce)
    return app


def get_client_data(context: Context, federation: Federation) -> Samples:
    """Return the data of a client by its partition id."""
    return federation.clients[int(context.node_config["partition-id"])]


def train_small(algorithm: Algorithm, grid: Grid, model: nn.Module) -> ArrayRecord:
    """Run three rounds of three clients, like ``run_rounds``, and return the global model."""
    strategy = MethodStrategy(**vars(algorithm), per_round=3, seed=7, fraction_evaluate=0)
    config = ConfigRecord(dict(TRAIN_CONFIG))
    return strategy.start(grid, small_arrays(model), 3, train_config=config).arrays


def small_arrays(model: nn.Module | None = None) -> ArrayRecord:
    return ArrayRecord((model or small_model()).state_dict())


@dataclass
class Node:
    """A node of the grid: its app, node config, registered name and run config."""

    app: ClientApp
    config: dict[str, float | int | str]
    name: str = ""
    run: dict[str, bool | float | int | str] = field(default_factory=dict)
    online: bool = True
    silent: bool = False
    message_types: list[str] = field(default_factory=list)


class LocalGrid(Grid):
    """A grid without processes: it serializes messages and calls the ClientApps."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        self.nodes = nodes
        TaskIdentity.task_id, TaskIdentity.run_id = 1, 1  # Flower writes them into each message
        TaskIdentity.node_id = SUPERLINK_NODE_ID

    @classmethod
    def with_app(cls, app: ClientApp, number: int = 5, first: int = 1000) -> "LocalGrid":
        return cls({first + 7 * n: Node(app, {"partition-id": n}) for n in reversed(range(number))})

    @classmethod
    def with_small_app(cls, folder: Path, number: int = 5) -> "LocalGrid":
        """Return a grid for the small federation; states of clients are in ``folder / "state"``."""
        return cls.with_app(small_app(folder / "state"), number)

    def alter_client(self, change: ReplyChange) -> None:
        """Change the train replies of client 2."""
        self.nodes[1014].app = make_altered_app(self.nodes[1014].app, change)

    def get_node_ids(self) -> Iterable[int]:
        return [number for number, node in self.nodes.items() if node.online]

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [
            NodeInfo(node_id=n, name=self.nodes[n].name, registered_at=f"{n:06}")
            for n in self.get_node_ids()
        ]

    def send_and_receive(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | None = None,  # noqa: ARG002
    ) -> Iterable[Message]:
        replies = [self._reply(message) for message in messages]
        return reversed([reply for reply in replies if reply is not None])

    def _reply(self, message: Message) -> Message | None:
        message.metadata.__dict__["_message_id"] = str(uuid4())
        receiver = message.metadata.dst_node_id
        node = self.nodes[receiver]
        node.message_types.append(message.metadata.message_type)
        if not node.online:
            reply = Message(Error(ErrorCode.NODE_UNAVAILABLE, "gone"), reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = SUPERLINK_NODE_ID
            return reply
        if node.silent:
            return None
        context = Context(1, receiver, node.config, RecordDict(), node.run)
        try:
            reply = node.app(message, context)
            if reply.has_content():
                reply.content = recorddict_from_proto(recorddict_to_proto(reply.content))
        except Exception as error:  # like a SuperNode
            code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
            reply = Message(Error(code, f"{type(error)}:<'{error}'>"), reply_to=message)
        return reply

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def create_message(self, *_args: object, **_options: object) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError


def run_strategy(strategy: MethodStrategy, grid: LocalGrid, rounds: int = 3) -> Result:
    test = server_test(small_model(), small_federation().test)
    return strategy.start(
        grid, small_arrays(), rounds, 9.0, ConfigRecord(dict(TRAIN_CONFIG)), evaluate_fn=test
    )


def read_history(folder: Path) -> list[RoundRecord]:
    """Return the records of the run in ``folder / "run"``."""
    return RunFolder(folder / "run").read_history()


def have_equal_arrays(first: ArrayRecord, second: ArrayRecord) -> bool:
    tensors = second.to_torch_state_dict()
    return all(is_identical(t, tensors[n]) for n, t in first.to_torch_state_dict().items())


def make_altered_app(app: ClientApp, change: ReplyChange) -> ClientApp:
    """Return a ClientApp whose train replies are changed."""
    altered = ClientApp()

    @altered.train()
    def train(message: Message, context: Context) -> Message:
        return change(app(message, context))

    @altered.query()
    def query(message: Message, context: Context) -> Message:
        return app(message, context)

    return altered
