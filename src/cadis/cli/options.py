"""Options that are read from the classes that hold them: a new method has its options at once."""

import inspect
import re
import types
from dataclasses import fields
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import click

from cadis.experiment import FederationSettings, Settings
from cadis.methods import METHODS
from cadis.partition import PARTITIONERS


class GeneratedOption(click.Option):
    """An option that stands for a field of a class; help lists it in its section."""

    def __init__(self, name: str, section: str, **attributes: Any) -> None:
        super().__init__([f"--{name.replace('_', '-')}"], **attributes)
        self.section = section


def run_options() -> list[GeneratedOption]:
    """Options for the method, the settings, and the parameters of all methods and partitions.

    Values stay as typed; they are checked when the experiment is put together, where values
    from files are checked too.
    """
    which = f"How to learn: {', '.join(METHODS)}.  [default: cadis]"
    options = {"method": GeneratedOption("method", "Experiment", metavar="NAME", help=which)}
    _add_fields(options, Settings, "Experiment")
    for name, method in METHODS.items():
        _add_fields(options, method, "Parameters of the methods", f"{name}: ")
    _add_partitioners(options)
    return list(options.values())


def compare_options() -> list[GeneratedOption]:
    """Those of a run, but for the method: there are several."""
    return [option for option in run_options() if option.name != "method"]


def layer_options() -> list[GeneratedOption]:
    """Those that matter to the training of single clients."""
    names = {"dataset", "data_dir", "offline", "image_size", "seed", "model", "head"}
    names |= {"epochs", "batch_size", "lr", "workers", "device"}
    return [option for option in run_options() if option.name in names]


def partition_options() -> list[GeneratedOption]:
    """Options for the dataset, and who has what of it."""
    options: dict[str, GeneratedOption] = {}
    _add_fields(options, FederationSettings, "Federation")
    _add_partitioners(options)
    return list(options.values())


def _add_partitioners(options: dict[str, GeneratedOption]) -> None:
    for name, partitioner in PARTITIONERS.items():
        _add_fields(options, partitioner, "Parameters of the partitions", f"{name}: ")


def _add_fields(
    options: dict[str, GeneratedOption], kind: type, section: str, prefix: str = ""
) -> None:
    described = described_attributes(kind)
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        text = described[field.name]
        text = f"{prefix}{text}" if prefix else f"{text[0].upper()}{text[1:]}"
        if field.default != "" and hints[field.name] is not bool:
            text = f"{text}  [default: {_written(field.default)}]"
        if field.name in options:  # two parts may have a parameter of one name
            options[field.name].help = f"{options[field.name].help} {text}"
        elif hints[field.name] is bool:
            flag = GeneratedOption(field.name, section, is_flag=True, default=None, help=text)
            options[field.name] = flag
        else:
            metavar = _metavar(hints[field.name])
            options[field.name] = GeneratedOption(field.name, section, metavar=metavar, help=text)


def described_attributes(kind: type) -> dict[str, str]:
    """What the docstrings of a class and its bases say of its attributes."""
    described: dict[str, str] = {}
    for ancestor in reversed(kind.__mro__):
        joined = re.sub(r"\n {8,}", " ", inspect.cleandoc(ancestor.__doc__ or ""))
        described |= dict(re.findall(r"^ {4}(\w+): (.+)$", joined, re.MULTILINE))
    return described


def _written(value: Any) -> str:
    """A default as a user would type it."""
    return ":".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _metavar(hint: Any) -> str:
    """How a type is shown in help."""
    if get_origin(hint) is Annotated:
        return _metavar(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return "|".join(get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return "|".join(_metavar(part) for part in get_args(hint))
    return {int: "N", float: "X", str: "NAME"}.get(hint, "N:N:...")
