"""Inputs for what takes options: files, dictionaries, command lines."""

import contextlib
import io
from pathlib import Path
from random import Random
from typing import Any

import cadis
from cadis._io import read_toml, to_toml
from cadis.algorithm.methods import METHODS
from cadis.cli import commands
from cadis.cli.options import run_options
from cadis.experiment import ExperimentConfig, resolve
from torture.disturbance import sketch
from torture.mutation import ODD, mutated
from torture.outcomes import Case, SilentChangeError

_NAMES = [str(option.name) for option in run_options()]
_FITTING: dict[str, tuple[Any, ...]] = {
    "method": ("fedavg", "feddyn", "cadis", "CADIS", "none"),
    "dataset": ("digits", "mnist", "images:x", "images:", "nothing"),
    "partition": ("mc", "iid", "auto", "clients", "a.json", ".json", "nothing"),
    "model": ("mlp", "auto", "a:b", ":", "os:system", "nothing"),
    "ratio": ("3:2:1", "1", "0:0", "-1:1", "1:x", [1, 2], "9999999999:1"),
    "data_dir": tuple(value for value in ODD if isinstance(value, str)),
    "head": tuple(value for value in ODD if isinstance(value, str)),
    "seed": (0, 7, -1, 2**31, 2**63, 2**64, "12", "1_000", " 5 ", 1.0, True),
    "lr": (0.1, "0.1", 1e-320, 1e308, 10**30, "1e-3", ".5", "1_0.0", "auto", 1),
}
_NUMBERS = (1, 2, 50, "3", 0.25, "0.25", 1.0, "1.0", " 4", "٣", "1e2", True)
"""What options that are numbers may be given."""

_LITERALS = [
    r"1",
    r"-1",
    r"1e400",
    r"nan",
    r"inf",
    r'""',
    r'"a\nb"',
    r"[1]",
    r"{a=1}",
    r"true",
    r"1979-05-27",
    r'"auto"',
    r"0x10",
    r"[",
    r"'\'",
    r'"\u0000"',
    r'"\U0001F600"',
    r'"\x"',
    r"99999999999999999999",
    r"0.5",
    r'"3:2:1"',
    r"[3,2]",
]
"""Values in a file."""


def option_file(folder: Path, _base: Path, random: Random) -> Case:
    """An experiment's file, whose text is changed."""
    text = to_toml(resolve({}, {"method": random.choice(list(METHODS))}).to_dict())
    path = folder / "experiment.toml"
    lines = text.splitlines()
    line = random.randrange(len(lines))
    lines[line] = f"{lines[line].split('=')[0]}= {random.choice(_LITERALS)}"
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    path.write_bytes(mutated(content, random) if random.random() < 0.5 else content)
    return f"TOML, {lines[line]!r}", lambda: _kept(resolve(read_toml(path), {}), folder)


def options(folder: Path, _base: Path, random: Random) -> Case:
    """Options as a program gives them."""
    given = {name: _value(name, random) for name in random.sample(_NAMES, random.randint(1, 4))}
    if random.random() < 0.1:
        given[str(random.choice(ODD))[:20]] = 1
    return f"options {given!r}", lambda: _kept(resolve({}, given), folder)


def command_line(folder: Path, base: Path, random: Random) -> Case:
    """What somebody may type; nothing that trains."""
    odd = [str(value)[:100] for value in ODD if "\0" not in str(value)]
    place = random.choice([*odd, str(folder), str(folder / "none"), str(base)])
    some = [
        part
        for name in random.sample(_NAMES, random.randint(0, 3))
        for part in (f"--{name.replace('_', '-')}", str(_value(name, random)))
    ]
    arguments = random.choice(
        [
            ["presets", place],
            ["data", "--data-dir", place],
            ["data", "verify", random.choice(["mnist", place]), "--data-dir", place],
            ["report", place],
            ["report", place, "--out", random.choice(odd)],
            ["watch", random.choice([*odd, str(folder)]), "--port", random.choice(odd)],
            ["run", "--resume", "--out", place, *some],
            ["run", place, *some, "--rounds", "0"],
            ["run", "--preset", place, *some, "--rounds", "x"],
            ["compare", "--methods", place, *some, "--rounds", "0"],
            ["sweep", "--grid", place, *some, "--rounds", "0"],
            ["partition", *some, "--clients", random.choice(["0", *odd]), "--offline"],
            [place, *some],
        ]
    )
    safe = [argument.encode("utf-8", "replace").decode() for argument in arguments]
    return f"cadis {safe!r}", lambda: typed(safe, folder)


def typed(arguments: list[str], folder: Path) -> None:
    sketch()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        commands(arguments, prog_name="cadis")


def _kept(config: ExperimentConfig, folder: Path) -> None:
    """What was accepted is the same when it is read back."""
    path, before = folder / "kept.toml", config.to_dict()
    text = to_toml(before)
    try:
        path.write_text(text, encoding="utf-8")
        after = resolve(read_toml(path), {}).to_dict()
    except (cadis.CadisError, UnicodeEncodeError) as error:
        raise SilentChangeError(f"accepted, but not to be read back: {error}") from None
    if repr(after) != repr(before):
        differing = [key for key in before if repr(before[key]) != repr(after.get(key))]
        raise SilentChangeError(f"read back otherwise: {differing}")


def _value(name: str, random: Random) -> Any:
    fitting = _FITTING.get(name, _NUMBERS)
    return random.choice(fitting if random.random() < 0.7 else ODD)
