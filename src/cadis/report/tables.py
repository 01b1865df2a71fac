"""The answer in tables, for the terminal, files and the page alike."""

from collections.abc import Callable, Sequence
from dataclasses import replace

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
    Spread,
    with_article,
)
from cadis.report.formats import SHOWN_DIGITS, Sheet, shown_p, shown_spread
from cadis.report.grid_table import cells_sheet
from cadis.store import metric_words

_MOST_CLASSES = 20
"""So many classes have a table of their own."""


def sheets(comparison: Comparison) -> list[Sheet]:
    """All tables that have anything to say; of groups that are no rivals, those of each cell."""
    cells = comparison.cells
    if not comparison.several_comparisons:
        return _sheets(comparison)
    overview = cells_sheet(comparison)
    return [
        *([] if overview is None else [overview]),
        *(
            replace(sheet, caption=f"{cell.label}: {sheet.caption}")
            for cell in cells
            for sheet in _sheets(Comparison(cell.results))
        ),
    ]


def main_sheets(comparison: Comparison) -> list[Sheet]:
    """Those for the terminal: all, but of several comparisons only what decides them."""
    every = sheets(comparison)
    if not comparison.several_comparisons:
        return every
    decides = (f": {comparison.metric.lower()} on the test set", HEADLINE.title)
    return [sheet for sheet in every if any(words in sheet.caption.lower() for words in decides)]


def _sheets(comparison: Comparison) -> list[Sheet]:
    """All tables of groups that can stand in one."""
    decides = [MEASURE[key] for key in ("best", "last", "ten_rounds", "amplitude")]
    decides += [] if comparison.results.metric == "accuracy" else [ACCURACY]
    on_test_set = f"{comparison.metric_title} on the test set"
    made = [
        _beside_the_paper(
            comparison,
            _measured(comparison, on_test_set, [*decides, MEASURE["rare"]]),
        ),
        _measured(comparison, "Further measures in the last round", comparison.task_measures),
        _tested(comparison),
        _targets(comparison),
        _times(comparison),
        _clients(comparison),
        _models(comparison),
        _classes(comparison),
        _costs(comparison),
    ]
    return [sheet for sheet in made if sheet is not None and len(sheet.columns) > 1]


def notes(comparison: Comparison) -> list[str]:
    """What a reader of the tables must know."""
    groups = comparison.groups
    baseline = Comparison(comparison.cells[0].results).baseline
    seeds = max(len(group.scores) for group in groups)
    told = []
    if seeds > 1:
        alike = all(len(group.scores) == seeds for group in groups)
        number = f"{seeds}" if alike else f"up to {seeds}"
        told.append(f"Mean ± sample standard deviation over {number} seeds.")
    elif len(used := {scores.seed for group in groups for scores in group.scores}) == 1:
        told.append(f"All numbers are those of one seed, {used.pop()}.")
    if any(Comparison(cell.results).conclusive for cell in comparison.cells):
        told.append("Bold is the best mean; whether that may be chance, p tells.")
    if baseline is not None and seeds > 1:
        told.append(
            f"p: paired t-test on the seeds that a method shares with {baseline.label}; corrected "
            "by Holm for the number of methods."
        )
    told.append(
        "10-round mean: of the last 10 rounds, or of all if there are fewer; "
        "amplitude: the best of them minus the worst."
    )
    told += [*_metrics(comparison), *_paper(comparison)]
    told += [*_clock(comparison), *_sampled(comparison), *_own_data(comparison)]
    if rare := comparison.results.rare_in_words:
        told.append(
            f"Rare: last accuracy on the classes that only the smallest clusters have ({rare})."
        )
    if any(group.is_reference for group in groups):
        told.append("SingleSet has all data in one place: a line to measure by, no contestant.")
    if comparison.several_comparisons:
        told.append(
            "A page of each comparison, with all tables and figures, is in the folder cells."
        )
    told += _missing(comparison)
    return told


