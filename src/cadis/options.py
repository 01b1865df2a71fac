"""Options of an experiment, each declared once with its type, default, help text and scope.

The command line, ``config.toml``, the model card, the settings of the engine and the Flower app are
generated from these declarations. The same declarations decide which options a resumed run may
change and which runs can be compared. :class:`cadis.experiment.Settings` adds the code that needs
models and the engine. The options for the parts of the algorithm (``--method``, ``--sampler``, ...)
are declared in ``cadis.algorithm.KINDS``.
"""

from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, TypeAlias

from annotated_types import Ge, Gt, Le, Lt

Device: TypeAlias = Literal["auto", "cpu", "cuda", "mps"]
"""Device on which models are trained."""

Precision: TypeAlias = Literal["float32", "bf16"]
"""Precision of the arithmetic in training: float32, or bfloat16 autocast."""

Scope: TypeAlias = Literal["data", "federation", "training", "machine"]
"""Aspect of an experiment that an option controls.

- data: the dataset, and how it is split among clients. Runs are comparable only if these options
  are equal.
- federation: how rounds are run and evaluated.
- training: the model, and how clients train it.
- machine: the hardware that a run uses, and the folders of its files. These options do not change
  results, except for rounding errors.
"""


@dataclass(frozen=True)
class Option:
    """Description of an option; the dataclass field has its name, type and default.

    Attributes:
        help: the help text for users.
        scope: the aspect of an experiment that the option controls.
        resumable: whether a resumed run may change the value even if the scope is not "machine".
        in_card: whether the model card lists the option; False if another section of the card has
            the same information.
    """

    help: str
    scope: Scope
    resumable: bool = False
    in_card: bool = True

    @property
    def may_change(self) -> bool:
        """Return whether a resumed run may change the value: no finished round depends on it."""
        return self.resumable or self.scope == "machine"


def option(default: Any, help: str, scope: Scope, **more: Any) -> Any:  # noqa: A002
    """Declare an option as a dataclass field; ``more`` are further fields of :class:`Option`."""
    return field(default=default, metadata={"option": Option(help, scope, **more)})


@dataclass(frozen=True)
class DatasetOptions:
    """Options that select a dataset and control how it is read."""

    dataset: str = option(
        "digits",
        "Dataset: digits, mnist, fashion-mnist, cifar10, cifar100, images:FOLDER, csv:PATH, "
        "parquet:PATH, or FILE.py:FUNCTION (your function, which returns the data).",
        "data",
    )
    data_dir: str = option(
        "",
        "Folder to search for datasets first and to download them to; by default $CADIS_DATA, or "
        "the user's cache folder.",
        "machine",
    )
    offline: bool = option(False, "Do not download anything.", "machine")
    image_size: Annotated[int, Ge(8), Le(1024)] = option(
        224,
        "Width and height in pixels to which images of images:FOLDER are resized.",
        "data",
        in_card=False,  # the card has the shape of the model's inputs
    )
    cache: bool = option(
        True,
        "Keep decoded images on disk for later runs; see 'cadis data cache'.",
        "machine",
    )
    client_column: str = option(
        "",
        "Table column with the client of each row; by default, each file of a folder is one "
        "client.",
        "data",
    )
    label_column: str = option(
        "", 'Table column with the class of each row; by default "label".', "data"
    )
    ignore_columns: tuple[str, ...] = option(
        (), "Table columns that are not inputs of the model.", "data"
    )
    category_columns: tuple[str, ...] = option(
        (),
        "Table columns whose numbers are codes of categories.",
        "data",
    )


@dataclass(frozen=True)
class PartitionOptions(DatasetOptions):
    """Options that select a dataset and split it among clients."""

    partition: str = option(
        "auto",
        "How training data are split among clients: mc (multi-cluster: several clusters of "
        "clients, each with its own classes), bc (balanced cluster: one large cluster, and "
        "single clients with other classes; all clients have the same number of samples), uc "
        "(unbalanced cluster: as bc, but clients have different numbers of samples), overlap (as "
        "mc, but clusters share classes), soft (clusters that differ in their class proportions), "
        "pa (Pareto: for each class, the number of samples per client follows a power law), iid "
        "(all clients have the same class proportions), dirichlet (class proportions drawn at "
        "random), clients (the dataset names the client of each sample), or FILE.json (sample "
        'indices of each client). "auto" is "clients" if the dataset names the client of each '
        'sample, else "mc".',
        "data",
    )
    clients: Annotated[int, Gt(0)] | Literal["auto"] = option(
        "auto",
        'Number of clients; "auto" is the number that the dataset or FILE.json defines, else 20.',
        "data",
    )
    min_samples: Annotated[int, Gt(0)] = option(
        2,
        "Minimum number of samples per client. Random partitions give each client at least N "
        "samples. If the dataset or FILE.json gives a client fewer, the run stops with an error.",
        "data",
        in_card=False,
    )
    allow_overlap: bool = option(
        False,
        "Allow a sample to occur several times in a partition FILE.json, for one client or for "
        "several clients.",
        "data",
        in_card=False,
    )
    seed: int = option(0, "Seed of all random numbers.", "training")


