"""Make the tables of a comparison, for the terminal, files and the page.

A row is usually a group: the runs of one method or setting, which differ only in the seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

from cadis.analysis import (
    ACCURACY,
    METRICS,
    RANKING_METRIC,
    Comparison,
    Group,
    Metric,
    Spread,
    TimeToTarget,
)
from cadis.report.formats import TextTable, find_best, format_number, format_p_value, format_spread

_MAX_CLASSES = 20  # with more classes, there is no table of classes
COST_CAPTION = "Computing time"
"""Caption of the table of computing times."""

_MAIN_NOTE = (
    "Last 10 rounds: mean of the last 10 rounds (of all rounds if there are fewer). "
    "Amplitude: best minus worst value of these rounds."
)
_AGREEMENT_NOTE = (
    "ARI: adjusted Rand index of found and true clusters (1: identical, 0: random), mean over "
    "rounds."
)


def make_tables(comparison: Comparison) -> list[TextTable]:
    """Make all tables that have content; if not all groups are comparable, those of each set."""
    if not comparison.has_several_comparisons:
        return _make_tables(comparison)
    tables = [
        replace(table, caption=f"{comparable.label}: {table.caption}")
        for comparable in comparison.comparable_sets
        for table in _make_tables(Comparison(comparable.results))
    ]
    overview = _make_overview(comparison)
    return tables if overview is None else [overview, *tables]


def make_main_tables(comparison: Comparison) -> list[TextTable]:
    """Make the tables for terminal and page: all, or those of the main metric if runs differ.

    Runs that cannot be compared with each other give one set of tables per comparison, which would
    be too many.
    """
    tables = make_tables(comparison)
    if not comparison.has_several_comparisons:
        return tables
    phrases = (f": {comparison.metric.lower()} on the test set", RANKING_METRIC.title)
    return [table for table in tables if any(text in table.caption.lower() for text in phrases)]


def _make_overview(comparison: Comparison) -> TextTable | None:
    """Make a table of the main metric: a row per method, a column per set, and their mean.

    The mean weighs all sets equally and is empty for methods that are not in all sets. Return None
    if no method is in two sets.
    """
    sets = comparison.comparable_sets
    comparisons = [Comparison(comparable.results) for comparable in sets]
    spreads = [_compute_ranking_spreads(one) for one in comparisons]
    labels = list(dict.fromkeys(label for column in spreads for label in column))
    if all(sum(label in column for column in spreads) < 2 for label in labels):
        return None
    means = {
        label: fmean(column[label].mean for column in spreads)
        for label in labels
        if all(label in column for column in spreads)
    }
    references = {group.label for one in comparisons for group in one.groups if group.is_reference}
    labels.sort(key=lambda label: (label in references, -round(means.get(label, 0.0), 9)))
    rows = [
        [
            label,
            *(format_spread(column.get(label)) for column in spreads),
            format_number(means.get(label)),
        ]
        for label in labels
    ]
    best = [
        (labels.index(label), column)
        for column, one in enumerate(comparisons, 1)
        if one.is_conclusive
        for label in find_best({group.label: spread.mean for group, spread in one.rank_groups()})
    ]
    is_single = len({tuple(one.values) for one in sets}) == 1 and len(sets[0].values) == 1
    titles = [next(iter(one.values.values())) if is_single else one.label for one in sets]
    options = ", ".join(sets[0].values)
    caption = f"{comparison.metric_title} by {options}: mean over the {RANKING_METRIC.title}"
    return TextTable(caption, ["method", *titles, "mean"], rows, best)


def _compute_ranking_spreads(comparison: Comparison) -> dict[str, Spread]:
    spreads = {g.label: comparison.compute_spread(g, RANKING_METRIC) for g in comparison.groups}
    return {label: spread for label, spread in spreads.items() if spread is not None}


def _make_tables(comparison: Comparison) -> list[TextTable]:
    """Make all tables of groups that can all be compared."""
    metrics = [METRICS[key] for key in ("best", "last", "ten_rounds", "amplitude")]
    metrics += [] if comparison.results.metric == "accuracy" else [ACCURACY]
    main = _make_metric_table(
        comparison,
        f"{comparison.metric_title} on the test set",
        [*metrics, METRICS["rare"]],
        _MAIN_NOTE,
    )
    groups = comparison.sort_groups()
    timed = [group for group in groups if any(scores.round_end_times for scores in group.scores)]
    task_metrics = comparison.task_metrics
    tables = [
        _add_paper_column(comparison, main),
        _make_metric_table(comparison, "Further metrics in the last round", task_metrics),
        _make_test_table(comparison),
        _make_target_table(comparison, "Rounds", comparison.count_rounds_to, groups),
        _make_target_table(comparison, "Simulated seconds", comparison.measure_time_to, timed),
        _make_client_table(comparison),
        _make_model_table(comparison),
        _make_class_table(comparison),
        _make_cost_table(comparison),
    ]
    return [t for t in tables if t is not None and t.rows and len(t.columns) > 1]


def _make_metric_table(
    comparison: Comparison, caption: str, metrics: Sequence[Metric], note: str = ""
) -> TextTable:
    """Make a table of means and deviations, without metrics that no group has."""
    groups = comparison.sort_groups()
    columns = {
        metric: spreads
        for metric in metrics
        if any(spreads := [comparison.compute_spread(group, metric) for group in groups])
    }
    rows = [
        [group.label, *map(format_spread, spreads)]
        for group, *spreads in zip(groups, *columns.values(), strict=True)
    ]
    best = []
    for column, (metric, spreads) in enumerate(columns.items(), 1):
        means = {
            row: spread.mean
            for row, (group, spread) in enumerate(zip(groups, spreads, strict=True))
            if spread is not None and not group.is_reference
        }
        if comparison.is_conclusive and metric.higher_is_better is not None:
            best += [(row, column) for row in find_best(means, metric.higher_is_better)]
    titles = [_get_row_title(comparison), *(metric.title for metric in columns)]
    return TextTable(caption, titles, rows, best, note)


def _add_paper_column(comparison: Comparison, table: TextTable) -> TextTable:
    """Add the results of the paper after the column of the best round."""
    results, best_title = comparison.results, METRICS["best"].title
    numbers = [results.get_paper_accuracy(group) for group in comparison.sort_groups()]
    if results.paper is None or all(number is None for number in numbers):
        return table
    column = table.columns.index(best_title) + 1
    cells = [f"paper ({results.paper.place})", *map(format_number, numbers)]
    columns, *rows = (
        [*row[:column], cell, *row[column:]]
        for row, cell in zip([table.columns, *table.rows], cells, strict=True)
    )
    best = [(row, index + (index >= column)) for row, index in table.best]
    return replace(table, columns=columns, rows=rows, best=best)


def _make_client_table(comparison: Comparison) -> TextTable:
    """Make a table of accuracy on the test set and on clients' data, and of found clusters."""
    metrics = [METRICS[key] for key in ("client_mean", "client_deviation", "client_worst")]
    clusters = _make_metric_table(
        comparison,
        "Agreement of found and true clusters",
        [METRICS["agreement"]],
        _AGREEMENT_NOTE,
    )
    if not any(comparison.compute_spread(g, m) for g in comparison.groups for m in metrics):
        return clusters
    caption = (
        f"Accuracy in the last round on the test set and on clients' {comparison.results.own_data}"
    )
    note = ""
    if len(clusters.columns) > 1:
        caption, note = f"{caption}, and agreement with the true clusters", _AGREEMENT_NOTE
    test_set = replace(ACCURACY, title="test set")
    return _make_metric_table(comparison, caption, [test_set, *metrics, METRICS["agreement"]], note)


