"""The file ``MODEL_CARD.md``: a description of a model in the format of the Hugging Face hub.

:class:`~cadis.store.RunWriter` writes it at the end of a run.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cadis.algorithm.methods import get_method_label
from cadis.algorithm.tasks import Binary
from cadis.data import CategoryColumn, ImagePreprocessing, NumberColumn, TablePreprocessing
from cadis.models import MODELS
from cadis.store.metrics import format_metric_name
from cadis.store.model_file import ModelDescription, ModelInputs

CARD = "MODEL_CARD.md"

_HUB_TASKS = {
    ImagePreprocessing: ("image-classification", '"pictures/"'),
    TablePreprocessing: ("tabular-classification", '"rows.csv"'),
}
"""Name of the task on the hub and an example of inputs, for each type of preprocessing."""

_MAX_WORDS = 10
"""Up to this number, the words of a column are listed."""

_LIMITS = """\
The model is for research on federated learning, and for data like its training data. It predicts
one of the classes above for any input. Its probabilities are not calibrated. Accuracy on rare
classes, and for clients whose data differ from those of the others, can be far below the mean; test
the model on your own data before you rely on it. It is not a medical device. Federated learning
keeps the data on the clients, but a model can still reveal information about its training data."""


def format_model_card(
    description: ModelDescription, summary: Mapping[str, Any], federation: Mapping[str, Any]
) -> str:
    """Return the card of the last model of a finished run; it has no client ids.

    Args:
        description: description of the model.
        summary: content of ``summary.json``.
        federation: content of ``federation.json``.
    """
    sections = (
        _format_front_matter(description, summary),
        f"# {_format_title(description)}",
        _format_introduction(description),
        _format_columns(description),
        "## How to use it",
        _format_usage(description),
        "## How it was trained",
        _format_options(description, summary),
        "## Data",
        _format_data(federation),
        "## Results",
        _format_results(summary),
        _format_classes(summary, federation),
        "## Intended use and limits",
        _LIMITS,
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def _format_front_matter(description: ModelDescription, summary: Mapping[str, Any]) -> str:
    """Return the YAML that the hub reads; scalars are written as JSON, which is valid YAML."""
    data, (task, _) = _get_dataset(description), _get_hub_task(description)
    tags = ["federated-learning", "pytorch", _to_slug(_get_method(description))]
    lines = ["---", "library_name: cadis", "tags:", *(f"- {_quote(tag)}" for tag in tags)]
    if task is not None:
        lines.append(f"pipeline_tag: {task}")
    if ":" not in data and data != _UNNAMED:
        lines += ["datasets:", f"- {_quote(data)}"]
    metrics = _get_metrics(summary)
    if metrics:
        lines += ["metrics:", *(f"- {_quote(name)}" for name in metrics)]
        lines += ["model-index:", f"- name: {_quote(_format_title(description))}", "  results:"]
        lines += ["  - task:", f"      type: {task or 'other'}", "    dataset:"]
        lines += [f"      name: {_quote(data)}", f"      type: {_quote(_to_slug(data))}"]
        lines.append("    metrics:")
        for name, value in metrics.items():
            lines += [f"    - type: {_quote(name)}", f"      value: {json.dumps(value)}"]
    return "\n".join([*lines, "---"])


def _format_introduction(description: ModelDescription) -> str:
    architecture = description.architecture or "a model of unknown architecture"
    several = positive = ""
    if description.models:
        several = (
            f" The file has {len(description.models)} models, which different clients use: "
            f"{', '.join(map(_to_cell, description.models))}."
        )
    if description.task == Binary.name and len(description.classes) == 2:
        positive = f" The positive class is {_to_cell(description.classes[1])}."
    return (
        f"A PyTorch model (`{architecture}`) that predicts one of {len(description.classes)} "
        f"classes from {_format_inputs(description.inputs)}.{positive} It was trained by federated "
        "learning: clients trained on their own data, and a server combined their models by "
        f"{get_method_label(_get_method(description))}, for {description.rounds} rounds. "
        f"Written by cadis {description.version}.{several}"
    )


def _format_inputs(inputs: ModelInputs | None) -> str:
    if inputs is None:
        return "inputs"
    shape = " x ".join(map(str, inputs.shape))
    if inputs.preprocessing is None:
        return f"inputs of shape {shape}"
    if isinstance(inputs.preprocessing, TablePreprocessing):
        return f"rows of a table ({shape} inputs)"
    return f"{inputs.preprocessing.kind} of shape {shape}"


def _format_columns(description: ModelDescription) -> str:
    """Return a table of the input columns; empty for data that are not tables."""
    preprocessing = None if description.inputs is None else description.inputs.preprocessing
    if not isinstance(preprocessing, TablePreprocessing):
        return ""
    rows = [(column.name, _format_column(column)) for column in preprocessing.columns]
    return _format_table(("input column", "content"), rows)


def _format_column(column: NumberColumn | CategoryColumn) -> str:
    """Return the content of a column; many words are counted only, since they may be names."""
    if isinstance(column, NumberColumn):
        may_lack, content = column.may_lack, "a number"
    else:
        words = [word for word in column.categories if word]
        may_lack, content = len(words) < len(column.categories), f"one of {len(words):,} words"
        if len(words) <= _MAX_WORDS:
            content += f": {', '.join(words)}"
    return f"{content}; may be missing" if may_lack else content


def _format_usage(description: ModelDescription) -> str:
    arguments = "" if description.architecture in MODELS else ", model=YOUR_MODULE"
    arguments += f", name={description.models[0]!r}" if description.models else ""
    _, inputs = _get_hub_task(description)
    return (
        "```python\nimport cadis\n\n"
        f'predictor = cadis.load("model.safetensors"{arguments})\n'
        f"for prediction in predictor.predict({inputs}):\n"
        "    print(prediction.name, prediction.label, prediction.probability)\n```\n\n"
        "The file is an ordinary state dict in safetensors; classes, input size and scaling are in "
        "its metadata. `cadis predict` does the same from the command line, and `cadis export` "
        "writes ONNX or TorchScript."
    )


def _format_options(description: ModelDescription, summary: Mapping[str, Any]) -> str:
    rows: list[tuple[str, Any]] = [("rounds", description.rounds), ("task", description.task)]
    for key, value in description.training.items():
        if isinstance(value, Mapping):
            rows += [(f"{key}: {name}", parameter) for name, parameter in value.items()]
        else:
            rows.append((key, value))
    rows += [(f"version of {name}", value) for name, value in summary["versions"].items()]
    texts = ((name, _format_value(value)) for name, value in rows)
    return _format_table(("option", "value"), ((name, text) for name, text in texts if text))


def _format_data(federation: Mapping[str, Any]) -> str:
    clients = federation["clients"]
    counts = [sum(client["samples"]) for client in clients if client["samples"] is not None]
    sentence = f"{len(clients)} clients, {len(federation['classes'])} classes"
    if counts:
        per_client = f"{min(counts):,} to {max(counts):,} per client"
        sentence += f"; {sum(counts):,} training samples, {per_client}"
    if clusters := {client["cluster"] for client in clients} - {None}:
        sentence += f"; the clients are in {len(clusters)} known clusters"
    return f"{sentence}."


def _format_results(summary: Mapping[str, Any]) -> str:
    rows = {
        **{f"{name} on the test set": value for name, value in _get_metrics(summary).items()},
        **_get_best(summary),
        "accuracy on the rare classes": summary["rare_accuracy"],
        "accuracy on clients' own test data, mean": summary.get("client_mean"),
        "accuracy on clients' own test data, worst client": summary.get("client_worst"),
        "clusters found": summary.get("clusters_found"),
        "agreement with the true clusters (adjusted Rand index)": summary.get("cluster_agreement"),
    }
    known = [(name, _format_value(value)) for name, value in rows.items() if value is not None]
    return _format_table(("metric", "value"), known) if known else "The model was not tested."


def _get_best(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the main metric of the best round, and its accuracy."""
    main_metric = summary.get("headline", "accuracy")
    if main_metric == "accuracy":
        return {"best accuracy of all rounds": summary["best_accuracy"]}
    name = format_metric_name(main_metric)
    return {
        f"best {name} of all rounds": summary.get(f"best_{main_metric}"),
        f"accuracy where {name} is best": summary["best_accuracy"],
    }


