"""Options are the same after they are written to ``config.toml`` and read."""

import struct
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cadis._io import read_toml, to_toml
from cadis.errors import CadisError
from cadis.experiment import resolve

words = st.text(st.characters(codec="utf-8"), max_size=20)
paths = words.filter(lambda text: "\0" not in text)
integers = st.integers(-(2**63), 2**63 - 1)
scalars = st.one_of(st.booleans(), integers, st.floats(allow_nan=False), words)
lists = st.lists(scalars, max_size=4)
values = st.one_of(scalars, lists, lists.map(tuple))
tables = st.dictionaries(words, values | st.none(), max_size=4)


def to_lists(options: dict[str, Any]) -> dict[str, Any]:
    """Replace tuples by lists, and remove None."""
    changed = {k: to_lists(v) if isinstance(v, dict) else v for k, v in options.items()}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in changed.items() if v is not None}


@given(st.dictionaries(words, values | st.none() | tables, max_size=6))
def test_options_are_the_same_after_reading(options: dict[str, Any]) -> None:
    again = tomllib.loads(to_toml(options))
    assert again == to_lists(options)
    assert {k: type(v) for k, v in again.items()} == {
        k: type(v) for k, v in to_lists(options).items()
    }


@given(st.floats(allow_nan=False))
def test_numbers_are_identical_after_reading(number: float) -> None:
    (again,) = tomllib.loads(to_toml({"x": number})).values()
    assert struct.pack("d", again) == struct.pack("d", number)


@example('\x7f \\ " \n', 0.1, 0)
@given(paths, st.floats(min_value=1e-300, max_value=1e300), st.integers(-(2**63), 2**63 - 1))
def test_configuration_is_the_same_after_reading(text: str, number: float, seed: int) -> None:
    options = {"data_dir": text, "head": text, "lr": number, "gamma": number, "seed": seed}
    config = resolve({}, options)
    assert resolve(tomllib.loads(to_toml(config.to_dict())), {}) == config


@pytest.mark.parametrize("content", [b"lr = \xff", b"a = " + b"[" * 9000, b"x = " + b"9" * 5000])
def test_invalid_toml_is_an_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(content)
    with pytest.raises(CadisError, match="not valid TOML"):
        read_toml(tmp_path / "bad.toml")
