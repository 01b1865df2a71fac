"""The file ``MODEL_CARD.md``: a description of a model in the format of the Hugging Face hub.

:class:`~cadis.store.RunWriter` writes it at the end of a run.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cadis._io import escape_controls
from cadis.algorithm.methods import METHODS, get_method_label
from cadis.algorithm.tasks import TASKS, Binary
from cadis.data import CategoryColumn, ImagePreprocessing, NumberColumn, TablePreprocessing
from cadis.models import MODELS
from cadis.store.metrics import format_metric_name
from cadis.store.model_file import ModelDescription, ModelInputs

CARD_FILE = "MODEL_CARD.md"

_HUB_TASKS = {
    ImagePreprocessing: ("image-classification", '"pictures/"'),
    TablePreprocessing: ("tabular-classification", '"rows.csv"'),
}
"""For each type of preprocessing: the task's name on the hub, and Python code of example inputs."""

_MAX_CATEGORIES = 10
"""Maximum number of categories of a column to list; longer lists may be names of people."""

_MARKDOWN = str.maketrans({"\\": "&#92;", "|": "\\|", "<": "&lt;", "[": "\\[", "`": "\\`"})
"""Characters that would end a cell, or begin HTML, a link or code."""

_UNNAMED = "the clients' own data"
"""Name of a dataset that the options do not name."""

_LIMITS = """\
The model is intended for research on federated learning, and for data that are similar to its
training data. It assigns one of its classes to every input, even if none of them is right. Its
probabilities are not calibrated: if it predicts a class with a probability of 90%, it may be right
more or less often than in 90% of such cases. Its accuracy on rare classes, and on the data of
clients that differ from the others, can be far below the mean. Test the model on your own data
before you rely on it. It is not a medical device. Federated learning keeps the data at the clients,
but a model can still reveal information about its training data."""


