"""Inputs that would need too much memory are refused in one sentence, before they need it."""

import gzip
import io
import resource
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import cadis
from cadis import CadisError
from cadis._io import Callbacks, check_memory, read_json_object, read_toml, take_at_most
from cadis._io.memory import format_bytes, get_free_memory
from cadis.algorithm.samplers import FedCluster, HiCS, PowerOfChoice
from cadis.data import (
    Dataset,
    NumberColumn,
    Samples,
    TablePreprocessing,
    as_dataset,
    load_site_data,
)
from cadis.data.dicom import ImageError, read_dicom
from cadis.data.image_cache import decode
from cadis.data.preprocessing import CategoryColumn
from cadis.data.published import CATALOGUE, fetch
from cadis.data.published.published_files import MAX_BYTES, read_content
from cadis.data.table_files import read_table
from cadis.models import build_network

_X, _Y = torch.zeros(6, 3), torch.arange(6) % 2
_BLOCK = 1 << 22
"""Bytes that are written at once, so that a test does not need much memory itself."""

_LIMIT = 300 << 20
"""Bytes by which the memory of this process may grow while it refuses an input."""


def check_refused(call: Callable[[], object], sentence: str, limit: int = _LIMIT) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((CadisError, ImageError), match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < limit


def make_sparse(path: Path) -> Path:
    """Make a file of a terabyte that takes no space."""
    with path.open("wb") as file:
        file.truncate(1 << 40)
    return path


def test_limits_depend_on_free_memory_and_on_the_size_of_the_file() -> None:
    free = get_free_memory()
    check_memory(free / 4, "It", "help")
    check_refused(lambda: check_memory(free, "It", "help"), r"It needs .* \(half of what is free\)")
    check_memory(0.9e9, "It", "help", stored=1)  # expands much, but is small
    check_memory(1.1e9, "It", "help", stored=1e7)
    check_refused(
        lambda: check_memory(1.1e9, "It", "help", stored=1e6),
        r"It has 1.0 MB, but expands to 1.1 GB, more than the limit of 500 times its size; help\.",
    )
    assert [format_bytes(n) for n in (999, 2.5e6, 1234e9)] == ["1.0 kB", "2.5 MB", "1,234.0 GB"]


def test_limit_of_the_process_counts() -> None:
    code = (
        "import resource; from cadis._io.memory import get_free_memory\n"
        "resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30)); print(get_free_memory())"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert 0 < int(output) < 6 << 30


def test_lists_are_limited() -> None:
    assert take_at_most(iter("ab"), 2, "letters") == ["a", "b"]
    with pytest.raises(CadisError, match="letters has more than 2 entries; give fewer"):
        take_at_most(iter("abc"), 2, "letters")


@pytest.mark.parametrize("suffix", [".csv", ".safetensors", ".toml", ".json"])
def test_sparse_file(suffix: str, tmp_path: Path) -> None:
    path = make_sparse(tmp_path / f"huge{suffix}")
    calls: dict[str, list[Callable[[], object]]] = {
        ".csv": [lambda: read_table(path)],
        ".safetensors": [lambda: load_site_data(path, ["a"]), lambda: cadis.load(path)],
        ".toml": [lambda: read_toml(path)],
        ".json": [lambda: read_json_object(path)],
    }
    for call in calls[suffix]:
        check_refused(call, rf"{path} needs .* of memory, more than the limit of")


def test_gzipped_file_that_expands(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(MAX_BYTES // _BLOCK + 1):
            file.write(bytes(_BLOCK))
    check_refused(lambda: read_content(path), "more than 268,435,456 bytes", 3 * MAX_BYTES)


def test_archive_of_a_mirror_that_expands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mirror" / "cifar10"
    folder.mkdir(parents=True)
    member = tarfile.TarInfo("data_batch_1.bin")
    member.size = MAX_BYTES
    with gzip.open(folder / CATALOGUE["cifar10"].archive, "wb", compresslevel=1) as file:
        file.write(member.tobuf())
        for _ in range(MAX_BYTES // _BLOCK):
            file.write(bytes(_BLOCK))
    monkeypatch.setenv("CADIS_MIRROR", str(tmp_path / "mirror"))
    dataset = replace(CATALOGUE["cifar10"], mirrors=())
    check_refused(
        lambda: fetch(dataset, tmp_path, Callbacks()), "not the expected archive", 3 * MAX_BYTES
    )


def test_parquet_file_that_expands(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    same = arrow.DictionaryArray.from_arrays(np.zeros(20_000_000, np.int8), ["x"])
    parquet.write_table(arrow.table({"a": same}), tmp_path / "same.parquet")
    check_refused(lambda: read_table(tmp_path / "same.parquet"), "expands to 3.0 GB, more than")
    long = arrow.DictionaryArray.from_arrays(np.zeros(2000, np.int8), ["y" * 1_000_000])
    parquet.write_table(arrow.table({"a": long}), tmp_path / "long.parquet", store_schema=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read_table(tmp_path / "long.parquet")["a"].map(len).sum() == 2_000_000_000
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < _LIMIT


def test_parquet_text_without_values_is_read_as_before(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"a": [" x", None, "x", "y"], "b": [None] * 4, "c": [1.5, None, 2.0, -0.0]}
    table = arrow.table({**columns, "b": arrow.array(columns["b"], "string")})
    parquet.write_table(table, tmp_path / "t.parquet")
    cells = read_table(tmp_path / "t.parquet")
    assert cells.to_numpy().T.tolist() == [
        ["x", "", "x", "y"],
        [""] * 4,
        ["1.5", "", "2.0", "-0.0"],
    ]


def test_table_of_many_columns(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    titles = ",".join(f"c{n}" for n in range(200_000))
    path.write_text(f"{titles}\n{titles}\n")
    check_refused(lambda: read_table(path), "has 200,000 columns, more than 100,000")


def test_table_of_many_categories() -> None:
    column = CategoryColumn("c", tuple(map(str, range(1000))))
    table = {"c": ["1"] * 40_000_000}
    check_refused(lambda: TablePreprocessing((column,)).encode(table), "1000 inputs|1,000 inputs")
    assert TablePreprocessing((NumberColumn("c", 0, 1, False),)).encode({"c": ["1"]}).tolist()


def test_arrays_that_expand_or_lie(tmp_path: Path) -> None:
    header = io.BytesIO()
    shape = (1 << 36, 3)
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": shape}
    )
    with zipfile.ZipFile(tmp_path / "lie.npz", "w") as file:
        file.writestr("inputs.npy", header.getvalue() + bytes(100))
    check_refused(lambda: load_site_data(tmp_path / "lie.npz", ["a"]), "does not have its shape")
    np.savez_compressed(tmp_path / "bomb.npz", inputs=np.zeros((150_000, 1000), np.uint8))
    check_refused(lambda: load_site_data(tmp_path / "bomb.npz", ["a"]), "expands to 1.4 GB")


def test_dicom_file_that_expands(tmp_path: Path) -> None:
    pytest.importorskip("pydicom")
    syntax = b"1.2.840.10008.1.2.1.99"  # deflated
    element = b"\2\0\x10\0UI" + len(syntax).to_bytes(2, "little") + syntax
    length = b"\2\0\0\0UL\4\0" + len(element).to_bytes(4, "little")
    deflater = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    path = tmp_path / "a.dcm"
    with path.open("wb") as file:
        file.write(bytes(128) + b"DICM" + length + element)
        for _ in range((1 << 30) // _BLOCK + 1):
            file.write(deflater.compress(bytes(_BLOCK)))
        file.write(deflater.flush())
    check_refused(lambda: read_dicom(path), "it expands to more than 1,073,741,824 bytes")


def test_images_in_memory(tmp_path: Path) -> None:
    paths = [tmp_path / "a.png"] * 30_000_000
    check_refused(lambda: decode(paths, 1024, None, Callbacks()), "images of 1024 x 1024 pixels")


def test_labels_and_clusters() -> None:
    large = _Y + 1_400_000_000
    samples, wrong = Samples(_X, _Y), Samples(_X, large)
    below = "has the label 1,400,000,001, but class numbers must be below 100,000"
    model = nn.Linear(3, 2)
    options: dict[str, Any] = {"rounds": 1, "workers": 1}
    check_refused(lambda: as_dataset({"clients": [(_X, large)]}, "mine"), below)
    check_refused(lambda: as_dataset(Dataset("a", wrong, samples, ("a", "b")), "mine"), below)
    two = Samples(_X, _Y + 1)
    check_refused(
        lambda: as_dataset(Dataset("a", samples, two, ("a", "b")), "mine"), "label 2, but only 2"
    )
    check_refused(lambda: cadis.run(model, [(_X, large)], (_X, _Y), **options), below)
    check_refused(lambda: cadis.run(model, [(_X, _Y)], (_X, large), **options), below)
    clusters: dict[str, Any] = {
        "true_clusters": [0, 10**12],
        "method": cadis.CADIS(clusters="true"),
    }
    check_refused(
        lambda: cadis.run(model, [(_X, _Y)] * 2, (_X, _Y), **options, **clusters),
        "true cluster 1,000,000,000,000, but the numbers must be below",
    )


def test_outputs_and_models() -> None:
    options: dict[str, Any] = {"rounds": 1, "workers": 1, "method": "fedavg"}
    wide = nn.Linear(3, 300_000)
    check_refused(
        lambda: cadis.run(wide, [(_X, _Y)], (_X, _Y), **options),
        "Counting the samples of 300,000 classes needs 720.0 GB",
    )
    check_refused(lambda: build_network("mlp", (3, 90_000, 90_000), 2), "mlp for inputs of shape")
    check_refused(lambda: build_network("cnn", (1, 28, 28), 10**10), "10,000,000,000 outputs")
    ifca = {**options, "method": cadis.IFCA(num_models=10**10)}
    check_refused(lambda: cadis.run(nn.Linear(3, 2), [(_X, _Y)], (_X, _Y), **ifca), "IFCA with")


@pytest.mark.parametrize(
    "parts",
    [
        {"method": cadis.FedAT(tiers=10**9)},
        {"sampler": FedCluster(num_clusters=10**9)},
        {"sampler": HiCS(num_clusters=10**9)},
        {"sampler": PowerOfChoice(candidates=10**9)},
    ],
)
def test_large_parameters_take_no_memory(parts: dict[str, object]) -> None:
    options: dict[str, Any] = {"method": "fedavg", **parts}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model, clients = nn.Linear(3, 2), [(_X, _Y)] * 4
    cadis.run(model, clients, (_X, _Y), rounds=1, epochs=1, per_round=2, workers=1, **options)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < _LIMIT


def test_endless_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    import itertools

    from cadis._io import memory

    monkeypatch.setattr(memory, "_SHARE", 100e6 / get_free_memory())
    batch = (torch.zeros(100, 1000), torch.zeros(100, dtype=torch.int64))
    for endless in (itertools.repeat(batch), ((batch[0].clone(), batch[1]) for _ in iter(int, 1))):
        check_refused(
            lambda data=endless: cadis.run(nn.Linear(1000, 2), [data], batch, rounds=1),  # type: ignore[misc]
            "Client 0 needs .* give it fewer samples",
        )
