"""A trained model for other programs: ONNX, TorchScript or a plain state dict; and predictions.

What is exported takes raw inputs and makes probabilities, so that nobody has to know how inputs
were scaled. It is compared with the model, prediction for prediction, before it is written. A file
that is there already is left alone.
"""

import csv
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cadis._io import one_line, shown, unwritable
from cadis.data import PicturePreprocessing
from cadis.errors import CadisError, RunError
from cadis.inference.predictor import Prediction, Predictor
from cadis.store import replace_file

_BATCHES = (1, 2, 17)
"""So many inputs at once: a file must not have learned how many it was made with."""

COMPARED_INPUTS = sum(_BATCHES)
"""So many inputs an exported file is compared with the model on."""

_TOLERANCE = 1e-4
"""How much a probability may differ: other programs add numbers in another order."""

_LONGEST = 200
"""Letters of what an exporter says."""


def export(predictor: Predictor, to: str, path: Path, overwrite: bool = False) -> float:
    """Write a trained model for other programs.

    Return the largest difference of a probability from the model's, of ``COMPARED_INPUTS`` inputs;
    0 for a state dict.

    Args:
        predictor: the model with its preprocessing.
        to: "onnx" or "torchscript", which make probabilities of raw inputs; or "state-dict", the
            numbers of the model alone, for ``load_state_dict(torch.load(..., weights_only=True))``.
        path: the file to write.
        overwrite: whether a file that is there may go.
    """
    if to not in SUFFIXES:
        raise CadisError(f"A model is exported to {', '.join(SUFFIXES)}, not to {to}.")
    check_free(path, overwrite)
    content, difference = _WRITERS[to](predictor)
    try:
        replace_file(path, content)
    except OSError as error:
        raise unwritable(path, error) from None
    return difference


def write_predictions(
    path: Path, predictions: Iterable[Prediction], classes: Sequence[str], input_title: str
) -> None:
    """Write a row for each: its name, its class, how probable that is, and each class is.

    ``input_title``, "file" or "row", is the title of the first column.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([input_title, "predicted", "probability", *(f"p_{c}" for c in classes)])
            for each in predictions:
                numbers = (f"{p:.6g}" for p in (each.probability, *each.probabilities))
                writer.writerow([each.name, each.label, *numbers])
    except OSError as error:
        raise unwritable(path, error) from None


def check_free(path: Path, overwrite: bool) -> None:
    """Refuse a path where a file is already, unless it may go."""
    if path.is_dir():
        raise CadisError(f"{shown(path)} is a folder; name a file by --out.")
    if path.exists() and not overwrite:
        raise CadisError(
            f"{shown(path)} is there already; choose another name by --out, or replace it by "
            "--overwrite."
        )


def input_name(predictor: Predictor) -> str:
    """Return what the only input of an exported model is called: "pixels", "rows" or "inputs"."""
    inputs = predictor.description.inputs
    if inputs is None or inputs.preprocessing is None:
        return "inputs"
    return "pixels" if isinstance(inputs.preprocessing, PicturePreprocessing) else "rows"


def _to_onnx(predictor: Predictor) -> tuple[bytes, float]:
    needed = ("onnx", "onnxruntime", "onnxscript")
    if any(find_spec(name) is None for name in needed):
        raise CadisError("ONNX needs packages of its own; pip install 'cadis[onnx]'.")
    import onnx  # noqa: PLC0415
    import onnxruntime  # noqa: PLC0415

    name = input_name(predictor)
    with _exporting("ONNX"):
        program = torch.onnx.export(
            predictor.pipeline,
            (_raw_inputs(predictor, 2),),
            input_names=[name],
            output_names=["probabilities"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    graph = program.model_proto
    told = {"cadis": predictor.description.to_text(), "classes": json.dumps(predictor.classes)}
    onnx.helper.set_model_props(graph, told)
    content: bytes = graph.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def apply(raw: Tensor) -> Tensor:
        return torch.from_numpy(session.run(["probabilities"], {name: raw.numpy()})[0])

    return content, _compare(predictor, apply, "ONNX")


def _to_torchscript(predictor: Predictor) -> tuple[bytes, float]:
    with _exporting("TorchScript"):
        raw = _raw_inputs(predictor, 2)
        traced = torch.jit.trace(predictor.pipeline, raw, check_trace=False)  # we compare more
        file = io.BytesIO()
        described = {"cadis.json": predictor.description.to_text()}
        torch.jit.save(traced, file, _extra_files=described)
        again = torch.jit.load(io.BytesIO(file.getvalue()))
    return file.getvalue(), _compare(predictor, again, "TorchScript")


def _to_state_dict(predictor: Predictor) -> tuple[bytes, float]:
    numbers = {name: tensor.cpu() for name, tensor in predictor.module.state_dict().items()}
    file = io.BytesIO()
    torch.save(numbers, file)
    again = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    assert all(torch.equal(numbers[name], again[name]) for name in numbers)
    return file.getvalue(), 0.0


_WRITERS: dict[str, Callable[[Predictor], tuple[bytes, float]]] = {
    "onnx": _to_onnx,
    "torchscript": _to_torchscript,
    "state-dict": _to_state_dict,
}
SUFFIXES = {"onnx": ".onnx", "torchscript": ".torchscript", "state-dict": ".pt"}
"""What a model is exported to, and how its file's name ends."""


def _raw_inputs(predictor: Predictor, number: int) -> Tensor:
    """Return made-up raw inputs, always the same ones."""
    told = predictor.description.inputs
    if told is None:
        raise CadisError(
            "It is not known what inputs the model takes, so only its numbers can be exported: "
            "choose state-dict."
        )
    generator = torch.Generator().manual_seed(number)
    shape = (number, *told.shape)
    if isinstance(told.preprocessing, PicturePreprocessing):
        return torch.randint(0, 256, shape, generator=generator).float()
    dtype: torch.dtype = getattr(torch, told.dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.zeros(shape, dtype=dtype)  # numbers of words and the like: 0 is always one


@torch.no_grad()
def _compare(predictor: Predictor, apply: Callable[[Tensor], Tensor], where: str) -> float:
    """Return the largest difference of a probability; refuse one that matters."""
    largest = 0.0
    for number in _BATCHES:
        raw = _raw_inputs(predictor, number)
        expected, found = predictor(raw), apply(raw)
        if expected.shape != found.shape:
            raise RunError(
                f"The {where} file makes {tuple(found.shape)} of {number} inputs, not "
                f"{tuple(expected.shape)}; nothing was written."
            )
        largest = max(largest, float((expected - found).abs().max()))
        says_so = expected.gather(1, found.argmax(dim=1, keepdim=True))[:, 0]
        surest = expected.max(dim=1).values  # of two that are equally probable, either will do
        if not largest <= _TOLERANCE or bool((surest - says_so > _TOLERANCE).any()):
            raise RunError(
                f"The {where} file does not predict as the model does: a probability differs by "
                f"{largest:.2g}; nothing was written."
            )
    return largest


@contextmanager
def _exporting(where: str) -> Iterator[None]:
    """Silence what torch tells itself; say what it cannot export in one sentence."""
    logger: Any = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # TorchScript is deprecated, and still wanted
            yield
    except CadisError:
        raise
    except Exception as error:  # whatever a model of a user's own may do
        why = one_line(error)[:_LONGEST]  # torch tells all that it knows
        raise CadisError(f"The model cannot be exported to {where}: {why}") from error
    finally:
        logger.setLevel(level)