def _get_row_title(comparison: Comparison) -> str:
    return "setting" if comparison.results.kind == "sweep" else "method"


def _make_test_table(comparison: Comparison) -> TextTable | None:
    """Make a table of differences from the baseline with their tests."""
    if comparison.baseline is None:
        return None
    corrected, rows = comparison.correct_p_values(RANKING_METRIC), []
    for group in comparison.sort_groups():
        if (test := comparison.test_against_baseline(group, RANKING_METRIC)) is not None:
            p_value = corrected.get(group.label)
            interval = f"{_format_signed(test.low)} to {_format_signed(test.high)}"
            rows.append(
                [
                    group.label,
                    _format_signed(test.difference),
                    interval,
                    format_p_value(test.p_value),
                    "" if p_value is None else format_p_value(p_value),
                    str(test.count),
                ]
            )
    columns = ["difference", "95% confidence interval", "p-value", "p (Holm)", "seeds"]
    baseline = comparison.baseline.label
    caption = f"Difference from {baseline}: {comparison.metric}, mean of the {RANKING_METRIC.title}"
    note = (
        "95% confidence interval: range that contains the true difference with 95% confidence. "
        f"p-value: paired t-test over the seeds that a method shares with {baseline}. "
        "p (Holm): the same, corrected for the number of methods."
    )
    return TextTable(caption, [_get_row_title(comparison), *columns], rows, [], note)


def _format_signed(value: float) -> str:
    """Format with a sign; values that round to 0 get a plus sign."""
    return f"{round(value, 3) + 0.0:+.3f}"


