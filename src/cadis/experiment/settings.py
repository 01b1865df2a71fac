"""Everything about an experiment that is no part of its algorithm, and no parameter."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from cadis.engine import EngineSettings
from cadis.errors import CadisError
from cadis.models import MODELS, auto_lr
from cadis.training import Device, LocalSettings, Precision

_DEFAULT_CLIENTS = 20
_DEFAULT_PER_ROUND = 10


@dataclass(frozen=True)
class FederationSettings:
    """What is learned, and who has which part of it.

    Attributes:
        dataset: what is learned: digits, mnist, fashion-mnist, cifar10, cifar100; images:FOLDER
            for pictures of your own, csv:PLACE or parquet:PLACE for tables; or file.py:function
            for what a function of yours returns.
        data_dir: folder to look for datasets in before $CADIS_DATA and the user's cache, and to
            download them to.
        offline: never download anything.
        image_size: pixels a side to which pictures of images:FOLDER are resized.
        cache: keep decoded pictures of images:FOLDER in the user's cache, so that they are decoded
            once; "cadis data cache" lists and clears it.
        client_column: column of a table that says whose a row is; without it, each file is a
            client's.
        label_column: column of a table that says the class of a row; without it, "label".
        ignore_columns: columns of a table that are no inputs, with commas.
        category_columns: columns of a table that are categories, though they look like numbers,
            with commas.
        partition: who has what: mc, bc, uc, pa, iid, dirichlet, clients (as the data say), or a
            file FILE.json of {client: [training indices]}; "auto" is clients if the data say so,
            else mc.
        clients: number of clients, n; "auto" is as many as there are, or 20 to be dealt to.
        min_samples: the fewest samples of a client.
        allow_overlap: let a partition's file give a sample to several clients, or twice to one.
        seed: seed of everything random; the same seed gives the same result.
    """

    dataset: str = "digits"
    data_dir: str = ""
    offline: bool = False
    image_size: Annotated[int, Ge(8), Le(1024)] = 224
    cache: bool = True
    client_column: str = ""
    label_column: str = ""
    ignore_columns: tuple[str, ...] = ()
    category_columns: tuple[str, ...] = ()
    partition: str = "auto"
    clients: Annotated[int, Gt(0)] | Literal["auto"] = "auto"
    min_samples: Annotated[int, Gt(0)] = 2
    allow_overlap: bool = False
    seed: int = 0

    @property
    def clients_to_deal_to(self) -> int:
        """How many clients a dataset is dealt to."""
        return _DEFAULT_CLIENTS if self.clients == "auto" else self.clients


@dataclass(frozen=True)
class Settings(FederationSettings):
    """Everything about an experiment but the parts of its algorithm, and parameters.

    Attributes:
        model: what learns it: small-cnn, cnn, mlp, resnet9, resnet18, or file.py:function or
            module:function for one of your own; "auto" chooses by the size of the pictures, and
            mlp for tables.
        head: name of the model's classifier layer; without it, the one that is found.
        per_round: clients that take part in a round, k, or a share of them such as 0.3; "auto" is
            10, or all if there are fewer.
        rounds: number of rounds.
        epochs: passes of a client over its data in a round.
        batch_size: examples in a step of a client.
        lr: learning rate of the clients; "auto" is 0.1 for small-cnn and mlp, 0.001 for the
            ResNets (as in the paper), 0.01 for all others.
        augment: how pictures are changed at random when they are trained on, with commas: flip,
            crop; none by default.
        precision: of the arithmetic in training: float32, or bf16, which is faster for large
            models on processors that know it; weights are kept in float32.
        workers: processes that train clients, or "auto" for one on each core.
        device: where to train; "auto" takes an accelerator if there is one.
        test_clients: after how many rounds, and the last, the global model is tested on clients'
            own data, of many clients on a sample of them; 0 is never.
        eval_every: after how many rounds, and the last, the global model is tested on the test set.
        stack: train several clients at once where the model is small; the results are the same but
            for rounding.
        client_test: what share of each client's samples is held out: the client never trains on
            them, and is tested on them instead of on its training data.
        own_tests: test clients on those test samples that are their own, where the data say whose
            they are and no share is held out; else they are tested on their training data.
        speeds: samples a second that clients handle, for a simulated clock: LOW:HIGH, between
            which they are drawn, or a file FILE.json of {client: samples a second}; without it,
            everybody is equally fast.
    """

    model: str = "auto"
    head: str = ""
    per_round: Annotated[int, Gt(0)] | Annotated[float, Gt(0), Lt(1)] | Literal["auto"] = "auto"
    rounds: Annotated[int, Gt(0)] = 80
    epochs: Annotated[int, Gt(0)] = 5
    batch_size: Annotated[int, Gt(0)] = 8
    lr: Annotated[float, Gt(0)] | Literal["auto"] = "auto"
    augment: tuple[str, ...] = ()
    precision: Precision = "float32"
    workers: Annotated[int, Gt(0), Le(1024)] | Literal["auto"] = "auto"
    device: Device = "auto"
    test_clients: Annotated[int, Ge(0)] = 10
    eval_every: Annotated[int, Gt(0)] = 1
    stack: bool = True
    client_test: Annotated[float, Ge(0), Lt(1)] = 0.0
    own_tests: bool = True
    speeds: str = ""

    def resolve_auto(self, num_clients: int, shape: tuple[int, ...]) -> "Settings":
        """Without "auto", once the data are known.

        Args:
            num_clients: how many there are.
            shape: of an input: channels, height and width of a picture, or the numbers in a row.
        """
        model = _fitting_model(shape) if self.model == "auto" else self.model
        return replace(
            self,
            clients=num_clients,
            model=model,
            per_round=self._participants(num_clients),
            lr=auto_lr(MODELS.get(model)) if self.lr == "auto" else self.lr,
        )

    def _participants(self, num_clients: int) -> int:
        """How many clients take part in a round; of a share, at least one."""
        if self.per_round == "auto":
            return min(_DEFAULT_PER_ROUND, num_clients)
        if isinstance(self.per_round, int):
            return self.per_round
        return max(1, int(self.per_round * num_clients + 0.5))

    def for_engine(self) -> EngineSettings:
        """The part that the engine wants to know, of settled settings."""
        local = LocalSettings(
            self.epochs, self.batch_size, float(self.lr), self.augment, self.precision
        )
        return EngineSettings(
            self.rounds,
            int(self.per_round),
            self.seed,
            self.workers,
            self.device,
            local,
            self.test_clients,
            self.eval_every,
            self.stack,
            self.client_test,
            self.speeds,
        )


def _fitting_model(shape: tuple[int, ...]) -> str:
    """The paper's models for its datasets, and whatever is like them; for rows, the simplest."""
    if len(shape) == 1:
        return "mlp"
    if len(shape) != 3:
        raise CadisError(
            f"No model of ours is made for inputs of shape {shape}; name one of your own by "
            "--model FILE.py:FUNCTION."
        )
    channels, height, _ = shape
    if height < 16:
        return "small-cnn"
    if height < 64:
        return "cnn" if channels == 1 else "resnet9"
    return "resnet18"
