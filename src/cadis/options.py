"""The options of an experiment, each declared once: type, default, help text and scope.

The command line, ``config.toml``, resuming, comparability, the model card, the settings of the
engine and the Flower app derive what they need from these declarations; no other module lists names
of options. ``store``, ``flower`` and ``analysis`` ask for scopes, so this module is below all of
them and holds declarations only: :class:`cadis.experiment.Settings` adds what needs models and the
engine. Parts of the algorithm (method, sampler, ...) are declared in ``cadis.algorithm.KINDS``.
"""

from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, TypeAlias

from annotated_types import Ge, Gt, Le, Lt

Device: TypeAlias = Literal["auto", "cpu", "cuda", "mps"]
"""Where models are trained."""

Precision: TypeAlias = Literal["float32", "bf16"]
"""Of the arithmetic in training: as the model is, or bfloat16 wherever torch deems it safe."""

Scope: TypeAlias = Literal["data", "federation", "training", "machine"]
"""What an option decides.

- data: what is learned, and how the data are split among clients. Runs are compared only if these
  options agree.
- federation: how rounds are run and evaluated.
- training: the model, and how clients train it.
- machine: where a run computes and where it finds files; the result is the same but for rounding.
"""


@dataclass(frozen=True)
class Option:
    """What is known of an option besides its name, type and default.

    Attributes:
        help: a sentence for users.
        scope: what the option decides.
        resumable: whether a resumed run may have another value, though the scope is not "machine".
        in_card: whether the model card lists the option; False if the card tells it elsewhere.
    """

    help: str
    scope: Scope
    resumable: bool = False
    in_card: bool = True

    @property
    def may_change(self) -> bool:
        """Return whether a resumed run may have another value: it does not change any round."""
        return self.resumable or self.scope == "machine"


def option(default: Any, help: str, scope: Scope, **more: Any) -> Any:  # noqa: A002
    """Declare an option as a field of a dataclass; ``more`` are further fields of an Option."""
    return field(default=default, metadata={"option": Option(help, scope, **more)})


@dataclass(frozen=True)
class DatasetOptions:
    """The dataset: which one, and how it is read."""

    dataset: str = option(
        "digits",
        "The data to learn from: digits, mnist, fashion-mnist, cifar10, cifar100; images:FOLDER "
        "for your own pictures, csv:PATH or parquet:PATH for tables; or file.py:function for data "
        "that your function returns.",
        "data",
    )
    data_dir: str = option(
        "",
        "Folder to search for datasets before $CADIS_DATA and the user's cache, and to download "
        "them to.",
        "machine",
    )
    offline: bool = option(False, "Never download anything.", "machine")
    image_size: Annotated[int, Ge(8), Le(1024)] = option(
        224,
        "Pixels per side to which pictures of images:FOLDER are resized.",
        "data",
        in_card=False,  # the shape of the model's inputs
    )
    cache: bool = option(
        True,
        "Keep decoded pictures of images:FOLDER in the user's cache, so that they are decoded only "
        'once; "cadis data cache" lists and clears it.',
        "machine",
    )
    client_column: str = option(
        "",
        "Column of a table that names the client of a row; without it, each file is one client.",
        "data",
    )
    label_column: str = option(
        "", 'Column of a table that holds the class; without it, "label".', "data"
    )
    ignore_columns: tuple[str, ...] = option(
        (), "Columns of a table that are not inputs, separated by commas.", "data"
    )
    category_columns: tuple[str, ...] = option(
        (),
        "Columns of a table that are categories although they look like numbers, separated by "
        "commas.",
        "data",
    )


@dataclass(frozen=True)
class PartitionOptions(DatasetOptions):
    """The dataset, and how it is split among clients."""

    partition: str = option(
        "auto",
        "How training data are split among clients: mc, bc, uc, pa, iid, dirichlet, clients (as "
        "the data themselves say), or a file FILE.json of {client: [training indices]}; "
        '"auto" is clients if the data name their clients, else mc.',
        "data",
    )
    clients: Annotated[int, Gt(0)] | Literal["auto"] = option(
        "auto",
        'Number of clients, n; "auto" is the number in the data, or 20 if the data are split.',
        "data",
    )
    min_samples: Annotated[int, Gt(0)] = option(
        2, "Fewest samples that a client may have.", "data", in_card=False
    )
    allow_overlap: bool = option(
        False,
        "Let the file of a partition give a sample to several clients, or twice to one.",
        "data",
        in_card=False,
    )
    seed: int = option(
        0, "Seed of everything random; the same seed gives the same result.", "training"
    )


