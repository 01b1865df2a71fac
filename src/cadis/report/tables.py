"""The answer in tables, for the terminal, files and the page alike."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from cadis.analysis import (
    ACCURACY,
    HEADLINE,
    MEASURE,
    OWN_TEST_DATA,
    OWN_TRAINING_DATA,
    Comparison,
    Group,
    Measure,
    RoundsTo,
    RunData,
    with_article,
)
from cadis.report.formats import Sheet, best_of, shown_number, shown_p, shown_spread
from cadis.store import metric_words

_MOST_CLASSES = 20  # so many classes have a table of their own


def sheets(comparison: Comparison) -> list[Sheet]:
    """All tables that have anything to say; of groups that are no rivals, those of each cell."""
    if not comparison.several_comparisons:
        return _sheets(comparison)
    overview = _cells_sheet(comparison)
    own = [
        replace(sheet, caption=f"{cell.label}: {sheet.caption}")
        for cell in comparison.cells
        for sheet in _sheets(Comparison(cell.results))
    ]
    return own if overview is None else [overview, *own]


def main_sheets(comparison: Comparison) -> list[Sheet]:
    """Those for the terminal: all, but of several comparisons only what decides them."""
    every = sheets(comparison)
    if not comparison.several_comparisons:
        return every
    decides = (f": {comparison.metric.lower()} on the test set", HEADLINE.title)
    return [sheet for sheet in every if any(words in sheet.caption.lower() for words in decides)]


def _cells_sheet(comparison: Comparison) -> Sheet | None:
    """What decides, of each method (a row) in each cell (a column), and the mean over the cells.

    Each cell counts the same in the mean, which only methods in all cells have. None if no method
    is in two cells.
    """
    cells = comparison.cells
    owns = [Comparison(cell.results) for cell in cells]
    found = [
        {g.label: spread for g in own.groups if (spread := own.spread(g, HEADLINE)) is not None}
        for own in owns
    ]
    labels = list(dict.fromkeys(label for spreads in found for label in spreads))
    if all(sum(label in spreads for spreads in found) < 2 for label in labels):
        return None
    means = {
        label: fmean(spreads[label].mean for spreads in found)
        for label in labels
        if all(label in spreads for spreads in found)
    }
    last = {group.label for own in owns for group in own.groups if group.is_reference}
    labels.sort(key=lambda label: (label in last, -round(means.get(label, 0.0), 9)))
    rows = [
        [
            label,
            *(shown_spread(spreads.get(label)) for spreads in found),
            shown_number(means.get(label)),
        ]
        for label in labels
    ]
    best = [
        (labels.index(label), column)
        for column, own in enumerate(owns, 1)
        if own.conclusive
        for label in best_of({group.label: spread.mean for group, spread in own.ranked()})
    ]
    if len({tuple(cell.values) for cell in cells}) == 1 and len(cells[0].values) == 1:
        titles = [next(iter(cell.values.values())) for cell in cells]
    else:
        titles = [cell.label for cell in cells]
    over = ", ".join(cells[0].values)
    caption = f"{comparison.metric_title} by {over}: {HEADLINE.title}"
    return Sheet(caption, ["method", *titles, "mean"], rows, best)


def _sheets(comparison: Comparison) -> list[Sheet]:
    """All tables of groups that can stand in one."""
    decides = [MEASURE[key] for key in ("best", "last", "ten_rounds", "amplitude")]
    decides += [] if comparison.results.metric == "accuracy" else [ACCURACY]
    on_test_set = f"{comparison.metric_title} on the test set"
    groups = comparison.ordered()
    timed = [group for group in groups if any(scores.clocks for scores in group.scores)]
    made = [
        _beside_the_paper(
            comparison, _measured(comparison, on_test_set, [*decides, MEASURE["rare"]])
        ),
        _measured(comparison, "Further measures in the last round", comparison.task_measures),
        _tested(comparison),
        _reached(comparison, "Rounds", comparison.rounds_to, groups),
        _reached(comparison, "Simulated seconds", comparison.time_to, timed),
        _clients(comparison),
        _models(comparison),
        _classes(comparison),
        _costs(comparison),
    ]
    return [s for s in made if s is not None and s.rows and len(s.columns) > 1]


def notes(comparison: Comparison) -> list[str]:
    """What a reader of the tables must know."""
    several = comparison.several_comparisons
    pages = "A page of each comparison, with all tables and figures, is in the folder cells."
    told = [*_seed_notes(comparison), *_measure_notes(comparison), *_data_notes(comparison)]
    return [*told, *([pages] if several else []), *_missing(comparison)]


def _seed_notes(comparison: Comparison) -> Iterator[str]:
    """How many seeds there are, and what that means for differences."""
    counts = {len(group.scores) for group in comparison.groups}
    seeds = {scores.seed for group in comparison.groups for scores in group.scores}
    if max(counts) > 1:
        number = f"{max(counts)}" if len(counts) == 1 else f"up to {max(counts)}"
        yield f"Mean ± sample standard deviation over {number} seeds."
    elif len(seeds) == 1:
        yield f"All numbers are those of one seed, {seeds.pop()}."
    if any(Comparison(cell.results).conclusive for cell in comparison.cells):
        yield "Bold is the best mean; whether that may be chance, p tells."
    baseline = Comparison(comparison.cells[0].results).baseline
    if baseline is not None and max(counts) > 1:
        yield (
            f"p: paired t-test on the seeds that a method shares with {baseline.label}; corrected "
            "by Holm for the number of methods."
        )


def _measure_notes(comparison: Comparison) -> Iterator[str]:
    """What the columns are: of the test set, of the paper, of simulated time."""
    yield (
        "10-round mean: of the last 10 rounds, or of all if there are fewer; "
        "amplitude: the best of them minus the worst."
    )
    results = comparison.results
    chosen = sorted({run_data.metric for run_data in results.runs})
    if chosen != [results.metric]:
        theirs = " or ".join(map(metric_words, chosen))
        yield f"Here {comparison.metric} decides; the runs kept their best model by {theirs}."
    paper = results.paper
    if paper is not None and any(results.in_paper(g) is not None for g in comparison.groups):
        changed = f"; here: {', '.join(paper.changed)}" if paper.changed else ""
        yield f"Paper: the best top-1 accuracy that it reports in {paper.place}{changed}."
    ends = {g.label: [s.clocks[-1] for s in g.scores if s.clocks] for g in comparison.groups}
    took = ", ".join(f"{label} {fmean(end):,.4g}" for label, end in ends.items() if end)
    if took:
        yield (
            "Simulated seconds: a round ends when its slowest participant does; one of FedAT is "
            f"that of a tier. All rounds took: {took}."
        )


def _data_notes(comparison: Comparison) -> Iterator[str]:
    """What was tested on which data: not every round, not all clients, the rare classes."""
    runs, own = comparison.results.runs, comparison.results.own_data
    if any(record.accuracy is None for run_data in runs for record in run_data.history):
        yield "Not every round was tested: means are of those rounds that were."
    if sampled := next((run_data for run_data in runs if run_data.clients_tested), None):
        # There are very many clients, or some have nothing to hold out.
        all_that_could = len(sampled.last_client_accuracy) == len(sampled.test_sizes)
        why = "the others have too few samples" if all_that_could else "drawn evenly"
        of = f"{sampled.clients_tested}, {why}"
        yield f"Accuracy on clients' {sampled.own_data} is that of {of}."
    if any(run_data.client_accuracy for run_data in runs):
        yield _own_data_note(runs, own)
    if rare := comparison.results.rare_in_words:
        yield f"Rare: last accuracy on the classes that only the smallest clusters have ({rare})."
    if any(group.is_reference for group in comparison.groups):
        yield "SingleSet has all data in one place: a line to measure by, no contestant."


def _own_data_note(runs: Sequence[RunData], own: str) -> str:
    if own == OWN_TEST_DATA:
        sizes = [size for run_data in runs for size in run_data.test_sizes]
        few = f"{min(sizes)} to {max(sizes)}"
        return f"Own test data: {few} samples of each client's that nobody trains on."
    if own == OWN_TRAINING_DATA:
        return "Own training data: what each client trains on; --client-test 0.2 holds some out."
    return "Own data are held out in some runs and trained on in others: do not compare these."


def _missing(comparison: Comparison) -> Iterator[str]:
    results = comparison.results
    ended = sum(run_data.finished for run_data in results.runs)
    if ended < results.planned:
        yield f"{results.planned - ended} of {results.planned} runs have not ended."
    if rejected := sum(run_data.summary["rejected"] for run_data in results.runs):
        yield f"{rejected} updates were left out; history.jsonl names them."


def _measured(comparison: Comparison, caption: str, measures: Sequence[Measure]) -> Sheet:
    """Means and deviations of some measures; those that nobody has are left out."""
    groups = comparison.ordered()
    told = {
        measure: spreads
        for measure in measures
        if any(spreads := [comparison.spread(group, measure) for group in groups])
    }
    rows = [
        [group.label, *map(shown_spread, spreads)]
        for group, *spreads in zip(groups, *told.values(), strict=True)
    ]
    best = []
    for column, (measure, spreads) in enumerate(told.items(), 1):
        means = {
            row: spread.mean
            for row, (group, spread) in enumerate(zip(groups, spreads, strict=True))
            if spread is not None and not group.is_reference
        }
        if comparison.conclusive and measure.higher_is_better is not None:
            best += [(row, column) for row in best_of(means, measure.higher_is_better)]
    titles = [_rows_are(comparison), *(measure.title for measure in told)]
    return Sheet(caption, titles, rows, best)


def _beside_the_paper(comparison: Comparison, sheet: Sheet) -> Sheet:
    """With what the paper reports beside the best, of the methods that it has."""
    results, column = comparison.results, sheet.columns.index(MEASURE["best"].title) + 1
    figures = [results.in_paper(group) for group in comparison.ordered()]
    if results.paper is None or all(figure is None for figure in figures):
        return sheet
    cells = [f"paper ({results.paper.place})", *map(shown_number, figures)]
    columns, *rows = (
        [*row[:column], cell, *row[column:]]
        for row, cell in zip([sheet.columns, *sheet.rows], cells, strict=True)
    )
    best = [(row, place + (place >= column)) for row, place in sheet.best]
    return replace(sheet, columns=columns, rows=rows, best=best)


def _clients(comparison: Comparison) -> Sheet:
    """The last models on the test set and on clients' own data side by side, and the clusters."""
    clients = [MEASURE[key] for key in ("client_mean", "client_deviation", "client_worst")]
    clusters = _measured(comparison, "Clusters", [MEASURE["agreement"]])
    if not any(comparison.spread(g, measure) for g in comparison.groups for measure in clients):
        return clusters
    both = [replace(ACCURACY, title="test set"), *clients, MEASURE["agreement"]]
    own, found = comparison.results.own_data, ", and clusters" * (len(clusters.columns) > 1)
    caption = f"Last accuracy on the test set and on clients' {own}{found}"
    return _measured(comparison, caption, both)