@dataclass(frozen=True)
class RunOptions(PartitionOptions):
    """All options of a run except the parts of its algorithm and their parameters."""

    model: str = option(
        "auto",
        "Model: small-cnn, cnn, mlp, resnet9, resnet18, or your own FILE.py:FUNCTION or "
        'MODULE:FUNCTION; "auto" chooses a model for the shape of the inputs.',
        "training",
        in_card=False,  # the card describes the architecture
    )
    head: str = option(
        "",
        "Name of the classifier layer of the model; by default it is detected.",
        "training",
    )
    per_round: Annotated[int, Gt(0)] | Annotated[float, Gt(0), Lt(1)] | Literal["auto"] = option(
        "auto",
        'Number of clients that take part in a round, or a fraction such as 0.3; "auto" is 10, or '
        "all clients if there are fewer.",
        "federation",
    )
    rounds: Annotated[int, Gt(0)] = option(80, "Number of rounds.", "federation", resumable=True)
    epochs: Annotated[int, Gt(0)] = option(5, "Epochs of local training per round.", "training")
    batch_size: Annotated[int, Gt(0)] = option(8, "Batch size of local training.", "training")
    lr: Annotated[float, Gt(0)] | Literal["auto"] = option(
        "auto",
        'Learning rate of local training; "auto" is 0.1 for small-cnn and mlp, 0.001 for the '
        "ResNets, 0.01 for other models.",
        "training",
    )
    augment: tuple[str, ...] = option(
        (),
        "Data augmentation of training images: flip, crop, or flip,crop.",
        "training",
    )
    precision: Precision = option(  # noqa: RUF009
        "float32",
        "Number format of training; bf16 is faster for large models on hardware that supports it.",
        "training",
    )
    workers: Annotated[int, Gt(0), Le(1024)] | Literal["auto"] = option(
        "auto", 'Number of worker processes; "auto" is one per CPU core.', "machine"
    )
    device: Device = option(  # noqa: RUF009
        "auto", 'Device to train on; "auto" is a GPU if there is one.', "machine"
    )
    test_clients: Annotated[int, Ge(0)] = option(
        10,
        "How often to test on the clients' own data: every N rounds, and after the last round; 0 "
        "means never. A client's own data are its test samples (see --client-test and --own-tests) "
        "or, if it has none, its training samples.",
        "federation",
        resumable=True,
    )
    eval_every: Annotated[int, Gt(0)] = option(
        1,
        "Test the model on the common test set every N rounds.",
        "federation",
        resumable=True,
    )
    profiles: bool = option(
        True,
        "Keep what the method finds out about the classes of each client; with --no-profiles, the "
        "files of the run have labels of clusters, but no class profiles and no similarities of "
        "clients, and a finished run cannot be prolonged.",
        "machine",
    )
    stack: bool = option(
        True,
        "Train several clients together, as one batched computation in each worker process, if the "
        "model is small.",
        "machine",
    )
    client_test: Annotated[float, Ge(0), Lt(1)] = option(
        0.0,
        "Fraction of each client's training samples, such as 0.2, to hold out as its test samples; "
        "it does not train on them.",
        "data",
    )
    own_tests: bool = option(
        True,
        "If the dataset has test samples for each client, use them in the tests on clients' own "
        "data; with --no-own-tests, use the clients' training samples instead. No effect with "
        "--client-test.",
        "federation",
        resumable=True,
    )
    speeds: str = option(
        "",
        "Simulate the time that clients need, to compare methods by time: the clients' speeds in "
        "samples per second, LOW:HIGH (drawn at random for each client) or FILE.json.",
        "federation",
        in_card=False,
    )


OPTIONS: dict[str, Option] = {item.name: item.metadata["option"] for item in fields(RunOptions)}
"""All options by name, in the order of ``config.toml``."""

CHANGEABLE_OPTIONS = tuple(name for name, item in OPTIONS.items() if item.may_change)
"""Names of the options that a resumed run may change."""


def find_options_by_scope(*scopes: Scope) -> tuple[str, ...]:
    """Return the names of the options with one of these scopes."""
    return tuple(name for name, item in OPTIONS.items() if item.scope in scopes)
