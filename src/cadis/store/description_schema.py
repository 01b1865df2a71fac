"""Schema of the description in a model file, which may come from a stranger.

The limits are far above those of models that cadis trains. They prevent that a file makes cadis
create an image or a network that does not fit into memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, ClassVar, Literal, TypeAlias
from unicodedata import category

from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from pydantic import AfterValidator, Discriminator

from cadis.algorithm.tasks import TASKS
from cadis.errors import CadisError
from cadis.server import STRICT

MAX_INPUT_SIZE = 3 * 2048 * 2048
"""Maximum number of values of an image, or of an input of a built-in network; ``--image-size`` is
at most 1024."""

_MAX_SIZE = 2**30
"""Maximum number of values of an input of a user's own network, which may be a large volume."""


def _check_text(text: str) -> str:
    """Refuse control characters, which would change a terminal on which the text is printed."""
    if not all(c in "\t\n\r" or category(c) != "Cc" for c in text):
        raise ValueError("has control characters")
    return text


def _check_name(text: str) -> str:
    if not text.isprintable():
        raise ValueError("has characters that cannot be printed")
    return text


_Text: TypeAlias = Annotated[str, MaxLen(10_000), AfterValidator(_check_text)]
_Name: TypeAlias = Annotated[str, MaxLen(1000), AfterValidator(_check_name)]
_Size: TypeAlias = Annotated[int, Gt(0), Le(_MAX_SIZE)]
_Count: TypeAlias = Annotated[int, Ge(0), Le(2**53)]
_Dtype: TypeAlias = Literal[
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


@dataclass(frozen=True)
class ScalingSchema:
    """The mean and the standard deviation of each channel."""

    __pydantic_config__: ClassVar = STRICT
    mean: list[float]
    deviation: list[Annotated[float, Gt(0)]]


@dataclass(frozen=True)
class ImageSchema:
    """Preprocessing of images."""

    __pydantic_config__: ClassVar = STRICT
    kind: Literal["pictures"]
    channels: _Size
    height: _Size
    width: _Size
    scaling: ScalingSchema

    def check(self, shape: Sequence[int]) -> None:
        """Raise an error if the preprocessing is for inputs of another shape."""
        if [self.channels, self.height, self.width] != list(shape):
            raise ValueError("has an image size that differs from the shape of the inputs")
        if prod(shape) > MAX_INPUT_SIZE:
            raise ValueError(f"has images of more than {MAX_INPUT_SIZE:,} values")
        sizes = len(self.scaling.mean), len(self.scaling.deviation)
        if sizes not in ((1, 1), (self.channels, self.channels)):
            raise ValueError("must have a mean and a deviation for each channel")


@dataclass(frozen=True)
class NumberSchema:
    """A column of numbers."""

    __pydantic_config__: ClassVar = STRICT
    name: _Text
    mean: float
    deviation: Annotated[float, Gt(0)]
    may_lack: bool

    @property
    def size(self) -> int:
        """Number of inputs of the model."""
        return 2 if self.may_lack else 1


@dataclass(frozen=True)
class CategorySchema:
    """A column of categories."""

    __pydantic_config__: ClassVar = STRICT
    name: _Text
    categories: Annotated[list[_Text], MinLen(1)]

    @property
    def size(self) -> int:
        """Number of inputs of the model."""
        return len(self.categories)


@dataclass(frozen=True)
class TableSchema:
    """Preprocessing of tables."""

    __pydantic_config__: ClassVar = STRICT
    kind: Literal["table"]
    columns: Annotated[list[NumberSchema | CategorySchema], MinLen(1)]

    def check(self, shape: Sequence[int]) -> None:
        """Raise an error if the columns do not give inputs of this shape."""
        if [sum(column.size for column in self.columns)] != list(shape):
            raise ValueError("has columns that do not match the shape of the inputs")


@dataclass(frozen=True)
class InputsSchema:
    """Description of the inputs."""

    __pydantic_config__: ClassVar = STRICT
    shape: Annotated[list[_Size], MaxLen(8)]
    dtype: _Dtype
    preprocessing: Annotated[ImageSchema | TableSchema, Discriminator("kind")] | None

    def __post_init__(self) -> None:
        if prod(self.shape) > _MAX_SIZE:
            raise ValueError(f"has more than {_MAX_SIZE:,} values per input")
        if self.preprocessing is not None:
            self.preprocessing.check(self.shape)


@dataclass(frozen=True)
class DescriptionSchema:
    """Description of a model; see :class:`~cadis.store.ModelDescription` for the fields."""

    __pydantic_config__: ClassVar = STRICT
    format: Annotated[int, Gt(0)]
    architecture: _Name
    num_outputs: _Size
    task: _Name
    classes: Annotated[list[_Text], MinLen(1)]
    inputs: InputsSchema | None
    rounds: _Count
    training: dict[str, Any]
    models: list[Annotated[_Name, MinLen(1)]]
    version: _Name

    def __post_init__(self) -> None:
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("has two classes of the same name")
        if len(set(self.models)) < len(self.models):
            raise ValueError("has two models of the same name")
        if self.task in TASKS:
            try:
                expected = TASKS[self.task]().num_outputs(len(self.classes))
            except CadisError as error:
                raise ValueError(str(error)) from None
            if self.num_outputs != expected:
                raise ValueError(
                    f"has {len(self.classes)} classes for {self.num_outputs} outputs of a model"
                )