def _rows_are(comparison: Comparison) -> str:
    """The title of the first column."""
    return "setting" if comparison.results.kind == "sweep" else "method"


def _tested(comparison: Comparison) -> Sheet | None:
    """Differences from the baseline, and whether they may be chance."""
    if comparison.baseline is None:
        return None
    corrected, rows = comparison.corrected(HEADLINE), []
    for group in comparison.ordered():
        if (test := comparison.test(group, HEADLINE)) is not None:
            adjusted = shown_p(corrected[group.label]) if group.label in corrected else ""
            between = f"{_signed(test.low)} to {_signed(test.high)}"
            told = [_signed(test.difference), between, shown_p(test.p_value), adjusted]
            rows.append([group.label, *told, str(test.count)])
    columns = ["method", "difference", "95% interval", "p", "p corrected", "pairs"]
    metric = "" if comparison.results.metric == "accuracy" else f" of {comparison.metric}"
    caption = f"Against {comparison.baseline.label}: {HEADLINE.title}{metric}"
    return Sheet(caption, columns, rows, [])


def _signed(value: float) -> str:
    """With a sign; what rounds to nothing has none to speak of."""
    return f"{round(value, 3) + 0.0:+.3f}"


def _reached(
    comparison: Comparison,
    unit: str,
    when: Callable[[Group, float], RoundsTo],
    groups: Sequence[Group],
) -> Sheet:
    """Rounds or simulated seconds to reach targets, and the speed-up over the baseline."""
    targets, percent = comparison.targets, comparison.results.metric == "accuracy"
    rows = [[g.label, *(_shown_rounds(when(g, target)) for target in targets)] for g in groups]
    against = f" (speed-up over {comparison.baseline.label})" if comparison.baseline else ""
    columns = [_rows_are(comparison), *(f"{t:.0%}" if percent else f"{t:g}" for t in targets)]
    caption = f"{unit} to reach {with_article(comparison.metric)}{against}"
    return Sheet(caption, columns, rows, [])


