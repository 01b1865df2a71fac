"""Who is better, if anybody is, and how sure that is, in sentences."""

from collections.abc import Sequence

from cadis.analysis.comparison import HEADLINE, SIGNIFICANT, Comparison
from cadis.analysis.metrics import LAST_ROUNDS, MEASURE, Measure, with_article
from cadis.analysis.results import Group
from cadis.analysis.run_data import OWN_TEST_DATA
from cadis.analysis.statistics import Spread

_TIE = 0.0005  # means that differ by less look the same in tables
_MOST_NAMES = 4  # of more, only some are named


def answer(comparison: Comparison) -> str:
    """Who is better, by how much, and whether that may be chance, in one sentence.

    Nobody is where runs learn different things, of a single seed or round, and where means are the
    same; nobody wins whose lead may be chance.
    """
    results, ranked = comparison.results, comparison.ranked()
    if not ranked:
        return _untold(comparison)
    if not comparison.rivals:
        return _side_by_side(comparison)
    if not results.comparable:
        return "There is no answer yet: not all have the same number of rounds."
    if len(ranked) == 1:
        sentence = _alone(comparison, *ranked[0])
    elif not comparison.conclusive:
        sentence = _only_figures(comparison)
    else:
        sentence = _verdict(comparison)
    return sentence if results.complete else f"So far: {sentence}"


def details(comparison: Comparison) -> list[str]:
    """What the answer rests on, and what it means for the rare classes."""
    ranked = comparison.ranked()
    if not ranked:
        return []
    if not comparison.rivals:
        return _by_cell(comparison)
    if not comparison.results.comparable:
        told = [f"{g.label}: {' or '.join(map(str, g.rounds))}" for g in comparison.groups]
        return [f"Rounds of the runs that are shown: {'; '.join(told)}."]
    group, spread = ranked[0]
    rounds = group.rounds[-1]
    over = f"the last {LAST_ROUNDS} of {rounds} rounds" if rounds > LAST_ROUNDS else "all rounds"
    seeds = f", over {spread.count} seeds" if spread.count > 1 else ""
    own = f"{comparison.metric_title} is the mean of {over} on the test set{seeds}."
    rare = _in_the_last_round(comparison, group, MEASURE["rare"])
    who = f"classes of the smallest clusters ({comparison.results.rare_in_words})"
    on_rare = [f"On the {who}, {rare}."] if rare else []
    return [own, *_exactly_alike(comparison), *on_rare, *_clients(comparison)]


def _alone(comparison: Comparison, group: Group, spread: Spread) -> str:
    return f"{group.label} reaches {with_article(comparison.metric)} of {spread.mean:.3f}."


def _untold(comparison: Comparison) -> str:
    """Where there is no federation that has what decides: perhaps the line to measure by is."""
    for group in comparison.groups:
        if group.is_reference and (spread := comparison.spread(group, HEADLINE)) is not None:
            return _alone(comparison, group, spread)
    tested = any(s.accuracy is not None for group in comparison.groups for s in group.scores)
    return f"Nobody has {f'measured {comparison.metric}' if tested else 'tested a model'} yet."


def _side_by_side(comparison: Comparison) -> str:
    cells, results = comparison.cells, comparison.results
    names = ", ".join(cells[0].values)
    if results.kind != "compare":
        different = f"These runs learn different things ({names})"
        return f"{different}: they are shown side by side, not compared."
    if len(cells) >= _MOST_NAMES:
        return f"{len(cells)} comparisons ({names}), one below the other."
    return " ".join(f"{cell.label}: {answer(Comparison(cell.results))}" for cell in cells)


def _by_cell(comparison: Comparison) -> list[str]:
    """The answer in each cell that has rivals, unless it was given, and who is exactly alike."""
    cells = comparison.cells
    answered = comparison.results.kind == "compare" and len(cells) < _MOST_NAMES
    told = []
    for cell in cells:
        own = Comparison(cell.results)
        if len(own.ranked()) > 1:
            sentences = [] if answered else [answer(own)]
            told += [f"{cell.label}: {said}" for said in [*sentences, *_exactly_alike(own)]]
    return told


def _only_figures(comparison: Comparison) -> str:
    """What was measured, where that is too little to say who is better."""
    ranked = comparison.ranked()
    few = "One seed" if max(s.count for _, s in ranked) == 1 else "Fewer than two common seeds"
    little = [few] if len(comparison.seeds) < 2 else []
    little += ["one round"] if min(group.rounds[0] for group, _ in ranked) == 1 else []
    prefix = " and ".join(little)
    if ranked[0][1].mean - ranked[-1][1].mean < _TIE:
        said = f"all have {_amount(comparison, ranked[0][1])}"
    else:
        (group, spread), *others = ranked
        named = [f"{other.label} {own.mean:.3f}" for other, own in others[: _MOST_NAMES - 1]]
        left = others[len(named) :]
        named += [f"{len(left)} others down to {left[-1][1].mean:.3f}"] if left else []
        said = f"{group.label} has {_amount(comparison, spread)}, {', '.join(named)}"
    return f"{prefix[0].upper()}{prefix[1:]}: {said}; that does not tell who is better."


