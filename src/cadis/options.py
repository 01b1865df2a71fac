"""Options of an experiment, each declared once: type, default, help text and scope.

The command line, ``config.toml``, resuming, comparability, the model card, the engine settings and
the Flower app are derived from these declarations; no other module lists option names. ``store``,
``flower`` and ``analysis`` select options by scope, so this module is below all of them and has
declarations only; :class:`cadis.experiment.Settings` adds the code that needs models and the
engine. The parts of the algorithm (method, sampler, ...) are declared in ``cadis.algorithm.KINDS``.
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
- machine: where a run computes and where it finds files. These options change results only by
  rounding.
"""


@dataclass(frozen=True)
class Option:
    """Description of an option; its name, type and default are those of the dataclass field.

    Attributes:
        help: the help text for users.
        scope: the aspect of an experiment that the option controls.
        resumable: whether a resumed run may change the value although the scope is not "machine".
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
        "parquet:PATH, or FILE.py:FUNCTION, which returns the data.",
        "data",
    )
    data_dir: str = option(
        "",
        "Folder to search for datasets and download to.",
        "machine",
    )
    offline: bool = option(False, "Do not download anything.", "machine")
    image_size: Annotated[int, Ge(8), Le(1024)] = option(
        224,
        "Pixels per side of the images of images:FOLDER.",
        "data",
        in_card=False,  # the shape of the model's inputs
    )
    cache: bool = option(
        True,
        "Cache decoded images; see 'cadis data cache'.",
        "machine",
    )
    client_column: str = option(
        "",
        "Table column that names the client of a row; by default, each file is one client.",
        "data",
    )
    label_column: str = option("", 'Table column of the class; by default "label".', "data")
    ignore_columns: tuple[str, ...] = option((), "Table columns that are not inputs.", "data")
    category_columns: tuple[str, ...] = option(
        (),
        "Table columns of numbers that are categories.",
        "data",
    )


@dataclass(frozen=True)
class PartitionOptions(DatasetOptions):
    """Options that select a dataset and split it among clients."""

    partition: str = option(
        "auto",
        "How training data are split among clients: mc, bc, uc, pa, iid, dirichlet, clients (as "
        'given by the data), or FILE.json; "auto" is clients if the data name clients, else mc.',
        "data",
    )
    clients: Annotated[int, Gt(0)] | Literal["auto"] = option(
        "auto",
        'Number of clients; "auto" is the number in the data, else 20.',
        "data",
    )
    min_samples: Annotated[int, Gt(0)] = option(
        2, "Minimum number of samples of a client.", "data", in_card=False
    )
    allow_overlap: bool = option(
        False,
        "Let a partition file assign samples repeatedly.",
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
        'MODULE:FUNCTION; "auto" chooses by the shape of the inputs.',
        "training",
        in_card=False,  # the architecture of the description
    )
    head: str = option(
        "",
        "Name of the classifier layer; by default detected.",
        "training",
    )
    per_round: Annotated[int, Gt(0)] | Annotated[float, Gt(0), Lt(1)] | Literal["auto"] = option(
        "auto",
        'Participants per round: a number, or a fraction such as 0.3; "auto" is at most 10.',
        "federation",
    )
    rounds: Annotated[int, Gt(0)] = option(80, "Number of rounds.", "federation", resumable=True)
    epochs: Annotated[int, Gt(0)] = option(5, "Local epochs per round.", "training")
    batch_size: Annotated[int, Gt(0)] = option(8, "Batch size of local training.", "training")
    lr: Annotated[float, Gt(0)] | Literal["auto"] = option(
        "auto",
        'Learning rate of local training; "auto" is 0.1 for small-cnn and mlp, 0.001 for the '
        "ResNets, 0.01 for other models.",
        "training",
    )
    augment: tuple[str, ...] = option(
        (),
        "Data augmentation: flip, crop.",
        "training",
    )
    precision: Precision = option(  # noqa: RUF009
        "float32",
        "Precision; bf16 is faster for large models on hardware that supports it.",
        "training",
    )
    workers: Annotated[int, Gt(0), Le(1024)] | Literal["auto"] = option(
        "auto", 'Worker processes; "auto" is one per core.', "machine"
    )
    device: Device = option(  # noqa: RUF009
        "auto", 'Device to train on; "auto" prefers an accelerator.', "machine"
    )
    test_clients: Annotated[int, Ge(0)] = option(
        10,
        "Test on the data of clients every N rounds; 0 is never.",
        "federation",
        resumable=True,
    )
    eval_every: Annotated[int, Gt(0)] = option(
        1,
        "Test on the test set every N rounds.",
        "federation",
        resumable=True,
    )
    stack: bool = option(
        True,
        "Train several clients at once if the model is small.",
        "machine",
    )
    client_test: Annotated[float, Ge(0), Lt(1)] = option(
        0.0,
        "Fraction of each client's data that is held out to test it.",
        "data",
    )
    own_tests: bool = option(
        True,
        "Test clients on their own test samples, if any.",
        "federation",
        resumable=True,
    )
    speeds: str = option(
        "",
        "Samples per second of clients, for a simulated clock: LOW:HIGH (random) or FILE.json.",
        "federation",
        in_card=False,
    )


OPTIONS: dict[str, Option] = {item.name: item.metadata["option"] for item in fields(RunOptions)}
"""All options by name, in the order of ``config.toml``."""

MAY_CHANGE = tuple(name for name, item in OPTIONS.items() if item.may_change)
"""Names of the options that a resumed run may change."""


def find_options_by_scope(*scopes: Scope) -> tuple[str, ...]:
    """Return the names of the options with one of these scopes."""
    return tuple(name for name, item in OPTIONS.items() if item.scope in scopes)