def _models(comparison: Comparison) -> Sheet:
    """The global models of methods that have several, in the first of their runs."""
    rows = []
    for group in comparison.ordered():
        run_data = next((run for run in group.runs if run.last_tested.models), None)
        for model in run_data.last_tested.models if run_data else []:
            numbers = map(shown_number, (model.accuracy, model.loss))
            rows.append([f"{group.label}: {model.name}", str(model.clients), *numbers])
    seeds = {run_data.seed for run_data in comparison.results.runs}
    caption = f"Models after the last round{f' of seed {min(seeds)}' if len(seeds) > 1 else ''}"
    return Sheet(caption, ["model", "clients", "accuracy", "loss"], rows, [])


def _classes(comparison: Comparison) -> Sheet | None:
    """The last accuracy on each class, mean over the seeds."""
    classes, rare = comparison.groups[0].runs[0].classes, comparison.results.rare
    if len(classes) > _MOST_CLASSES or not comparison.results.same_classes:
        return None
    rows = []
    for group in comparison.ordered():
        told = [found for run in group.runs if (found := run.last_tested.class_accuracy)]
        if told:
            known = [[v for v in values if v is not None] for values in zip(*told, strict=True)]
            means = [sum(values) / len(values) if values else None for values in known]
            rows.append([group.label, *map(shown_number, means)])
    names = [f"{name} *" if n in rare else name for n, name in enumerate(classes)]
    caption = f"Last accuracy on each class{' (* rare)' if rare else ''}"
    return Sheet(caption, [_rows_are(comparison), *names], rows, [])


