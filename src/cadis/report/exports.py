"""Results as files: CSV, Markdown, LaTeX."""

import csv
import io
from collections.abc import Iterator
from dataclasses import astuple
from itertools import product
from pathlib import Path

from cadis.analysis import ACCURACY, MEASURES, Comparison, Measure, answer, details
from cadis.report.formats import to_latex, to_markdown
from cadis.report.tables import notes, sheets

RESULT_FILES = ("results.csv", "runs.csv", "results.md", "results.tex", "figures", "cells")
"""Names of the files and folders that are put beside a page."""


def write_results(comparison: Comparison, folder: Path) -> list[Path]:
    """Write the tables for people and the numbers for programs."""
    tables, said = sheets(comparison), notes(comparison)
    words = " ".join([answer(comparison), *details(comparison)])
    markdown = [words, "", *map(to_markdown, tables)]
    files = {
        "results.csv": results_csv(comparison),
        "runs.csv": runs_csv(comparison),
        "results.md": "\n".join([*markdown, *(f"- {note}" for note in said), ""]),
        "results.tex": "\n".join([*(f"% {note}" for note in said), "", *map(to_latex, tables)]),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in files]


def results_csv(comparison: Comparison) -> str:
    """A line for each method and measure: mean, deviation, and the test against the baseline.

    Where there are several cells, each has its lines, and what tells cells apart has columns. The
    last column names what decides, of which best, last, ten_rounds and so on are.
    """
    head = ["measure", "mean", "deviation", "runs", "difference", "low", "high", "p"]
    head += ["p_corrected", "clients_tested_on", "metric"]
    lines = []
    for cell in comparison.cells:
        own, told = Comparison(cell.results), list(cell.values.values())
        for label, *rest in _result_lines(own):
            lines.append([label, *told, *rest, own.results.metric])
    return _csv(["method", *comparison.cells[0].values, *head], lines)


def _result_lines(comparison: Comparison) -> Iterator[list[object]]:
    measures = _measures(comparison)
    corrected = {measure.key: comparison.corrected(measure) for measure in measures}
    ways = {"rounds": comparison.rounds_to}
    ways |= {"time": comparison.time_to} if comparison.has_clock else {}
    for group in comparison.groups:
        own = group.runs[0].own_data
        for measure in measures:
            spread, test = comparison.spread(group, measure), comparison.test(group, measure)
            if spread is None:
                continue
            tested = [test.difference, test.low, test.high, test.p_value] if test else [None] * 4
            adjusted = corrected[measure.key].get(group.label)
            which = own if measure.key.startswith("client_") else None
            yield [group.label, measure.key, *astuple(spread), *tested, adjusted, which]
        if (figure := comparison.results.in_paper(group)) is not None:
            yield [group.label, "best_in_paper", figure, *[None] * 8]
        for name, target in product(ways, comparison.targets):
            found = ways[name](group, target)
            reached = [found.rounds.mean, found.rounds.deviation] if found.rounds else [None] * 2
            yield [group.label, f"{name}_to_{target:g}", *reached, found.reached, *[None] * 6]


def _measures(comparison: Comparison) -> tuple[Measure, ...]:
    """All that files tell; accuracy besides what decides, if that is another measure."""
    accuracy = () if comparison.results.metric == "accuracy" else (ACCURACY,)
    return (*MEASURES, *accuracy, *comparison.task_measures)


def runs_csv(comparison: Comparison) -> str:
    """A line for each run, with all its measures and its accuracy on each class."""
    same = comparison.results.same_classes
    classes = comparison.groups[0].runs[0].classes if same else []
    measures, values = _measures(comparison), comparison.cells[0].values
    head = ["method", *values, "seed", *(measure.key for measure in measures)]
    head += [f"rounds_to_{target:g}" for target in comparison.targets]
    timed = comparison.targets if comparison.has_clock else ()
    head += [f"time_to_{target:g}" for target in timed]
    head += ["clients_tested_on", *(f"accuracy_of_{name}" for name in classes)]
    lines: list[list[object]] = []
    for cell, group in [(c, g) for c in comparison.cells for g in c.results.groups]:
        by_seed = {run_data.seed: run_data for run_data in group.runs}
        for scores in group.scores:
            rounds: list[float | None] = [scores.rounds_to(t) for t in comparison.targets]
            rounds += [scores.time_to(target) for target in timed]
            run_data = by_seed[scores.seed]
            told = [group.label, *cell.values.values(), scores.seed]
            told += [*(measure.of(scores) for measure in measures), *rounds, run_data.own_data]
            lines.append([*told, *(run_data.last_tested.class_accuracy if same else [])])
    return _csv(head, lines)


def _csv(head: list[str], lines: list[list[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *lines])
    return text.getvalue()
