"""Export of trained models as ONNX, TorchScript or state dict, and of predictions as CSV.

An exported model takes raw inputs and returns probabilities, so that users need not know how
inputs were scaled. Before it is written, its predictions are compared with the predictions of the
original model. Existing files are overwritten only if you ask for it.
"""

import errno
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cadis._io import (
    check_path,
    format_csv,
    format_error,
    make_write_error,
    replace_file,
    replace_text,
    to_printable,
)
from cadis.data import ImagePreprocessing
from cadis.errors import CadisError, RunError
from cadis.inference.predictor import Prediction, Predictor
from cadis.store import check_user_output

_BATCH_SIZES = (1, 2, 17)
"""Batch sizes of the comparison, since the exported model must accept batches of any size."""

NUM_COMPARED_INPUTS = sum(_BATCH_SIZES)
"""Number of inputs on which an exported model is compared with the original."""

_TOLERANCE = 1e-4
"""Maximum difference of a probability; other programs may add numbers in another order."""

_MAX_ERROR_LENGTH = 200
"""Maximum number of characters of an exporter's error message."""


def export(predictor: Predictor, to: str, path: Path | str, overwrite: bool = False) -> float:
    """Write a trained model to a file for other programs.

    Args:
        predictor: the model with its preprocessing.
        to: "onnx" or "torchscript", which return probabilities for raw inputs; or "state-dict",
            the parameters only, for ``load_state_dict(torch.load(..., weights_only=True))``.
        path: the file to write.
        overwrite: replace an existing file.

    Returns:
        The largest difference between the probabilities of the exported model and the original
        model, on ``NUM_COMPARED_INPUTS`` inputs; 0 for a state dict.

    Example:
        >>> export(cadis.load("runs/digits"), "onnx", Path("digits.onnx"))  # doctest: +SKIP
        1.2e-07
    """
    if not isinstance(to, str) or to not in SUFFIXES:
        raise CadisError(f"Unknown export format {to}; choose one of: {', '.join(SUFFIXES)}.")
    if not isinstance(predictor, Predictor):
        raise CadisError(f"Give a model of cadis.load, not a {type(predictor).__name__}.")
    path = check_path("path", path)
    check_output_path(path, overwrite)
    content, difference = _WRITERS[to](predictor)
    try:
        replace_file(path, content)
    except OSError as error:
        raise make_write_error(path, error) from None
    return difference


def write_predictions(
    path: Path, predictions: Iterable[Prediction], classes: Sequence[str], input_title: str
) -> None:
    """Write predictions to a CSV file, one row per input.

    Args:
        path: the file to write.
        predictions: the predictions.
        classes: names of the classes.
        input_title: title of the first column, "file" or "row".
    """
    head = [input_title, "predicted", "probability", *(f"p_{name}" for name in classes)]
    rows = (
        [item.name, item.label, *(f"{p:.6g}" for p in (item.probability, *item.probabilities))]
        for item in predictions
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, format_csv([head, *rows], line_end="\r\n"))
    except OSError as error:
        raise make_write_error(path, error) from None


def check_output_path(path: Path, overwrite: bool) -> None:
    """Raise an error if a file cannot be written, or exists and must not be replaced.

    The folder of the file is created, since only this shows that it can be.
    """
    name = to_printable(path)
    check_user_output(path)
    try:
        if path.is_dir():
            raise CadisError(f"{name} is a folder; give the path of a file with --out.")
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(exist_ok=False)
            path.unlink()
        elif not overwrite:
            raise CadisError(
                f"{name} already exists; choose another path with --out, or "
                "replace it with --overwrite."
            )
        elif not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise make_write_error(path, error) from None


def get_input_name(predictor: Predictor) -> str:
    """Return the name of the input of an exported model: "pixels", "rows" or "inputs"."""
    inputs = predictor.description.inputs
    if inputs is None or inputs.preprocessing is None:
        return "inputs"
    return "pixels" if isinstance(inputs.preprocessing, ImagePreprocessing) else "rows"