def _paper(comparison: Comparison) -> list[str]:
    """What the paper's figures are, and what is different here."""
    paper = comparison.results.paper
    if paper is None or all(comparison.results.in_paper(g) is None for g in comparison.groups):
        return []
    changed = f"; here: {', '.join(paper.changed)}" if paper.changed else ""
    return [f"Paper: the best top-1 accuracy that it reports in {paper.place}{changed}."]


def _metrics(comparison: Comparison) -> list[str]:
    """What decides, where that is not what all runs chose their best round by."""
    chosen = sorted({run_data.metric for run_data in comparison.results.runs})
    if chosen == [comparison.results.metric]:
        return []
    theirs = " or ".join(map(metric_words, chosen))
    return [f"Here {comparison.metric} decides; the runs kept their best model by {theirs}."]


def _clock(comparison: Comparison) -> list[str]:
    """What simulated time is, and how long the rounds took by it."""
    ends = {
        group.label: Spread.of([scores.clocks[-1] for scores in group.scores if scores.clocks])
        for group in comparison.groups
    }
    took = [f"{label} {end.mean:,.4g}" for label, end in ends.items() if end is not None]
    if not took:
        return []
    return [
        "Simulated seconds: a round ends when its slowest participant does; one of FedAT is that "
        f"of a tier. All rounds took: {', '.join(took)}."
    ]


def _sampled(comparison: Comparison) -> list[str]:
    """What was not tested."""
    runs, told = comparison.results.runs, []
    if any(record.accuracy is None for run_data in runs for record in run_data.history):
        told.append("Not every round was tested: means are of those rounds that were.")
    if sampled := next((run_data for run_data in runs if run_data.clients_tested), None):
        told.append(_some_clients(sampled))
    return told


def _some_clients(run_data: RunData) -> str:
    """Not all clients were tested: there are very many, or some have nothing to hold out."""
    *_, tested = run_data.client_accuracy.values()
    all_that_could = len(tested) == len(run_data.test_sizes)
    why = "the others have too few samples" if all_that_could else "drawn evenly"
    own = run_data.own_data
    return f"Accuracy on clients' {own} is that of {run_data.clients_tested}, {why}."


def _own_data(comparison: Comparison) -> list[str]:
    """What clients' own data are."""
    results = comparison.results
    if not any(run_data.client_accuracy for run_data in results.runs):
        return []
    if results.own_data == OWN_TEST_DATA:
        sizes = [size for run_data in results.runs for size in run_data.test_sizes]
        few = f"{min(sizes)} to {max(sizes)}"
        return [f"Own test data: {few} samples of each client's that nobody trains on."]
    if results.own_data == OWN_TRAINING_DATA:
        return ["Own training data: what each client trains on; --client-test 0.2 holds some out."]
    return ["Own data are held out in some runs and trained on in others: do not compare these."]


def _missing(comparison: Comparison) -> list[str]:
    unfinished = [run_data for run_data in comparison.results.runs if not run_data.finished]
    told = []
    lacking = comparison.results.planned - len(comparison.results.runs)
    if unfinished or lacking:
        number = len(unfinished) + lacking
        told.append(f"{number} of {comparison.results.planned} runs have not ended.")
    rejected = sum(run_data.summary["rejected"] for run_data in comparison.results.runs)
    if rejected:
        told.append(f"{rejected} updates were left out; history.jsonl names them.")
    return told


def _measured(comparison: Comparison, caption: str, measures: Sequence[Measure]) -> Sheet:
    """Means and deviations of some measures; those that nobody has are left out."""
    groups = comparison.ordered()
    columns: list[tuple[str, list[Spread | None], bool | None]] = []
    for measure in measures:
        spreads = [comparison.spread(group, measure) for group in groups]
        if any(spreads):
            columns.append((measure.title, spreads, measure.higher_is_better))
    rows = [
        [group.label, *(shown_spread(spreads[row]) for _, spreads, _ in columns)]
        for row, group in enumerate(groups)
    ]
    best = [
        place
        for number, (_, spreads, higher) in enumerate(columns, 1)
        for place in _best(groups, spreads, higher, number)
        if comparison.conclusive
    ]
    titles = [_rows_are(comparison), *(title for title, _, _ in columns)]
    return Sheet(caption, titles, rows, best)