def format_model_card(
    description: ModelDescription, summary: Mapping[str, Any], federation: Mapping[str, Any]
) -> str:
    """Return the model card of the last model of a finished run; it contains no client ids.

    Args:
        description: description of the model.
        summary: content of ``summary.json``.
        federation: content of ``federation.json``.
    """
    sections = (
        _format_front_matter(description, summary),
        f"# {_to_cell(_format_title(description))}",
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
    sentences = [
        f"This PyTorch model (architecture: `{description.architecture or 'unknown'}`) predicts "
        f"one of {len(description.classes)} classes from {_format_inputs(description.inputs)}."
    ]
    if description.task == Binary.name and len(description.classes) == 2:
        sentences.append(f"The positive class is {_to_cell(description.classes[1])}.")
    sentences.append(_format_training(description))
    if description.models:
        names = ", ".join(map(_to_cell, description.models))
        sentences.append(
            f"The file contains {len(description.models)} models ({names}); each client uses one "
            "of them."
        )
    sentences.append(f"This card was written by cadis {description.version}.")
    return " ".join(sentences)


def _format_training(description: ModelDescription) -> str:
    name = _get_method(description)
    rounds = f"{description.rounds} round{'' if description.rounds == 1 else 's'}"
    if name in METHODS and METHODS[name].pools_clients:
        return f"It was trained on the pooled data of all clients for {rounds}."
    return (
        f"It was trained with federated learning for {rounds}: in each round, clients trained on "
        f"their own data, and a server combined their models with {get_method_label(name)}."
    )


def _format_inputs(inputs: ModelInputs | None) -> str:
    if inputs is None:
        return "inputs of unknown shape"
    shape = " x ".join(map(str, inputs.shape))
    if inputs.preprocessing is None:
        return f"inputs of shape {shape}"
    if isinstance(inputs.preprocessing, TablePreprocessing):
        return f"rows of a table ({shape} input features)"
    return f"images of shape {shape} (channels x height x width)"


def _format_columns(description: ModelDescription) -> str:
    """Return a table of the input columns; empty for data that are not tables."""
    preprocessing = None if description.inputs is None else description.inputs.preprocessing
    if not isinstance(preprocessing, TablePreprocessing):
        return ""
    rows = [(column.name, _format_column(column)) for column in preprocessing.columns]
    return _format_table(("input column", "content"), rows)


def _format_column(column: NumberColumn | CategoryColumn) -> str:
    """Describe the content of a column; more than ten categories are not listed, only counted."""
    if isinstance(column, NumberColumn):
        may_be_missing, content = column.may_lack, "a number"
    else:
        categories = [category for category in column.categories if category]
        may_be_missing = len(categories) < len(column.categories)
        content = f"one of {len(categories):,} categories"
        if len(categories) <= _MAX_CATEGORIES:
            content += f": {', '.join(categories)}"
    return f"{content}; may be missing" if may_be_missing else content


def _format_usage(description: ModelDescription) -> str:
    arguments = "" if description.architecture in MODELS else ", model=YOUR_MODULE"
    arguments += "" if description.task in TASKS else ", task=YOUR_TASK"
    arguments += f", name={description.models[0]!r}" if description.models else ""
    _, inputs = _get_hub_task(description)
    return (
        "```python\nimport cadis\n\n"
        f'predictor = cadis.load("model.safetensors"{arguments})\n'
        f"for prediction in predictor.predict({inputs}):\n"
        "    print(prediction.name, prediction.label, prediction.probability)\n```\n\n"
        "`cadis predict` makes the same predictions on the command line, and `cadis export` "
        "converts the model to ONNX or TorchScript. The file `model.safetensors` contains a "
        "PyTorch state dict; its metadata contain the classes, and the size and scaling of the "
        "inputs."
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
    text = f"The data of {len(clients)} clients have {len(federation['classes'])} classes."
    if counts:
        per_client = f"{min(counts):,} to {max(counts):,} samples per client"
        text += f" There are {sum(counts):,} training samples, with {per_client}."
    if clusters := {client["cluster"] for client in clients} - {None}:
        text += f" The clients form {len(clusters)} clusters (groups with similar data)."
    return text


def _format_results(summary: Mapping[str, Any]) -> str:
    rows = {
        **{
            f"{format_metric_name(name)} on the test set": value
            for name, value in _get_metrics(summary).items()
        },
        **_get_best(summary),
        "accuracy on the classes that only the smallest clusters have": summary["rare_accuracy"],
        "accuracy on clients' own test data, mean over clients": summary.get("client_mean"),
        "accuracy on clients' own test data, worst client": summary.get("client_worst"),
        "clusters found": summary.get("clusters_found"),
        "agreement with the true clusters (adjusted Rand index, at most 1)": summary.get(
            "cluster_agreement"
        ),
    }
    known = [(name, _format_value(value)) for name, value in rows.items() if value is not None]
    return _format_table(("metric", "value"), known) if known else "The model was not tested."


def _get_best(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the best value of the main metric, and the accuracy in the same round."""
    main_metric = summary.get("headline", "accuracy")
    if main_metric == "accuracy":
        return {"best accuracy of all rounds": summary["best_accuracy"]}
    name = format_metric_name(main_metric)
    return {
        f"best {name} of all rounds": summary.get(f"best_{main_metric}"),
        f"accuracy in the round with the best {name}": summary["best_accuracy"],
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
    """Return accuracy and the task's other metrics after the last round, if they are known."""
    metrics = {"accuracy": summary["accuracy"], **summary.get("measures", {})}
    return {name: round(value, 4) for name, value in metrics.items() if value is not None}


def _format_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(map(_to_cell, line))} |" for line in lines)


def _to_cell(value: object) -> str:
    """Escape a text for a Markdown table."""
    text = escape_controls(" ".join(str(value).split()))
    return text.translate(_MARKDOWN)


def _format_value(value: object) -> str:
    """Format the value of an option or a metric; an empty list becomes an empty text."""
    if isinstance(value, list):
        return ", ".join(map(_format_value, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _get_dataset(description: ModelDescription) -> str:
    return str(description.training.get("dataset") or _UNNAMED)


def _get_method(description: ModelDescription) -> str:
    return str(description.training.get("method", "an unknown method"))


def _format_title(description: ModelDescription) -> str:
    return f"{get_method_label(_get_method(description))} on {_get_dataset(description)}"


def _get_hub_task(description: ModelDescription) -> tuple[str | None, str]:
    """Return the task's name on the hub (None if unknown) and Python code of example inputs."""
    preprocessing = description.inputs and description.inputs.preprocessing
    return _HUB_TASKS.get(type(preprocessing), (None, "tensor"))


def _to_slug(name: str) -> str:
    """Convert a name to letters, digits and hyphens, as the hub requires."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-").lower()


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
