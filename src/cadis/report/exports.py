"""Write results as CSV, Markdown and LaTeX files."""

from collections.abc import Iterator
from dataclasses import astuple
from itertools import product
from pathlib import Path

from cadis._io import escape_controls, format_csv, make_private_folder, replace_text
from cadis.analysis import ACCURACY, METRICS, Comparison, Metric, explain_verdict, write_verdict
from cadis.report.formats import escape_html, to_latex, to_markdown
from cadis.report.notes import write_notes
from cadis.report.tables import make_tables

RESULT_FILES = ("results.csv", "runs.csv", "results.md", "results.tex", "figures", "cells")
"""Names of the files and folders that are written beside a page."""


def write_results(comparison: Comparison, folder: Path) -> list[Path]:
    """Write tables (Markdown, LaTeX) and numbers (CSV) into a folder.

    Args:
        comparison: groups to write.
        folder: folder for the files; it is created if needed.

    Returns:
        Paths of the files.
    """
    tables, notes = make_tables(comparison), write_notes(comparison)
    verdict = " ".join([write_verdict(comparison), *explain_verdict(comparison)])
    markdown = [escape_html(verdict), "", *map(to_markdown, tables)]
    files = {
        "results.csv": make_results_csv(comparison),
        "runs.csv": make_runs_csv(comparison),
        "results.md": "\n".join([*markdown, *(f"- {escape_html(note)}" for note in notes), ""]),
        "results.tex": "\n".join(
            [*(f"% {escape_controls(note)}" for note in notes), "", *map(to_latex, tables)]
        ),
    }
    make_private_folder(folder)
    for name, text in files.items():
        replace_text(folder / name, text, folder)
    return [folder / name for name in files]


def make_results_csv(comparison: Comparison) -> str:
    """Return a line for each method and metric: mean, deviation, and test against the baseline.

    If not all methods can be compared, because their runs solve different problems, further columns
    have the options that differ. The last column names the main metric, from which best, last,
    ten_rounds etc. are computed.
    """
    head = ["measure", "mean", "deviation", "runs", "difference", "low", "high", "p"]
    head += ["p_corrected", "clients_tested_on", "metric"]
    lines = []
    for comparable in comparison.comparable_sets:
        for label, *rest in _make_result_lines(Comparison(comparable.results)):
            lines.append([label, *comparable.values.values(), *rest, comparable.results.metric])
    return format_csv([["method", *comparison.comparable_sets[0].values, *head], *lines])


def _make_result_lines(comparison: Comparison) -> Iterator[list[object]]:
    metrics = _list_metrics(comparison)
    corrected = {metric.key: comparison.correct_p_values(metric) for metric in metrics}
    units = {"rounds": comparison.count_rounds_to}
    units |= {"time": comparison.measure_time_to} if comparison.has_clock else {}
    for group in comparison.groups:
        for metric in metrics:
            spread = comparison.compute_spread(group, metric)
            test = comparison.test_against_baseline(group, metric)
            if spread is None:
                continue
            numbers = [test.difference, test.low, test.high, test.p_value] if test else [None] * 4
            p_corrected = corrected[metric.key].get(group.label)
            own_data = group.runs[0].own_data if metric.key.startswith("client_") else None
            yield [group.label, metric.key, *astuple(spread), *numbers, p_corrected, own_data]
        if (accuracy := comparison.results.get_paper_accuracy(group)) is not None:
            yield [group.label, "best_in_paper", accuracy, *[None] * 8]
        for name, target in product(units, comparison.targets):
            time = units[name](group, target)
            spread_cells = [time.rounds.mean, time.rounds.deviation] if time.rounds else [None] * 2
            yield [
                group.label,
                f"{name}_to_{target:g}",
                *spread_cells,
                time.num_reached,
                *[None] * 6,
            ]


def _list_metrics(comparison: Comparison) -> tuple[Metric, ...]:
    """Return the metrics in files; with accuracy if it is not the main metric."""
    accuracy = () if comparison.results.metric == "accuracy" else (ACCURACY,)
    return (*METRICS.values(), *accuracy, *comparison.task_metrics)


def make_runs_csv(comparison: Comparison) -> str:
    """Return a line for each run, with all metrics and the accuracy on each class."""
    same = comparison.results.same_classes
    classes = comparison.groups[0].runs[0].classes if same else []
    metrics, values = _list_metrics(comparison), comparison.comparable_sets[0].values
    head = ["method", *values, "seed", *(metric.key for metric in metrics)]
    head += [f"rounds_to_{target:g}" for target in comparison.targets]
    timed = comparison.targets if comparison.has_clock else ()
    head += [f"time_to_{target:g}" for target in timed]
    head += ["clients_tested_on", *(f"accuracy_of_{name}" for name in classes)]
    lines: list[list[object]] = []
    for comparable, group in [(s, g) for s in comparison.comparable_sets for g in s.results.groups]:
        by_seed = {run_data.seed: run_data for run_data in group.runs}
        for scores in group.scores:
            rounds: list[float | None] = [scores.count_rounds_to(t) for t in comparison.targets]
            rounds += [scores.measure_time_to(target) for target in timed]
            run_data = by_seed[scores.seed]
            lines.append(
                [
                    group.label,
                    *comparable.values.values(),
                    scores.seed,
                    *(metric.compute(scores) for metric in metrics),
                    *rounds,
                    run_data.own_data,
                    *(run_data.last_tested.class_accuracy if same else []),
                ]
            )
    return format_csv([head, *lines])