def _verdict(comparison: Comparison) -> str:
    """Those level at the top, or the one that is above, against the baseline or the lowest."""
    ranked = comparison.ranked()
    first, high = ranked[0]
    amount = _amount(comparison, high)
    level = [group for group, spread in ranked if high.mean - spread.mean < _TIE]
    names = _names([group.label for group in level])
    if len(level) == len(ranked):
        return f"{names} are level: {amount}, over {high.count} seeds."
    alike = [group for group in comparison.level_with(first, HEADLINE) if group not in level]
    if comparison.baseline is None:
        (group, low), rest = ranked[-1], _names([other.label for other in alike])
        chance = f"; the difference to {rest} may be chance" if alike else ""
        told, significant = f"; the lowest is {group.label} with {low.mean:.3f}{chance}", True
    else:
        told, significant = _above_the_baseline(comparison, level, alike)
    if len(level) > 1:
        return f"{names} are level: {amount}{told}."
    wins = significant and not alike and comparison.results.complete
    return f"{names} {'wins:' if wins else 'has the highest mean,'} {amount}{told}."


def _above_the_baseline(
    comparison: Comparison, level: Sequence[Group], alike: Sequence[Group]
) -> tuple[str, bool]:
    """How far those at the top are above the baseline, and whether that is more than chance.

    If the baseline is among them, they are told against the next. Of several differences, the
    smallest counts.
    """
    (_, high), *_ = ranked = comparison.ranked()
    below = comparison.baseline
    if below is None or below in level or not comparison.spread(below, HEADLINE):
        below = next(group for group, _ in ranked if group not in level)
    theirs = comparison.spread(below, HEADLINE)
    assert theirs is not None
    lead = high.mean - theirs.mean
    percent = "accuracy" in comparison.results.metric
    shown = f"{100 * lead:.1f} percentage points" if percent else f"{lead:.3f}"
    corrected = comparison.corrected(HEADLINE)
    tested = [below] if comparison.baseline in level else level
    found = (corrected[group.label] for group in tested if group.label in corrected)
    p_value = max(found, default=None)
    significant = p_value is not None and p_value < SIGNIFICANT
    rest = _names([group.label for group in alike if group is not below])
    others = f"; that to {rest} may be chance" if rest and significant else ""
    return f", {shown} above {below.label}; {_chance(p_value, high)}{others}", significant


def _chance(p_value: float | None, spread: Spread) -> str:
    if p_value is None:
        return "there are too few common seeds to tell whether that is chance"
    shown = f"corrected p = {p_value:.3f}" if p_value >= 0.001 else "corrected p < 0.001"
    if p_value < SIGNIFICANT:
        return f"the difference is significant ({shown})"
    return f"with {spread.count} seeds that may be chance ({shown})"


def _exactly_alike(comparison: Comparison) -> list[str]:
    """Who did the same in every round of every seed, to the last digit, if anybody tested."""
    alike: dict[str, list[str]] = {}
    for group in comparison.groups:
        course = {run.seed: [(r.accuracy, r.loss) for r in run.history] for run in group.runs}
        if any(accuracy is not None for told in course.values() for accuracy, _ in told):
            alike.setdefault(repr(course), []).append(group.label)
    return [
        f"{_names(others)} gave exactly the same as {first} in every round."
        for first, *others in alike.values()
        if others
    ]


def _clients(comparison: Comparison) -> list[str]:
    """A sentence about the data that clients hold out, if they do: each by the model it uses.

    A method of several models may be higher there and not on the test set, or the other way round.
    """
    first, measure = comparison.ranked()[0][0], MEASURE["client_mean"]
    told = _in_the_last_round(comparison, first, measure)
    if told is None or comparison.results.own_data != OWN_TEST_DATA:
        return []
    means = {
        group.label: spread.mean
        for group, _ in comparison.ranked()
        if (spread := comparison.spread(group, measure)) is not None
    }
    highest = max(means, key=lambda label: means[label])
    above = means[highest] - means[first.label] >= _TIE
    other = f"; the highest there is {highest} with {means[highest]:.3f}" if above else ""
    return [f"On clients' {OWN_TEST_DATA}, mean over the clients, {told}{other}."]


def _in_the_last_round(comparison: Comparison, first: Group, measure: Measure) -> str | None:
    """What the first has of a measure, and the baseline; None if it was not measured."""
    own, baseline, against = comparison.spread(first, measure), comparison.baseline, ""
    if own is None:
        return None
    if baseline and baseline is not first and (theirs := comparison.spread(baseline, measure)):
        against = f", {baseline.label} {theirs.mean:.3f}"
    return f"{first.label} has an accuracy of {own.mean:.3f} in the last round{against}"


def _amount(comparison: Comparison, spread: Spread) -> str:
    return f"{comparison.metric} {spread.mean:.3f}"


def _names(labels: Sequence[str]) -> str:
    """Names in a row; of too many, how many there are."""
    if len(labels) > _MOST_NAMES:
        return f"{len(labels)} of them"
    return " and ".join([", ".join(labels[:-1]), labels[-1]] if len(labels) > 1 else labels)
