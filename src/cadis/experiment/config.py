"""An experiment as options: from a TOML file, the command line, or both."""

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from annotated_types import Gt, MinLen
from pydantic import TypeAdapter, ValidationError

from cadis.core import CadisError
from cadis.data import DATASETS
from cadis.engine import Device, EngineSettings
from cadis.methods import METHODS, Method
from cadis.models import MODELS
from cadis.training import LocalSettings

_T = TypeVar("_T")


@dataclass(frozen=True)
class Settings:
    """Everything about an experiment but the method and its parameters.

    Attributes:
        dataset: what is learned: digits.
        model: what learns it: small-cnn or cnn.
        clients: number of clients, n.
        ratio: relative number of clients of the clusters; each cluster has classes of its own.
        per_round: clients that take part in a round, k.
        rounds: number of rounds.
        epochs: passes of a client over its data in a round.
        batch_size: examples in a step of SGD.
        lr: learning rate of SGD.
        seed: seed of everything random; the same seed gives the same result.
        workers: processes that train clients, or "auto" for one on each core.
        device: where to train; "auto" takes an accelerator if there is one.
    """

    dataset: str = "digits"
    model: str = "small-cnn"
    clients: Annotated[int, Gt(0)] = 20
    ratio: Annotated[tuple[Annotated[int, Gt(0)], ...], MinLen(1)] = (3, 3, 2, 1, 1)
    per_round: Annotated[int, Gt(0)] = 10
    rounds: Annotated[int, Gt(0)] = 80
    epochs: Annotated[int, Gt(0)] = 5
    batch_size: Annotated[int, Gt(0)] = 8
    lr: Annotated[float, Gt(0)] = 0.1
    seed: int = 0
    workers: Annotated[int, Gt(0)] | Literal["auto"] = "auto"
    device: Device = "auto"

    def for_engine(self) -> EngineSettings:
        """The part that the engine wants to know."""
        local = LocalSettings(self.epochs, self.batch_size, self.lr)
        return EngineSettings(
            self.rounds, self.per_round, self.seed, self.workers, self.device, local
        )


@dataclass(frozen=True)
class ExperimentConfig:
    """A resolved experiment: nothing is left to defaults."""

    method: Method
    settings: Settings = field(default_factory=Settings)

    def to_dict(self) -> dict[str, Any]:
        """As in the TOML file: settings, then a table of the method's parameters."""
        return options_of(self.method, asdict(self.settings))


def options_of(method: Method, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings, the method's name, and a table of its parameters."""
    return {"method": method.name, **settings, method.name: parameters_of(method)}


def parameters_of(method: Method) -> dict[str, Any]:
    """A method's parameters by name."""
    return {name: getattr(method, name) for name in names_of(type(method))}


def method_from(options: Mapping[str, Any]) -> Method:
    """The method of a stored ``config.toml``."""
    name = options["method"]
    return METHODS[name](**options.get(name, {}))


def names_of(kind: type) -> list[str]:
    """Names of a dataclass's fields."""
    return [f.name for f in fields(kind)]


def read_toml(path: Path) -> dict[str, Any]:
    """The options in a file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CadisError(f"The file {path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CadisError(f"The file {path} is not valid TOML: {error}.") from None


def to_toml(options: Mapping[str, Any]) -> str:
    """Options as TOML: JSON's scalars and lists are TOML's too."""
    scalars = {key: value for key, value in options.items() if not isinstance(value, dict)}
    lines = [_line(key, value) for key, value in scalars.items() if value is not None]
    for name, table in options.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]", *(_line(key, value) for key, value in table.items())]
    return "\n".join(lines) + "\n"


def resolve(file: Mapping[str, Any], given: Mapping[str, Any]) -> ExperimentConfig:
    """The experiment that a file and given options describe; given options win.

    Args:
        file: a TOML file's content: settings, and a table for each method that needs one.
        given: settings and the method's parameters, side by side, as a user types them.
    """
    tables = {name: value for name, value in file.items() if isinstance(value, dict)}
    check_names("method", tables, METHODS)
    flat = {name: value for name, value in file.items() if name not in tables}
    names = names_of(Settings)
    for name in flat:
        if owners := _owners(name):
            raise CadisError(f"'{name}' belongs to {owners}; put it into a table of that name.")
    check_names("option", flat, ["method", *names])
    method = str(given.get("method", flat.get("method", "cadis"))).lower()
    check_names("method", [method], METHODS)
    for name, table in tables.items():
        check_names(f"parameter of {name}", table, names_of(METHODS[name]))
    own = {key: value for key, value in given.items() if key not in (*names, "method")}
    for name in own:
        owners = _owners(name)
        if owners and name not in names_of(METHODS[method]):
            raise CadisError(f"'{name}' is a parameter of {owners}, not of {method}.")
    check_names("option", own, names_of(METHODS[method]))
    chosen = {key: value for key, value in (flat | dict(given)).items() if key in names}
    settings = validated(Settings, _split_lists(chosen))
    check_names("dataset", [settings.dataset], DATASETS)
    check_names("model", [settings.model], MODELS)
    return ExperimentConfig(validated(METHODS[method], tables.get(method, {}) | own), settings)


def _owners(name: str) -> str:
    """The methods that have a parameter of this name."""
    return " and ".join(m for m, kind in METHODS.items() if name in names_of(kind))


def check_names(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse unknown names, with the one that was probably meant."""
    choices = list(known)
    for name in names:
        if name not in choices:
            close = difflib.get_close_matches(str(name), choices, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(choices)}."
            raise CadisError(f"There is no {kind} '{name}'; {hint}")


def validated(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """A dataclass from values of the right or a convertible type, or one sentence."""
    names = {*names_of(kind), *names_of(LocalSettings)}
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "value_error":  # our own sentence, about more than one field
            raise CadisError(str(first["ctx"]["error"])) from None
        name = [part for part in first["loc"] if part in names][-1]
        problem = first["msg"].removeprefix("Input ")
        raise CadisError(f"{name} {problem}, not {first['input']!r}.") from None


def _split_lists(values: Mapping[str, Any]) -> dict[str, Any]:
    """On the command line a list is typed with colons, as in 3:3:2:1:1."""
    ratio = values.get("ratio")
    split = {"ratio": ratio.split(":")} if isinstance(ratio, str) else {}
    return {**values, **split}


def _line(key: str, value: object) -> str:
    return f"{key} = {json.dumps(value, ensure_ascii=False)}"