def _costs(comparison: Comparison) -> Sheet:
    """The server's time and the clients' speed, also by the baseline's."""
    baseline, groups = comparison.baseline, comparison.ordered()
    columns, rows = [_rows_are(comparison)], [[group.label] for group in groups]
    for key, title, form, factor in (
        ("server_seconds", "server ms a round", ".2f", 1000),
        ("samples_per_second", "client samples/s", ",.0f", 1),
    ):
        columns += [title, *([f"/ {baseline.label}"] if baseline else [])]
        for row, group in zip(rows, groups, strict=True):
            spread = comparison.spread(group, MEASURE[key])
            row.append("" if spread is None else f"{factor * spread.mean:{form}}")
            if baseline:
                ratio = 1.0 if group is baseline else comparison.ratio(group, MEASURE[key])
                row.append("" if ratio is None else f"{ratio:.2f}x")
    return Sheet("Cost", columns, rows, [])


def _shown_rounds(found: RoundsTo) -> str:
    if found.rounds is None:
        return "N/A"
    part = "" if found.reached == found.runs else f", {found.reached} of {found.runs} seeds"
    speed_up = "" if found.speed_up is None else f" ({found.speed_up:.1f}x)"
    mean = f"{found.rounds.mean:.1f}".removesuffix(".0")
    return f"{mean}{speed_up}{part}"
