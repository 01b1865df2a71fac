"""``MODEL_CARD.md``: a model in words, in the form that the Hugging Face hub reads."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cadis.algorithm.methods import label_of
from cadis.algorithm.tasks import Binary
from cadis.data import CategoryColumn, NumberColumn, PicturePreprocessing, TablePreprocessing
from cadis.models import MODELS
from cadis.store.metrics import metric_words
from cadis.store.model_file import ModelDescription

CARD = "MODEL_CARD.md"

_KINDS = {
    PicturePreprocessing: ("image-classification", '"pictures/"'),
    TablePreprocessing: ("tabular-classification", '"rows.csv"'),
}
"""What the hub calls the task, and an example of inputs, by what makes inputs of raw ones."""

_FEW_WORDS = 10
"""So many words of a column are told."""

_LIMITS = """\
For research on federated learning, and for data like those that it was trained on. The model
knows nothing but the classes above: it names one of them whatever it is shown. Its probabilities
are not calibrated. Accuracy on rare classes, and for clients whose data are unlike the others',
can be far below the mean; test it on data of your own before anything depends on it. It is no
medical device. That data stayed with the clients does not by itself keep a model from betraying
what it was trained on."""


def model_card(
    description: ModelDescription, summary: Mapping[str, Any], federation: Mapping[str, Any]
) -> str:
    """The card of a finished run's last model, from what its files hold; no client is named."""
    sections = (
        _front_matter(description, summary),
        f"# {_title(description)}",
        _introduction(description),
        _columns(description),
        "## How to use it",
        _usage(description),
        "## How it was trained",
        _options(description, summary),
        "## Data",
        _data(federation),
        "## Results",
        _results(summary),
        _by_class(summary, federation),
        "## Intended use and limits",
        _LIMITS,
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def _front_matter(description: ModelDescription, summary: Mapping[str, Any]) -> str:
    """What the hub reads; scalars as JSON has them, which YAML takes."""
    data, (kind, _) = _dataset(description), _kind(description)
    tags = ["federated-learning", "pytorch", _slug(_method(description))]
    lines = ["---", "library_name: cadis", "tags:", *(f"- {_quoted(tag)}" for tag in tags)]
    if kind is not None:
        lines.append(f"pipeline_tag: {kind}")
    if ":" not in data and data != _UNNAMED:
        lines += ["datasets:", f"- {_quoted(data)}"]
    measures = _measures(summary)
    if measures:
        lines += ["metrics:", *(f"- {_quoted(name)}" for name in measures)]
        lines += ["model-index:", f"- name: {_quoted(_title(description))}", "  results:"]
        lines += ["  - task:", f"      type: {kind or 'other'}", "    dataset:"]
        lines += [f"      name: {_quoted(data)}", f"      type: {_quoted(_slug(data))}"]
        lines.append("    metrics:")
        for name, value in measures.items():
            lines += [f"    - type: {_quoted(name)}", f"      value: {json.dumps(value)}"]
    return "\n".join([*lines, "---"])


def _introduction(description: ModelDescription) -> str:
    made = description.architecture or "a model of unknown architecture"
    told = description.inputs
    if told is None:
        takes = "inputs"
    elif told.preprocessing is None:
        takes = f"inputs of shape {_shape(told.shape)}"
    elif isinstance(told.preprocessing, TablePreprocessing):
        takes = f"rows of a table ({_shape(told.shape)} inputs)"
    else:
        takes = f"{told.preprocessing.kind} of shape {_shape(told.shape)}"
    several = positive = ""
    if description.models:
        several = (
            f" The file holds {len(description.models)} models, which different clients use: "
            f"{', '.join(map(_cell, description.models))}."
        )
    if description.task == Binary.name and len(description.classes) == 2:
        positive = f" The positive class is {_cell(description.classes[1])}."
    return (
        f"A PyTorch model (`{made}`) that tells {len(description.classes)} classes apart in "
        f"{takes}.{positive} It was trained by federated learning: clients trained on data of "
        f"their own, and a server combined their models by {label_of(_method(description))}, for "
        f"{description.rounds} rounds. Written by cadis {description.version}.{several}"
    )


def _columns(description: ModelDescription) -> str:
    """The columns of a table that are inputs; nothing for other data."""
    how = None if description.inputs is None else description.inputs.preprocessing
    if not isinstance(how, TablePreprocessing):
        return ""
    rows = [(column.name, _column(column)) for column in how.columns]
    return _table(("input column", "what it holds"), rows)


def _column(column: NumberColumn | CategoryColumn) -> str:
    """Numbers or words; of many words, which may be names, only how many there are."""
    if isinstance(column, NumberColumn):
        lacks, what = column.may_lack, "a number"
    else:
        words = [word for word in column.categories if word]
        lacks, what = len(words) < len(column.categories), f"one of {len(words):,} words"
        if len(words) <= _FEW_WORDS:
            what += f": {', '.join(words)}"
    return f"{what}; may be missing" if lacks else what


def _usage(description: ModelDescription) -> str:
    own = "" if description.architecture in MODELS else ", model=YOUR_MODULE"
    own += f", name={description.models[0]!r}" if description.models else ""
    _, inputs = _kind(description)
    return (
        "```python\nimport cadis\n\n"
        f'predictor = cadis.load("model.safetensors"{own})\n'
        f"for prediction in predictor.predict({inputs}):\n"
        "    print(prediction.name, prediction.label, prediction.probability)\n```\n\n"
        "The file is an ordinary state dict in safetensors; classes, input size and scaling are in "
        "its metadata. `cadis predict` does the same from the command line, and `cadis export` "
        "writes ONNX or TorchScript."
    )


def _options(description: ModelDescription, summary: Mapping[str, Any]) -> str:
    rows: list[tuple[str, Any]] = [("rounds", description.rounds), ("task", description.task)]
    for key, value in description.training.items():
        if isinstance(value, Mapping):
            rows += [(f"{key}: {name}", of_part) for name, of_part in value.items()]
        else:
            rows.append((key, value))
    rows += [(f"version of {name}", value) for name, value in summary["versions"].items()]
    shown = ((name, _shown(value)) for name, value in rows)
    return _table(("option", "value"), ((name, value) for name, value in shown if value))


def _data(federation: Mapping[str, Any]) -> str:
    clients = federation["clients"]
    told = [sum(client["samples"]) for client in clients if client["samples"] is not None]
    sentence = f"{len(clients)} clients, {len(federation['classes'])} classes"
    if told:
        between = f"from {min(told):,} to {max(told):,} a client"
        sentence += f"; {sum(told):,} samples to train on, {between}"
    if clusters := {client["cluster"] for client in clients} - {None}:
        sentence += f"; the clients are known to come in {len(clusters)} clusters"
    return f"{sentence}."


def _results(summary: Mapping[str, Any]) -> str:
    rows = {
        **{f"{name} on the test set": value for name, value in _measures(summary).items()},
        **_best(summary),
        "accuracy on the rare classes": summary["rare_accuracy"],
        "accuracy on clients' own test data, mean": summary.get("client_mean"),
        "accuracy on clients' own test data, worst client": summary.get("client_worst"),
        "clusters found": summary.get("clusters_found"),
        "agreement with the true clusters (adjusted Rand index)": summary.get("cluster_agreement"),
    }
    told = [(name, _shown(value)) for name, value in rows.items() if value is not None]
    return _table(("measure", "value"), told) if told else "Nobody tested the model."


def _best(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """What the best round is best by, and its accuracy."""
    headline = summary.get("headline", "accuracy")
    if headline == "accuracy":
        return {"best accuracy of all rounds": summary["best_accuracy"]}
    name = metric_words(headline)
    return {
        f"best {name} of all rounds": summary.get(f"best_{headline}"),
        f"accuracy where {name} is best": summary["best_accuracy"],
    }


def _by_class(summary: Mapping[str, Any], federation: Mapping[str, Any]) -> str:
    """Accuracy on each class, and how many samples of it clients train on, where that is known."""
    if summary["confusion"] is None:
        return ""
    counts, rows = [client["samples"] for client in federation["clients"]], []
    known = bool(counts) and None not in counts
    pairs = zip(federation["classes"], summary["confusion"], strict=True)
    for number, (name, found) in enumerate(pairs):
        trained = f"{sum(own[number] for own in counts):,}" if known else "unknown"
        tested = sum(found)
        rows.append((name, trained, tested, f"{found[number] / tested:.3f}" if tested else ""))
    return _table(("class", "samples trained on", "samples tested on", "accuracy"), rows)


def _measures(summary: Mapping[str, Any]) -> dict[str, float]:
    """Accuracy and the task's further measures after the last round, as far as they are known."""
    told = {"accuracy": summary["accuracy"], **summary.get("measures", {})}
    return {name: round(value, 4) for name, value in told.items() if value is not None}


def _table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: object) -> str:
    """Text that stays in its cell."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")


def _shown(value: object) -> str:
    """A value of an option; nothing for what is empty."""
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_UNNAMED = "the clients' own data"


def _dataset(description: ModelDescription) -> str:
    return str(description.training.get("dataset") or _UNNAMED)


def _method(description: ModelDescription) -> str:
    return str(description.training.get("method", "an unknown method"))


def _title(description: ModelDescription) -> str:
    return f"{label_of(_method(description))} on {_dataset(description)}"


def _kind(description: ModelDescription) -> tuple[str | None, str]:
    """What the hub calls the task, if it is known what the inputs are, and an example of them."""
    preprocessing = description.inputs and description.inputs.preprocessing
    return _KINDS.get(type(preprocessing), (None, "tensor"))


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


def _slug(name: str) -> str:
    """A name of letters, digits and hyphens, such as the hub has."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-").lower()


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
