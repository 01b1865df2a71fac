"""Hashes of the files of a run or a comparison, without wall-clock times and paths."""

import csv
import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any, TypeAlias

Hashes: TypeAlias = dict[str, str]
"""Hash of each result of a case, by the name of the result."""

_DIGITS = 16
"""Hexadecimal digits of a SHA-256 that are stored: 64 bits are enough to notice a change."""

_HEADER = 8
"""Bytes at the start of a safetensors file, which hold the length of its header."""

_NOT_RESULTS = {"seconds", "versions", "version"}
"""Keys of JSON files that hold wall-clock time or versions."""

_TIMED = "second"
"""Part of the name of every metric of wall-clock time, such as ``samples_per_second``."""

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def hash_bytes(content: bytes) -> str:
    """Return the first digits of the SHA-256."""
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def hash_json(value: Any) -> str:
    """Return the hash of a JSON value, in which the order of keys does not count."""
    return hash_bytes(json.dumps(value, sort_keys=True).encode())


def hash_run(folder: Path) -> Hashes:
    """Return the hashes of a run folder: models, rounds, summary and partition."""
    model, description = hash_model((folder / "model.safetensors").read_bytes())
    best, _ = hash_model((folder / "best.safetensors").read_bytes())
    return {
        "model": model,
        "best": best,
        "description": description,
        "history": hash_history((folder / "history.jsonl").read_text(encoding="utf-8")),
        "summary": hash_json(drop_timings(_read_json(folder / "summary.json"))),
        "partition": hash_json(_read_json(folder / "federation.json")),
    }


def hash_model(content: bytes) -> tuple[str, str]:
    """Return the hash of the tensors of a safetensors file, and that of its metadata.

    They are separate because the metadata name the options of the run: a new option changes the
    metadata of every run, and must not hide a change of the tensors.
    """
    end = _HEADER + int.from_bytes(content[:_HEADER], "little")
    header: dict[str, Any] = json.loads(content[_HEADER:end])
    metadata = header.pop("__metadata__", {})
    tensors = hashlib.sha256()
    for name, tensor in sorted(header.items()):
        first, last = tensor["data_offsets"]
        tensors.update(json.dumps([name, tensor["dtype"], tensor["shape"]]).encode())
        tensors.update(content[end + first : end + last])
    descriptions = {key: drop_timings(json.loads(text)) for key, text in metadata.items()}
    return tensors.hexdigest()[:_DIGITS], hash_json(descriptions)


def hash_history(text: str) -> str:
    """Return the hash of all rounds in ``history.jsonl``, without their timings."""
    return hash_json([drop_timings(json.loads(line)) for line in text.splitlines()])


def drop_timings(value: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object without wall-clock times and versions."""
    return {key: part for key, part in value.items() if key not in _NOT_RESULTS}


def hash_study(folder: Path) -> Hashes:
    """Return the hashes of the tables of a comparison, and of each of its runs."""
    hashes = {
        name: hash_csv((folder / name).read_text(encoding="utf-8"))
        for name in ("results.csv", "runs.csv")
    }
    hashes["results.md"] = hash_numbers((folder / "results.md").read_text(encoding="utf-8"))
    return hashes | hash_runs_in(folder)


def hash_runs_in(folder: Path) -> Hashes:
    """Return a hash of each run in a folder of runs, by its path in the folder."""
    runs = sorted(path.parent for path in folder.glob("*/*/history.jsonl"))
    return {str(run.relative_to(folder)): hash_json(hash_run(run)) for run in runs}


def hash_csv(text: str) -> str:
    """Return the hash of a table of results, without metrics of wall-clock time.

    Labels of methods are replaced by their order: another wording is not another result.
    """
    rows = [
        row for row in csv.DictReader(io.StringIO(text)) if _TIMED not in row.get("measure", "")
    ]
    labels = list(dict.fromkeys(row["method"] for row in rows))
    results = [
        {key: value for key, value in row.items() if _TIMED not in key}
        | {"method": str(labels.index(row["method"]))}
        for row in rows
    ]
    return hash_json(results)


def hash_numbers(markdown: str) -> str:
    """Return the hash of the numbers in the tables of a Markdown text; its words may change.

    The last table is left out: it has the cost of each method, which is wall-clock time.
    """
    tables: list[list[list[str]]] = [[]]
    for line in markdown.splitlines():
        if line.startswith("|"):
            cells = line.split(" | ")[1:]  # the first one is a label
            tables[-1].append(_NUMBER.findall(" ".join(cells)))
        elif tables[-1]:
            tables.append([])
    return hash_json([table for table in tables if table][:-1])


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