def _make_target_table(
    comparison: Comparison,
    unit: str,
    compute: Callable[[Group, float], TimeToTarget],
    groups: Sequence[Group],
) -> TextTable:
    """Make a table of rounds or simulated seconds to reach targets, with speed-ups."""
    columns, rows = [_get_row_title(comparison)], [[group.label] for group in groups]
    for target in comparison.targets:
        is_accuracy = comparison.results.metric == "accuracy"
        columns.append(f"{target:.0%}" if is_accuracy else f"{target:g}")
        times = [compute(group, target) for group in groups]
        means = [time.rounds.mean for time in times if time.rounds]
        digits = 0 if all(mean.is_integer() for mean in means) else 1
        for row, time in zip(rows, times, strict=True):
            row.append(_format_time(time, digits))
        if any(time.speed_up is not None for time in times):
            columns.append(f"speed-up to {columns[-1]}")
            for row, time in zip(rows, times, strict=True):
                row.append("" if time.speed_up is None else f"{time.speed_up:.1f}x")
    caption = f"{unit} to reach a given {comparison.metric}"
    note = f"Mean over the seeds that reach the {comparison.metric}."
    if comparison.baseline and any(title.startswith("speed-up") for title in columns):
        baseline = comparison.baseline.label
        caption += f", and speed-up over {baseline}"
        note += (
            f" Speed-up: {unit.lower()} of {baseline} divided by those of the method, over the "
            f"seeds in which both reach the {comparison.metric}."
        )
    return TextTable(caption, columns, rows, [], note)


def _format_time(time: TimeToTarget, digits: int) -> str:
    if time.rounds is None:
        return "not reached"
    is_partial = time.num_reached < time.num_runs
    seeds = f"({time.num_reached} of {time.num_runs} seeds) " if is_partial else ""
    return f"{seeds}{time.rounds.mean:,.{digits}f}"


def _make_model_table(comparison: Comparison) -> TextTable:
    """Make a table of the models of methods with several models, in their first run."""
    rows = []
    for group in comparison.sort_groups():
        run_data = next((run for run in group.runs if run.last_tested.models), None)
        for model in run_data.last_tested.models if run_data else []:
            numbers = map(format_number, (model.accuracy, model.loss))
            rows.append([f"{group.label}: {model.name}", str(model.clients), *numbers])
    seeds = {run_data.seed for run_data in comparison.results.runs}
    seed = f", seed {min(seeds)}" if len(seeds) > 1 else ""
    caption = f"Models after the last round{seed}"
    return TextTable(caption, ["model", "clients", "accuracy", "loss"], rows, [])


def _make_class_table(comparison: Comparison) -> TextTable | None:
    """Make a table of the last accuracy on each class, averaged over the seeds."""
    classes, rare = comparison.groups[0].runs[0].classes, comparison.results.rare
    if len(classes) > _MAX_CLASSES or not comparison.results.same_classes:
        return None
    rows = []
    for group in comparison.sort_groups():
        by_seed = [values for run in group.runs if (values := run.last_tested.class_accuracy)]
        if by_seed:
            known = [[v for v in values if v is not None] for values in zip(*by_seed, strict=True)]
            means = [fmean(values) if values else None for values in known]
            rows.append([group.label, *map(format_number, means)])
    names = [f"{name} *" if index in rare else name for index, name in enumerate(classes)]
    caption = f"Accuracy on each class in the last round{' (*: rare class)' if rare else ''}"
    return TextTable(caption, [_get_row_title(comparison), *names], rows, [])


def _make_cost_table(comparison: Comparison) -> TextTable:
    """Make a table of aggregation time and training speed, also relative to the baseline."""
    baseline, groups = comparison.baseline, comparison.sort_groups()
    columns, rows = [_get_row_title(comparison)], [[group.label] for group in groups]
    for key, title, ratio_title, form, factor in (
        ("server_seconds", "aggregation ms/round", "aggregation time", ",.2f", 1000),
        ("samples_per_second", "training samples/s per worker", "training speed", ",.0f", 1),
    ):
        columns += [title, *([f"{ratio_title} relative to {baseline.label}"] if baseline else [])]
        for row, group in zip(rows, groups, strict=True):
            spread = comparison.compute_spread(group, METRICS[key])
            row.append("" if spread is None else f"{factor * spread.mean:{form}}")
            if baseline:
                ratio = 1.0 if group is baseline else comparison.compute_ratio(group, METRICS[key])
                row.append("" if ratio is None else f"{ratio:.2f}x")
    return TextTable(COST_CAPTION, columns, rows, [])
