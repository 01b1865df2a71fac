"""Wrong arguments of public functions that read data or build models: one sentence each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cadis import CadisError
from cadis.analysis import read_results
from cadis.data import as_dataset, as_samples, load, load_site_data, read_table
from cadis.data.partition import read_partition
from cadis.models import build_network

_WRONG: tuple[Any, ...] = (
    *(None, 5, True, b"x", "", [], {}, float("nan"), "a\0b", "x" * 5000, object(), Path),
)
_CALLS: dict[str, Callable[[Any], object]] = {
    "load": load,
    "data_dir": lambda value: load("mnist", value, offline=True),
    "as_dataset": lambda value: as_dataset(value, "mine"),
    "as_samples": lambda value: as_samples(value, "It").check("It"),
    "load_site_data": lambda value: load_site_data(value, ["a"]),
    "classes": lambda value: load_site_data(Path("none.npz"), value),
    "read_table": read_table,
    "read_partition": lambda value: read_partition(value, 5, allow_overlap=False, minimum=1),
    "read_results": read_results,
    "path": lambda value: read_results([value]),
    "model": lambda value: build_network(value, (1, 8, 8), 2),
    "shape": lambda value: build_network("small-cnn", value, 2),
    "outputs": lambda value: build_network("mlp", (1, 8, 8), value if value != 5 else -5),
}


@pytest.mark.parametrize("name", _CALLS)
def test_wrong_arguments_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CADIS_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    for value in _WRONG:
        with pytest.raises(CadisError) as caught:
            _CALLS[name](value)
        sentence = str(caught.value)
        assert sentence.endswith((".", "?")), sentence
        assert "\n" not in sentence, sentence