def _to_onnx(predictor: Predictor) -> tuple[bytes, float]:
    packages = ("onnx", "onnxruntime", "onnxscript")
    if any(find_spec(name) is None for name in packages):
        raise CadisError("Install the packages for ONNX first: pip install 'cadis[onnx]'.")
    import onnx  # noqa: PLC0415
    import onnxruntime  # noqa: PLC0415

    name = get_input_name(predictor)
    with _explain_errors("ONNX"):
        program = torch.onnx.export(
            predictor.pipeline,
            (_make_raw_inputs(predictor, 2),),
            input_names=[name],
            output_names=["probabilities"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    graph = program.model_proto
    metadata = {"cadis": predictor.description.to_text(), "classes": json.dumps(predictor.classes)}
    onnx.helper.set_model_props(graph, metadata)
    content: bytes = graph.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def apply(raw: Tensor) -> Tensor:
        return torch.from_numpy(session.run(["probabilities"], {name: raw.numpy()})[0])

    return content, _compare(predictor, apply, "ONNX")


def _to_torchscript(predictor: Predictor) -> tuple[bytes, float]:
    with _explain_errors("TorchScript"):
        raw = _make_raw_inputs(predictor, 2)
        traced = torch.jit.trace(predictor.pipeline, raw, check_trace=False)  # _compare checks more
        file = io.BytesIO()
        metadata = {"cadis.json": predictor.description.to_text()}
        torch.jit.save(traced, file, _extra_files=metadata)
        loaded = torch.jit.load(io.BytesIO(file.getvalue()))
    return file.getvalue(), _compare(predictor, loaded, "TorchScript")


def _to_state_dict(predictor: Predictor) -> tuple[bytes, float]:
    tensors = {name: tensor.cpu() for name, tensor in predictor.module.state_dict().items()}
    file = io.BytesIO()
    torch.save(tensors, file)
    loaded = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    assert all(
        torch.equal(tensors[name].nan_to_num(), loaded[name].nan_to_num()) for name in tensors
    )
    return file.getvalue(), 0.0


_WRITERS: dict[str, Callable[[Predictor], tuple[bytes, float]]] = {
    "onnx": _to_onnx,
    "torchscript": _to_torchscript,
    "state-dict": _to_state_dict,
}
SUFFIXES = {"onnx": ".onnx", "torchscript": ".torchscript", "state-dict": ".pt"}
"""Export formats, and the suffix of the file of each."""


def _make_raw_inputs(predictor: Predictor, count: int) -> Tensor:
    """Return random raw inputs, which are always the same for the same ``count``."""
    inputs = predictor.description.inputs
    if inputs is None:
        raise CadisError(
            "The shape of the model's inputs is unknown, so only its parameters can be exported: "
            "choose state-dict."
        )
    generator = torch.Generator().manual_seed(count)
    shape = (count, *inputs.shape)
    if isinstance(inputs.preprocessing, ImagePreprocessing):
        return torch.randint(0, 256, shape, generator=generator).float()
    dtype: torch.dtype = getattr(torch, inputs.dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.zeros(shape, dtype=dtype)  # such as token indices, for which 0 is always valid


@torch.no_grad()
def _compare(predictor: Predictor, apply: Callable[[Tensor], Tensor], export_format: str) -> float:
    """Return the largest difference of the probabilities; raise an error if it is too large."""
    largest = 0.0
    for batch_size in _BATCH_SIZES:
        raw = _make_raw_inputs(predictor, batch_size)
        expected, exported = predictor(raw), apply(raw)
        if expected.shape != exported.shape:
            raise RunError(
                f"The {export_format} model returns shape {tuple(exported.shape)} for "
                f"{batch_size} inputs, not {tuple(expected.shape)}; nothing was written."
            )
        largest = max(largest, float((expected - exported).abs().max()))
        # The exported model may choose either of two classes with equal probability.
        chosen = expected.gather(1, exported.argmax(dim=1, keepdim=True))[:, 0]
        highest = expected.max(dim=1).values
        if not largest <= _TOLERANCE or bool((highest - chosen > _TOLERANCE).any()):
            raise RunError(
                f"The probabilities of the {export_format} model differ from the original model "
                f"by up to {largest:.2g}; nothing was written."
            )
    return largest


@contextmanager
def _explain_errors(export_format: str) -> Iterator[None]:
    """Silence log messages and warnings of torch; convert its errors to a CadisError."""
    logger: Any = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # TorchScript is deprecated, but users still need it
            yield
    except CadisError:
        raise
    except Exception as error:  # the user's model may raise any error
        reason = format_error(error)[:_MAX_ERROR_LENGTH]  # messages of torch can be very long
        raise CadisError(f"The model cannot be exported to {export_format}: {reason}") from error
    finally:
        logger.setLevel(level)