def _format_classes(summary: Mapping[str, Any], federation: Mapping[str, Any]) -> str:
    """Return a table with the accuracy and the numbers of samples of each class."""
    if summary["confusion"] is None:
        return ""
    counts, rows = [client["samples"] for client in federation["clients"]], []
    is_known = bool(counts) and None not in counts
    pairs = zip(federation["classes"], summary["confusion"], strict=True)
    for label, (name, predictions) in enumerate(pairs):
        num_train = f"{sum(samples[label] for samples in counts):,}" if is_known else "unknown"
        num_test = sum(predictions)
        accuracy = f"{predictions[label] / num_test:.3f}" if num_test else ""
        rows.append((name, num_train, num_test, accuracy))
    return _format_table(("class", "training samples", "test samples", "accuracy"), rows)


def _get_metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return accuracy and the task's other metrics after the last round, without unknown ones."""
    metrics = {"accuracy": summary["accuracy"], **summary.get("measures", {})}
    return {name: round(value, 4) for name, value in metrics.items() if value is not None}


def _format_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(map(_to_cell, line))} |" for line in lines)


def _to_cell(value: object) -> str:
    """Escape a text for a Markdown table."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")


def _format_value(value: object) -> str:
    """Format the value of an option; empty for an empty list."""
    if isinstance(value, list):
        return ", ".join(map(_format_value, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_UNNAMED = "the clients' own data"


def _get_dataset(description: ModelDescription) -> str:
    return str(description.training.get("dataset") or _UNNAMED)


def _get_method(description: ModelDescription) -> str:
    return str(description.training.get("method", "an unknown method"))


def _format_title(description: ModelDescription) -> str:
    return f"{get_method_label(_get_method(description))} on {_get_dataset(description)}"


def _get_hub_task(description: ModelDescription) -> tuple[str | None, str]:
    """Return the name of the task on the hub, None if unknown, and an example of inputs."""
    preprocessing = description.inputs and description.inputs.preprocessing
    return _HUB_TASKS.get(type(preprocessing), (None, "tensor"))


def _to_slug(name: str) -> str:
    """Convert a name to letters, digits and hyphens, as the hub requires."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-").lower()


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
