"""Who wins, and how sure that is, in sentences."""

from cadis.analysis.comparison import HEADLINE, Comparison
from cadis.analysis.own_data import OWN_TEST_DATA
from cadis.analysis.results import Group
from cadis.analysis.scores import LAST_ROUNDS, MEASURE, Measure
from cadis.analysis.statistics import Spread

_SIGNIFICANT = 0.05
_TIE = 0.0005
"""Accuracies that differ by less look the same in tables."""


def answer(comparison: Comparison) -> str:
    """Who wins, by how much, and whether that may be chance, in one sentence."""
    ranked, results = comparison.ranked(), comparison.results
    if not ranked:
        return "Nobody has tested a model yet."
    if not results.comparable:
        return "There is no answer yet: not all have the same number of rounds."
    if len(ranked) == 1:
        sentence = _alone(*ranked[0])
    elif comparison.baseline is None:
        sentence = _range(comparison)
    else:
        sentence = _winner(comparison)
    return sentence if results.complete else f"So far: {sentence}"


def details(comparison: Comparison) -> list[str]:
    """What the answer rests on, and what it means for the rare classes."""
    ranked = comparison.ranked()
    if not ranked:
        return []
    if not comparison.results.comparable:
        told = [f"{group.label}: {_in_words(group.rounds)}" for group in comparison.groups]
        return [f"Rounds of the runs that are shown: {'; '.join(told)}."]
    group, spread = ranked[0]
    rounds = group.rounds[-1]
    over = f"the last {LAST_ROUNDS} of {rounds} rounds" if rounds > LAST_ROUNDS else "all rounds"
    seeds = f", over {spread.count} seeds" if spread.count > 1 else ""
    own = f"Accuracy is the mean of {over} on the test set{seeds}."
    return [own, *_rare(comparison, group), *_clients(comparison, group)]


def _in_words(numbers: list[int]) -> str:
    return " or ".join(map(str, numbers))


def _alone(group: Group, spread: Spread) -> str:
    return f"{group.label} reaches an accuracy of {spread.mean:.3f}."


def _range(comparison: Comparison) -> str:
    """The best and the worst; those that cannot be told apart are named together."""
    ranked = comparison.ranked()
    (_, high), (worst, low) = ranked[0], ranked[-1]
    if high.mean - low.mean < _TIE:
        return f"All reach the same accuracy, {high.mean:.3f}."
    best = [group.label for group, spread in ranked if high.mean - spread.mean < _TIE]
    names = " and ".join(best) if len(best) <= 3 else f"{len(best)} settings"
    verb = "is" if len(best) == 1 else "are"
    chance = "" if high.count > 1 else "; a single seed does not tell whether that is chance"
    return (
        f"{names} {verb} best: accuracy {high.mean:.3f}; {worst.label} is worst: "
        f"{low.mean:.3f}{chance}."
    )


def _winner(comparison: Comparison) -> str:
    """The best against the baseline; the baseline against the next best."""
    (first, high), (second, _) = comparison.ranked()[:2]
    baseline = comparison.baseline
    assert baseline is not None
    rival, tested = (second, second) if first is baseline else (baseline, first)
    theirs = comparison.spread(rival, HEADLINE)
    if theirs is None:
        return _range(comparison)
    p_value = comparison.corrected(HEADLINE).get(tested.label)
    verb = "wins" if p_value is not None and p_value < _SIGNIFICANT else "is ahead"
    return (
        f"{first.label} {verb}: accuracy {high.mean:.3f}, {100 * (high.mean - theirs.mean):.1f} "
        f"percentage points above {rival.label}; {_chance(p_value, high)}."
    )


def _chance(p_value: float | None, spread: Spread) -> str:
    if p_value is None:
        return "a single seed does not tell whether that is chance"
    shown = f"corrected p = {p_value:.3f}" if p_value >= 0.001 else "corrected p < 0.001"
    if p_value < _SIGNIFICANT:
        return f"the difference is significant ({shown})"
    return f"with {spread.count} seeds that may be chance ({shown})"


def _rare(comparison: Comparison, first: Group) -> list[str]:
    """A sentence about the rare classes, if there are any."""
    told = _in_the_last_round(comparison, first, MEASURE["rare"])
    who = f"classes of the smallest clusters ({comparison.results.rare_in_words})"
    return [f"On the {who}, {told}."] if told else []


def _clients(comparison: Comparison, first: Group) -> list[str]:
    """A sentence about the data that clients hold out, if they do: each by the model it uses.

    A method of several models may be best there and not on the test set, or the other way round.
    """
    measure = MEASURE["client_mean"]
    told = _in_the_last_round(comparison, first, measure)
    if told is None or comparison.results.own_data != OWN_TEST_DATA:
        return []
    means = {
        group.label: spread.mean
        for group, _ in comparison.ranked()
        if (spread := comparison.spread(group, measure)) is not None
    }
    best = max(means, key=lambda label: means[label])
    ahead = means[best] - means[first.label] >= _TIE
    other = f"; {best} is best there, with {means[best]:.3f}" if ahead else ""
    return [f"On clients' {OWN_TEST_DATA}, mean over the clients, {told}{other}."]


def _in_the_last_round(comparison: Comparison, first: Group, measure: Measure) -> str | None:
    """What the first has of a measure, and the baseline; None if it was not measured."""
    own, baseline = comparison.spread(first, measure), comparison.baseline
    if own is None:
        return None
    theirs = comparison.spread(baseline, measure) if baseline else None
    told = theirs is not None and first is not baseline
    against = f", {baseline.label} {theirs.mean:.3f}" if told and baseline and theirs else ""
    return f"{first.label} has {own.mean:.3f} in the last round{against}"