@dataclass(frozen=True)
class RunOptions(PartitionOptions):
    """All options of a run but the parts of its algorithm and their parameters."""

    model: str = option(
        "auto",
        "The model: small-cnn, cnn, mlp, resnet9, resnet18, or your own as file.py:function or "
        'module:function; "auto" chooses by the size of the pictures, and mlp for tables.',
        "training",
        in_card=False,  # the architecture of the description
    )
    head: str = option(
        "",
        "Name of the model's classifier layer; without it, the layer is found.",
        "training",
    )
    per_round: Annotated[int, Gt(0)] | Annotated[float, Gt(0), Lt(1)] | Literal["auto"] = option(
        "auto",
        "Clients that take part in a round, k, or a share of all clients such as 0.3; "
        '"auto" is 10, or all if there are fewer.',
        "federation",
    )
    rounds: Annotated[int, Gt(0)] = option(80, "Number of rounds.", "federation", resumable=True)
    epochs: Annotated[int, Gt(0)] = option(
        5, "Passes of a client over its data in a round.", "training"
    )
    batch_size: Annotated[int, Gt(0)] = option(8, "Examples in one step of a client.", "training")
    lr: Annotated[float, Gt(0)] | Literal["auto"] = option(
        "auto",
        'Learning rate of the clients; "auto" is 0.1 for small-cnn and mlp, 0.001 for the ResNets '
        "(as in the paper), 0.01 for all others.",
        "training",
    )
    augment: tuple[str, ...] = option(
        (),
        "Random changes of pictures during training, separated by commas: flip, crop; none by "
        "default.",
        "training",
    )
    precision: Precision = option(  # noqa: RUF009
        "float32",
        "Precision of the arithmetic in training: float32, or bf16, which is faster for large "
        "models on processors that support it; weights are kept in float32.",
        "training",
    )
    workers: Annotated[int, Gt(0), Le(1024)] | Literal["auto"] = option(
        "auto", 'Processes that train clients, or "auto" for one on each core.', "machine"
    )
    device: Device = option(  # noqa: RUF009
        "auto", 'Where to train; "auto" takes an accelerator if there is one.', "machine"
    )
    test_clients: Annotated[int, Ge(0)] = option(
        10,
        "Test the global model on the clients' own data every so many rounds, and after the last; "
        "of many clients, a sample is tested; 0 is never.",
        "federation",
        resumable=True,
    )
    eval_every: Annotated[int, Gt(0)] = option(
        1,
        "Test the global model on the test set every so many rounds, and after the last.",
        "federation",
        resumable=True,
    )
    stack: bool = option(
        True,
        "Train several clients at once if the model is small; the results are the same but for "
        "rounding.",
        "machine",
    )
    client_test: Annotated[float, Ge(0), Lt(1)] = option(
        0.0,
        "Share of each client's samples that is held out: the client never trains on them, and is "
        "tested on them instead of on its training data.",
        "data",
    )
    own_tests: bool = option(
        True,
        "Test clients on their own test samples, if the data name the client of a test sample and "
        "no share is held out; else clients are tested on their training data.",
        "federation",
        resumable=True,
    )
    speeds: str = option(
        "",
        "Samples per second that clients process, for a simulated clock: LOW:HIGH, between which "
        "they are drawn, or a file FILE.json of {client: samples per second}; without it, all "
        "clients are equally fast.",
        "federation",
        in_card=False,
    )


OPTIONS: dict[str, Option] = {each.name: each.metadata["option"] for each in fields(RunOptions)}
"""All options by name, in the order in which ``config.toml`` holds them."""

MAY_CHANGE = tuple(name for name, each in OPTIONS.items() if each.may_change)
"""Options that a resumed run may change: they change no round, except for rounding."""


def options_of_scope(*scopes: Scope) -> tuple[str, ...]:
    """Return the names of the options that have one of these scopes."""
    return tuple(name for name, each in OPTIONS.items() if each.scope in scopes)
