"""One table of several comparisons: a column for each of them, and the mean."""

from collections.abc import Mapping
from statistics import fmean

from cadis.analysis import HEADLINE, Cell, Comparison, Spread
from cadis.report.formats import SHOWN_DIGITS, Sheet, shown_spread


def cells_sheet(comparison: Comparison) -> Sheet | None:
    """What decides, of each method (a row) in each cell (a column), and the mean over the cells.

    The mean is that of methods which are in all cells. None if no method is in two cells.
    """
    cells = comparison.cells
    found = [_spreads(cell) for cell in cells]
    labels = list(dict.fromkeys(label for spreads in found for label in spreads))
    if all(sum(label in spreads for spreads in found) < 2 for label in labels):
        return None
    means = {label: _mean([spreads.get(label) for spreads in found]) for label in labels}
    last = _references(cells)
    labels.sort(key=lambda label: (label in last, -round(means[label] or 0.0, 9)))
    rows = [
        [
            label,
            *(shown_spread(spreads.get(label)) for spreads in found),
            "" if means[label] is None else f"{means[label]:.{SHOWN_DIGITS}f}",
        ]
        for label in labels
    ]
    best = [
        (labels.index(label), column)
        for column, cell in enumerate(cells, 1)
        for label in _highest(cell)
    ]
    if len({tuple(cell.values) for cell in cells}) == 1 and len(cells[0].values) == 1:
        titles = [next(iter(cell.values.values())) for cell in cells]
    else:
        titles = [cell.label for cell in cells]
    over = ", ".join(cells[0].values)
    caption = f"{comparison.metric_title} by {over}: {HEADLINE.title}"
    return Sheet(caption, ["method", *titles, "mean"], rows, best)


def _spreads(cell: Cell) -> dict[str, Spread]:
    own = Comparison(cell.results)
    return {
        group.label: spread
        for group in own.groups
        if (spread := own.spread(group, HEADLINE)) is not None
    }


def _references(cells: list[Cell]) -> set[str]:
    return {group.label for cell in cells for group in cell.results.groups if group.is_reference}


def _mean(spreads: list[Spread | None]) -> float | None:
    """The mean over the cells, each of which counts the same; None if one is missing."""
    known = [spread.mean for spread in spreads if spread is not None]
    return fmean(known) if len(known) == len(spreads) else None


def _highest(cell: Cell) -> list[str]:
    """Who has the best mean of a cell, all who share it; nobody where that says nothing."""
    own = Comparison(cell.results)
    if not own.conclusive:
        return []
    means: Mapping[str, float] = {
        group.label: round(spread.mean, SHOWN_DIGITS) for group, spread in own.ranked()
    }
    if len(set(means.values())) < 2:
        return []
    return [label for label, mean in means.items() if mean == max(means.values())]
