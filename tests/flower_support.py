"""A client app on the small federation, and a grid that calls it in this process."""

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
from cadis.data import Examples
from cadis.engine import Federation
from cadis.flower.client import introduce, local_evaluate, local_train
from cadis.flower.evaluation import server_test
from cadis.flower.strategy import MethodStrategy
from cadis.server import RoundRecord
from cadis.store import RunFolder
from fedcm import FedCM
from fesem import FeSEM
from round_robin import RoundRobin
from support import ALL_METHODS, same, small_federation, small_model

Change = Callable[[Message], Message]

FEDERATED = {m.name: Algorithm(m) for m in ALL_METHODS if not m.pools_clients and not m.needs_clock}
"""Our methods that need nobody's data in one place, and no simulated clock."""

COMPOSED = {
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
"""The examples of methods, and other compositions."""

OWN = (FedCM, FeSEM)
"""Classes that clients of these must know of."""

SMALL = {"epochs": 2, "batch-size": 4, "lr": 0.1}
"""How clients train in ``small_settings``."""


def small_app(
    memory: Path,
    federation: Federation | None = None,
    model: nn.Module | None = None,
    own: Sequence[type[Any]] = (),
) -> ClientApp:
    """The clients of a small federation, each by its partition id."""
    app, owned, module = ClientApp(), federation or small_federation(), model or small_model()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        data = own_data(context, owned)
        content = local_train(module, data, message.content, own=own, memory=memory)
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        content = local_evaluate(module, own_data(context, owned), message.content, own=own)
        return Message(content, reply_to=message)

    app.query()(introduce)
    return app


def own_data(context: Context, federation: Federation) -> Examples:
    """A client's own data, by its partition id."""
    return federation.clients[int(context.node_config["partition-id"])]


def train_small(algorithm: Algorithm, grid: Grid, model: nn.Module) -> ArrayRecord:
    """Three rounds of three clients, as ``run_rounds`` has them; the last global model."""
    strategy = MethodStrategy(**algorithm.parts(), per_round=3, seed=7, fraction_evaluate=0)
    config = ConfigRecord(dict(SMALL))
    return strategy.start(grid, small_arrays(model), 3, train_config=config).arrays


def small_arrays(model: nn.Module | None = None) -> ArrayRecord:
    return ArrayRecord((model or small_model()).state_dict())


@dataclass
class Node:
    """A node of the grid: its app, and what its operator says of it."""

    app: ClientApp
    config: dict[str, float | int | str]
    name: str = ""
    run: dict[str, bool | float | int | str] = field(default_factory=dict)
    online: bool = True
    silent: bool = False
    asked: list[str] = field(default_factory=list)


class LocalGrid(Grid):
    """Flower's grid without processes: messages are serialised and handed to the client apps."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        self.nodes = nodes
        TaskIdentity.task_id, TaskIdentity.run_id = 1, 1  # messages are written in its name
        TaskIdentity.node_id = SUPERLINK_NODE_ID

    @classmethod
    def of(cls, app: ClientApp, number: int = 5, first: int = 1000) -> "LocalGrid":
        return cls({first + 7 * n: Node(app, {"partition-id": n}) for n in reversed(range(number))})

    @classmethod
    def small(cls, folder: Path, number: int = 5) -> "LocalGrid":
        """The small federation; clients' states are kept in a folder beside the run."""
        return cls.of(small_app(folder / "state"), number)

    def spoil(self, change: Change) -> None:
        """Change what client 2 sends when it has trained."""
        self.nodes[1014].app = spoilt(self.nodes[1014].app, change)

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
        node.asked.append(message.metadata.message_type)
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
        except Exception as error:  # as a SuperNode does it
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


def start(strategy: MethodStrategy, grid: LocalGrid, rounds: int = 3) -> Result:
    test = server_test(small_model(), small_federation().test)
    return strategy.start(
        grid, small_arrays(), rounds, 9.0, ConfigRecord(dict(SMALL)), evaluate_fn=test
    )


def history(folder: Path) -> list[RoundRecord]:
    """The records of a run that was kept in the folder ``run``."""
    return RunFolder(folder / "run").read_history()


def equal(first: ArrayRecord, second: ArrayRecord) -> bool:
    tensors = second.to_torch_state_dict()
    return all(same(t, tensors[n]) for n, t in first.to_torch_state_dict().items())


def spoilt(app: ClientApp, change: Change) -> ClientApp:
    """A client app whose trained models are changed on the way."""
    other = ClientApp()

    @other.train()
    def train(message: Message, context: Context) -> Message:
        return change(app(message, context))

    @other.query()
    def query(message: Message, context: Context) -> Message:
        return app(message, context)

    return other