def _beside_the_paper(comparison: Comparison, sheet: Sheet) -> Sheet:
    """With what the paper reports beside the best, of the methods that it has."""
    results = comparison.results
    figures = [results.in_paper(group) for group in comparison.ordered()]
    if results.paper is None or all(figure is None for figure in figures):
        return sheet
    told = ["" if figure is None else f"{figure:.{SHOWN_DIGITS}f}" for figure in figures]
    after = sheet.columns.index(MEASURE["best"].title) + 1
    rows = [
        [*row[:after], figure, *row[after:]] for row, figure in zip(sheet.rows, told, strict=True)
    ]
    columns = [*sheet.columns[:after], f"paper ({results.paper.place})", *sheet.columns[after:]]
    best = [(row, column + (column >= after)) for row, column in sheet.best]
    return replace(sheet, columns=columns, rows=rows, best=best)


def _clients(comparison: Comparison) -> Sheet | None:
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


def _best(
    groups: Sequence[Group], spreads: Sequence[Spread | None], higher: bool | None, column: int
) -> list[tuple[int, int]]:
    """Where the best federations of a column are; nowhere if there is nothing to choose.

    Those that look the same are the same.
    """
    means = {
        row: round(spread.mean, SHOWN_DIGITS)
        for row, (group, spread) in enumerate(zip(groups, spreads, strict=True))
        if spread is not None and not group.is_reference
    }
    if higher is None or len(set(means.values())) < 2:
        return []
    best = max(means.values()) if higher else min(means.values())
    return [(row, column) for row, mean in means.items() if mean == best]


def _tested(comparison: Comparison) -> Sheet | None:
    """Differences from the baseline, and whether they may be chance."""
    if comparison.baseline is None:
        return None
    corrected, rows = comparison.corrected(HEADLINE), []
    for group in comparison.ordered():
        test = comparison.test(group, HEADLINE)
        if test is not None:
            p_values = [
                test.p_value,
                *([corrected[group.label]] if group.label in corrected else []),
            ]
            cells = [shown_p(p_value) for p_value in p_values]
            between = f"{_signed(test.low)} to {_signed(test.high)}"
            told = [_signed(test.difference), between, *cells, *[""] * (2 - len(cells))]
            rows.append([group.label, *told, str(test.count)])
    columns = ["method", "difference", "95% interval", "p", "p corrected", "pairs"]
    metric = "" if comparison.results.metric == "accuracy" else f" of {comparison.metric}"
    caption = f"Against {comparison.baseline.label}: {HEADLINE.title}{metric}"
    return Sheet(caption, columns, rows, []) if rows else None


def _signed(value: float) -> str:
    """With a sign; what rounds to nothing has none to speak of."""
    return f"{round(value, 3) + 0.0:+.3f}"


def _targets(comparison: Comparison) -> Sheet:
    """Rounds to reach targets, and the speed-up over the baseline."""
    return _reached(comparison, "Rounds", comparison.rounds_to, comparison.ordered())


def _times(comparison: Comparison) -> Sheet | None:
    """Simulated seconds to reach the same targets, where clients have speeds."""
    timed = [g for g in comparison.ordered() if any(scores.clocks for scores in g.scores)]
    return _reached(comparison, "Simulated seconds", comparison.time_to, timed) if timed else None


