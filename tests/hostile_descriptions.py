"""Model files with hostile descriptions or headers, as a stranger may send them."""

import copy
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors.torch import save
from torch import Tensor

import cadis
from cadis._io import NO_CALLBACKS
from cadis.data import ImagePreprocessing, Scaling, TablePreprocessing
from cadis.data.preprocessing import CategoryColumn, NumberColumn
from cadis.inference import export
from cadis.models import build_network
from cadis.store import ModelDescription, ModelInputs

CLASSES = ("cat", "dog", "hen")
_TABLE = TablePreprocessing((NumberColumn("age", 40, 10, True), CategoryColumn("sex", ("f", "m"))))
_INPUTS = {
    "image": ModelInputs((1, 8, 8), "uint8", ImagePreprocessing(1, 8, 8, Scaling((0.5,), (0.2,)))),
    "table": ModelInputs((4,), "float32", _TABLE),
    "tensor": ModelInputs((1, 8, 8), "float32"),
}
_NETWORKS = {"image": "small-cnn", "table": "mlp", "tensor": "mlp"}

ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10,
    2**31,
    2**63,
    10**400,
    1e308,
    float("nan"),
    "",
    "x" * 100_000,
    "\ud800",
    "a\nb\x1b[31m",
    "__class__",
    [],
    [[]],
    [1] * 1000,
    [2**62, 2**62],
    ["cat", "cat", "cat"],
    {},
    {"kind": "pictures"},
    {"__import__": "os"},
)
"""Values that are wrong for most fields."""


def make_description(kind: str = "image", architecture: str = "") -> dict[str, Any]:
    """Return a valid description as a JSON object."""
    name = architecture or _NETWORKS[kind]
    description = ModelDescription(name, 3, "classification", CLASSES, _INPUTS[kind], 5, {"lr": 1})
    content: dict[str, Any] = json.loads(description.to_text())
    return content


def make_tensors(kind: str = "image") -> dict[str, Tensor]:
    """Return the tensors of the network of a valid description."""
    return dict(build_network(_NETWORKS[kind], _INPUTS[kind].shape, 3).state_dict())


def encode(content: Any, tensors: dict[str, Tensor]) -> bytes:
    """Return a model file; a text is written as it is, other content as JSON."""
    text = content if isinstance(content, str) else json.dumps(content)
    return save(tensors, {"cadis": text})


def list_hostile_files() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each hostile model file."""
    for kind in _INPUTS:
        tensors = make_tensors(kind)
        for name, changed in _change_fields(make_description(kind)):
            yield f"{kind}: {name}", encode(changed, tensors)
    tensors = make_tensors()
    for name, content in (*_list_texts(), *_list_contradictions()):
        yield name, encode(content, tensors)
    for name, others in _list_wrong_tensors():
        yield f"tensors: {name}", encode(make_description(), others)
    for name, file in _list_headers(encode(make_description(), tensors)):
        yield f"header: {name}", file


def _list_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys = value if isinstance(value, dict) else range(len(value)) if value else []
    for key in keys:
        yield (*path, key)
        if isinstance(value[key], dict | list):
            yield from _list_paths(value[key], (*path, key))


def _change_fields(base: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in _list_paths(base):
        for number, odd in enumerate([*ODD, ...]):  # an ellipsis deletes the field
            content = copy.deepcopy(base)
            holder: Any = content
            for key in path[:-1]:
                holder = holder[key]
            if odd is ...:
                del holder[path[-1]]
            else:
                holder[path[-1]] = odd
            yield f"{'.'.join(map(str, path))} is odd value {number}", content


def _list_texts() -> Iterator[tuple[str, str]]:
    valid = json.dumps(make_description())
    yield "empty", ""
    yield "no JSON", "<html>"
    yield "null", "null"
    yield "a list", "[]"
    yield "a number", "3"
    yield "two objects", valid + valid
    yield "cut", valid[:-5]
    yield "deep list", "[" * 100_000
    yield "deep closed list", "[" * 100_000 + "]" * 100_000
    yield "deep training", valid.replace('{"lr": 1}', '{"a":' * 5000 + "1" + "}" * 5000)
    yield "duplicate key", valid.replace('"rounds": 5', '"rounds": 5, "rounds": "x"')
    yield "long number", valid.replace('"rounds": 5', f'"rounds": {"9" * 100_000}')
    yield "infinite", valid.replace('"rounds": 5', '"rounds": Infinity')
    yield "escaped surrogate", valid.replace('"cat"', '"\\ud800"')
    yield "unknown key", valid[:-1] + ', "\\u001b[31m' + "k" * 5000 + '": 1}'


def _list_contradictions() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield descriptions whose fields are valid, but do not belong together."""
    base = make_description()
    changes: dict[str, dict[str, Any]] = {
        "two classes": {"classes": ["a", "b"]},
        "ten outputs": {"num_outputs": 10},
        "ten outputs, ten classes": {"num_outputs": 10, "classes": [*"abcdefghij"]},
        "equal classes": {"classes": ["a", "b", "a"]},
        "binary": {"task": "binary"},
        "binary of two": {"task": "binary", "num_outputs": 1, "classes": ["a", "b"]},
        "no inputs": {"inputs": None},
        "models": {"models": ["a", "b"]},
        "equal models": {"models": ["a", "a"]},
        "newer format": {"format": 2},
        **{f"a {name}": {"architecture": name} for name in ("cnn", "mlp", "resnet9", "resnet18")},
    }
    for size in (1, 4, 9, 1024, 2048, 10**5, 10**9):
        image = {**base["inputs"]["preprocessing"], "height": size, "width": size}
        inputs = {**base["inputs"], "shape": [1, size, size]}
        changes[f"images of {size}"] = {"inputs": {**inputs, "preprocessing": image}}
        changes[f"shape of {size}"] = {"inputs": inputs}
        for name in ("mlp", "resnet9", "resnet18"):
            changes[f"{name} of {size}"] = {
                "architecture": name,
                "inputs": {**inputs, "preprocessing": None, "dtype": "float32"},
            }
    for dtype in ("int64", "bool", "float64", "complex64", "save", "nn", "quint8", "float8_e5m2"):
        inputs = {**base["inputs"], "preprocessing": None, "dtype": dtype}
        changes[f"dtype {dtype}"] = {"inputs": inputs}
    for name, change in changes.items():
        yield name, {**base, **change}


def _list_wrong_tensors() -> Iterator[tuple[str, dict[str, Tensor]]]:
    base = make_tensors()
    first, *others = base
    yield "none", {}
    yield "one is missing", {name: base[name] for name in others}
    yield "one more", base | {"more": torch.zeros(3)}
    yield "transposed", base | {first: base[first].transpose(0, 2).contiguous()}
    yield "empty", {name: torch.zeros(0) for name in base}
    yield "half precision", {name: tensor.half() for name, tensor in base.items()}
    yield "NaN", {name: tensor * float("nan") for name, tensor in base.items()}
    yield "a long name", base | {"x" * 100_000: torch.zeros(1)}


def _list_headers(valid: bytes) -> Iterator[tuple[str, bytes]]:
    (size,) = struct.unpack("<Q", valid[:8])
    header, data = json.loads(valid[8 : 8 + size]), valid[8 + size :]
    name = next(key for key in header if key != "__metadata__")
    for length in (0, 1, size - 1, size + 1, len(valid), 2**25 + 1, 2**31, 2**63, 2**64 - 1):
        yield f"length {length}", struct.pack("<Q", length) + valid[8:]
    for length in (0, 4, 8, 20, len(valid) - 1):
        yield f"cut at {length}", valid[:length]
    texts = {"no JSON": "x" * 50, "deep": "[" * 50_000, "list": "[]", "number": "1", "empty": "{}"}
    texts["no metadata"] = json.dumps({k: v for k, v in header.items() if k != "__metadata__"})
    values: list[Any] = [None, 3, [], {"cadis": 3}, {"cadis": {}}, {"other": "x"}, "x"]
    for number, odd in enumerate(values):
        texts[f"metadata {number}"] = json.dumps({**header, "__metadata__": odd})
    entries: list[Any] = [{**header[name], "shape": shape} for shape in ([2**62, 0], [-1], [10**9])]
    entries += [{**header[name], "dtype": dtype} for dtype in ("F4", "OBJECT", "I64", None)]
    entries += [{**header[name], "data_offsets": two} for two in ([0, 2**63], [9, 0], [0, 1])]
    for number, entry in enumerate(entries):
        texts[f"entry {number}"] = json.dumps({**header, name: entry})
    empty = {"dtype": "F32", "shape": [2**62, 2**62, 0], "data_offsets": [0, 0]}
    texts["huge empty tensor"] = json.dumps({**header, "more": empty})
    for title, text in texts.items():
        yield title, struct.pack("<Q", len(text)) + text.encode() + data


def use_model(path: Path, folder: Path, to: str) -> None:
    """Load, describe and export a model, and predict with it; errors of cadis are not caught."""
    predictor = cadis.load(path)
    repr(predictor)
    inputs: Any = {"age": ["30", ""], "sex": ["m", "x"]}
    if isinstance(getattr(predictor.description.inputs, "preprocessing", None), ImagePreprocessing):
        inputs = folder / "image.png"
        Image.new("RGB", (9, 7)).save(inputs)
    elif predictor.description.inputs and not predictor.description.inputs.preprocessing:
        inputs = torch.zeros(2, *predictor.description.inputs.shape)
    for prediction in predictor.iter_predictions(inputs, NO_CALLBACKS):
        assert len(prediction.probabilities) == len(set(predictor.classes)) == 3
    export(predictor, to, folder / "exported", overwrite=True)