def _reached(
    comparison: Comparison,
    unit: str,
    when: Callable[[Group, float], RoundsTo],
    groups: Sequence[Group],
) -> Sheet:
    targets = comparison.targets
    rows = [[g.label, *(_shown_rounds(when(g, target)) for target in targets)] for g in groups]
    against = f" (speed-up over {comparison.baseline.label})" if comparison.baseline else ""
    columns = [_rows_are(comparison), *(_target(comparison, target) for target in targets)]
    caption = f"{unit} to reach {with_article(comparison.metric)}{against}"
    return Sheet(caption, columns, rows, [])


def _target(comparison: Comparison, target: float) -> str:
    """Accuracies are written in percent, other measures are not."""
    return f"{target:.0%}" if comparison.results.metric == "accuracy" else f"{target:g}"


def _models(comparison: Comparison) -> Sheet | None:
    """The global models of methods that have several, in the first of their runs."""
    rows = []
    for group in comparison.ordered():
        run_data = next((run for run in group.runs if run.last_tested.models), None)
        for model in run_data.last_tested.models if run_data else []:
            numbers = ["" if v is None else f"{v:.3f}" for v in (model.accuracy, model.loss)]
            rows.append([f"{group.label}: {model.name}", str(model.clients), *numbers])
    seeds = {run_data.seed for run_data in comparison.results.runs}
    caption = f"Models after the last round{f' of seed {min(seeds)}' if len(seeds) > 1 else ''}"
    return Sheet(caption, ["model", "clients", "accuracy", "loss"], rows, []) if rows else None


def _classes(comparison: Comparison) -> Sheet | None:
    """The last accuracy on each class, mean over the seeds."""
    run_data = comparison.groups[0].runs[0]
    if len(run_data.classes) > _MOST_CLASSES or not comparison.results.same_classes:
        return None
    rows = []
    for group in comparison.ordered():
        told = [found for s in group.runs if (found := s.last_tested.class_accuracy)]
        columns = list(zip(*told, strict=True))
        if columns:
            rows.append([group.label, *(_mean_cell(values) for values in columns)])
    rare = comparison.results.rare
    names = [f"{name} *" if n in rare else name for n, name in enumerate(run_data.classes)]
    note = " (* rare)" if rare else ""
    caption = f"Last accuracy on each class{note}"
    return Sheet(caption, [_rows_are(comparison), *names], rows, []) if rows else None


def _costs(comparison: Comparison) -> Sheet:
    """The server's time and the clients' speed, also by the baseline's."""
    server, client = MEASURE["server_seconds"], MEASURE["samples_per_second"]
    baseline, groups = comparison.baseline, comparison.ordered()
    titles = ["server ms a round", "client samples/s"]
    forms: list[Callable[[float], str]] = [lambda v: f"{1000 * v:.2f}", lambda v: f"{v:,.0f}"]
    columns, rows = [_rows_are(comparison)], [[group.label] for group in groups]
    for measure, title, form in zip((server, client), titles, forms, strict=True):
        columns += [title, *([f"/ {baseline.label}"] if baseline else [])]
        for row, group in zip(rows, groups, strict=True):
            spread = comparison.spread(group, measure)
            row.append("" if spread is None else form(spread.mean))
            if baseline:
                row.append(_shown_ratio(comparison, group, measure))
    return Sheet("Cost", columns, rows, [])


def _shown_rounds(found: RoundsTo) -> str:
    if found.rounds is None:
        return "N/A"
    part = "" if found.reached == found.runs else f", {found.reached} of {found.runs} seeds"
    speed_up = "" if found.speed_up is None else f" ({found.speed_up:.1f}x)"
    mean = f"{found.rounds.mean:.1f}".removesuffix(".0")
    return f"{mean}{speed_up}{part}"


def _shown_ratio(comparison: Comparison, group: Group, measure: Measure) -> str:
    if group is comparison.baseline:
        return "1.00x"
    ratio = comparison.ratio(group, measure)
    return "" if ratio is None else f"{ratio:.2f}x"


def _mean_cell(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.3f}" if known else ""
