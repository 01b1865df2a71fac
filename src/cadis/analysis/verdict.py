"""Write the verdict of a comparison: which method is better, and how certain that is.

The texts compare groups, which are the runs of one method or setting with different seeds.
"""

from collections.abc import Sequence

from cadis.analysis.comparison import RANKING_METRIC, SIGNIFICANT, Comparison
from cadis.analysis.metrics import LAST_ROUNDS, METRICS, Metric, add_article
from cadis.analysis.results import Group
from cadis.analysis.run_data import OWN_TEST_DATA
from cadis.analysis.statistics import Spread

_TIE = 0.0005  # means that differ by less look the same in tables
_MAX_NAMES = 4  # if there are more methods, only their number is written


def write_verdict(comparison: Comparison) -> str:
    """Write which method is better, by how much, and whether the difference is significant.

    A method is called better only if runs are comparable, at least two seeds are finished, and
    its lead is significant.

    Args:
        comparison: groups to compare.

    Returns:
        One or two sentences, such as "CADIS is better than FedAvg by 4.6 percentage points
        (accuracy 0.905 compared with 0.859; p = 0.011, paired t-test over 5 seeds)."
    """
    results, ranking = comparison.results, comparison.rank_groups()
    if not ranking:
        return _write_without_ranking(comparison)
    if not comparison.all_comparable:
        return _write_side_by_side(comparison)
    if not results.has_equal_rounds:
        return "There is no verdict yet, because not all runs have the same number of rounds."
    if len(ranking) == 1:
        sentence = _write_single(comparison, *ranking[0])
    elif not comparison.is_conclusive:
        sentence = _write_numbers(comparison)
    else:
        sentence = _compare_best(comparison)
    return sentence if results.is_complete else f"So far: {sentence}"


def explain_verdict(comparison: Comparison) -> list[str]:
    """Write which data the verdict is based on, and the results on rare classes and client data."""
    ranking = comparison.rank_groups()
    if not ranking:
        return []
    if not comparison.all_comparable:
        return _write_verdicts_of_sets(comparison)
    if not comparison.results.has_equal_rounds:
        counts = [f"{g.label} {' or '.join(map(str, g.rounds))}" for g in comparison.groups]
        return [f"Rounds finished so far: {', '.join(counts)}."]
    best, spread = ranking[0]
    total = best.rounds[-1]
    rounds = f"the last {LAST_ROUNDS} of {total} rounds" if total > LAST_ROUNDS else "all rounds"
    seeds = f" and over {spread.count} seeds" if spread.count > 1 else ""
    basis = f"The {comparison.metric} on the test set is averaged over {rounds}{seeds}."
    rare = _write_last_round(comparison, best, METRICS["rare"])
    names = f"classes that only the smallest clusters have ({comparison.results.rare_classes_text})"
    on_rare = [f"On the {names}, the accuracy in the last round is {rare}."] if rare else []
    return [basis, *_find_identical(comparison), *on_rare, *_compare_on_clients(comparison)]


def _write_single(comparison: Comparison, group: Group, spread: Spread) -> str:
    return f"{group.label} reaches {add_article(comparison.metric)} of {spread.mean:.3f}."


def _write_without_ranking(comparison: Comparison) -> str:
    """Write the main metric of a reference, or why no group can be ranked yet."""
    for group in comparison.groups:
        spread = comparison.compute_spread(group, RANKING_METRIC)
        if group.is_reference and spread is not None:
            return _write_single(comparison, group, spread)
    scores = [scores for group in comparison.groups for scores in group.scores]
    if any(entry.accuracy is not None for entry in scores):
        return f"No run has computed the {comparison.metric} yet."
    return "No model has been tested yet."


def _write_side_by_side(comparison: Comparison) -> str:
    sets = comparison.comparable_sets
    names = " and ".join(sets[0].values)
    if comparison.results.kind != "compare":
        return f"These runs differ in {names}, so they are shown side by side and not compared."
    if len(sets) >= _MAX_NAMES:
        return f"There are {len(sets)} comparisons, one for each value of {names}."
    return " ".join(f"{s.label}: {write_verdict(Comparison(s.results))}" for s in sets)


def _write_verdicts_of_sets(comparison: Comparison) -> list[str]:
    """Write the verdict of each set with several groups, and which of them are identical.

    The verdict is left out if ``write_verdict`` already has it.
    """
    sets = comparison.comparable_sets
    is_written = comparison.results.kind == "compare" and len(sets) < _MAX_NAMES
    lines = []
    for comparable in sets:
        within = Comparison(comparable.results)
        if len(within.rank_groups()) > 1:
            sentences = [] if is_written else [write_verdict(within)]
            sentences += _find_identical(within)
            lines += [f"{comparable.label}: {sentence}" for sentence in sentences]
    return lines


def _write_numbers(comparison: Comparison) -> str:
    """Write the mean of each group, and why the means are not enough to decide."""
    ranking, noun = comparison.rank_groups(), _get_noun(comparison)
    reasons = []
    if len(comparison.seeds) < 2:
        is_single = max(spread.count for _, spread in ranking) == 1
        reasons.append("one seed" if is_single else "fewer than two common seeds")
    if min(group.rounds[0] for group, _ in ranking) == 1:
        reasons.append("one round")
    means = [spread.mean for _, spread in ranking]
    if means[0] - means[-1] < _TIE:
        numbers = f"{means[0]:.3f} with all {noun}s"
    else:
        named = [f"{spread.mean:.3f} with {group.label}" for group, spread in ranking[:_MAX_NAMES]]
        num_others = len(ranking) - len(named)
        if num_others:
            others = f"other {noun}" if num_others == 1 else f"{num_others} other {noun}s"
            named.append(f"at least {means[-1]:.3f} with the {others}")
        numbers = _join_with_and(named)
    reason = " and ".join(reasons)
    verb = "is" if reasons in (["one seed"], ["one round"]) else "are"
    return (
        f"The {comparison.metric} is {numbers}. {reason.capitalize()} {verb} not enough to say "
        f"which {noun} is better."
    )


def _compare_best(comparison: Comparison) -> str:
    """Write how much better the leaders are, which are the groups with the highest mean.

    They are compared with the baseline or, if there is none, with the group with the lowest mean.
    """
    ranking = comparison.rank_groups()
    best, high = ranking[0]
    leaders = [group for group, spread in ranking if high.mean - spread.mean < _TIE]
    if len(leaders) == len(ranking):
        return f"{_write_tie(comparison, leaders)} (mean over {high.count} seeds)."
    # Groups whose mean is lower, but not significantly
    not_worse = comparison.find_indistinguishable(best, RANKING_METRIC)
    not_worse = [group for group in not_worse if group not in leaders]
    if comparison.baseline is None:
        return _compare_with_lowest(comparison, leaders, not_worse)
    return _compare_with_baseline(comparison, leaders, not_worse)


def _compare_with_lowest(
    comparison: Comparison, leaders: Sequence[Group], not_worse: Sequence[Group]
) -> str:
    (best, high), *_, (worst, low) = comparison.rank_groups()
    metric = comparison.metric
    if len(leaders) > 1 or not_worse or not comparison.results.is_complete:
        lead = _write_highest(comparison, leaders)
    else:
        lead = f"{best.label} is the best {_get_noun(comparison)} ({metric} {high.mean:.3f})"
    lowest = f"{worst.label} has the lowest {metric}, {low.mean:.3f}"
    return f"{lead}. {lowest}.{_write_not_worse(comparison, not_worse)}"


def _compare_with_baseline(
    comparison: Comparison, leaders: Sequence[Group], not_worse: Sequence[Group]
) -> str:
    """Compare the leaders with the baseline or, if it is one of them, with the next group."""
    ranking = comparison.rank_groups()
    best, high = ranking[0]
    means = {group.label: spread.mean for group, spread in ranking}
    rival = comparison.baseline
    if rival is None or rival in leaders or rival.label not in means:
        rival = next(group for group, _ in ranking if group not in leaders)
    gap = _format_gap(comparison, high.mean - means[rival.label])
    evidence, is_significant = _test_lead(comparison, leaders, rival)
    is_better = is_significant and (len(leaders) > 1 or comparison.results.is_complete)
    unmentioned = [group for group in not_worse if group is not rival] if is_significant else []
    note = _write_not_worse(comparison, unmentioned)
    if not is_better:
        doubt = "" if is_significant else ", but the difference is not significant"
        lead = (
            f"{_write_highest(comparison, leaders)}. This is {gap} higher than with {rival.label}"
        )
        return f"{lead}{doubt} ({evidence}).{note}"
    if len(leaders) > 1:
        lead = f"{_write_tie(comparison, leaders)} and are better than {rival.label}"
        return f"{lead} by {gap} ({evidence}).{note}"
    values = f"{comparison.metric} {high.mean:.3f} compared with {means[rival.label]:.3f}"
    if not_worse or len(ranking) == 2:
        return f"{best.label} is better than {rival.label} by {gap} ({values}; {evidence}).{note}"
    lead = f"{best.label} is the best {_get_noun(comparison)}, {gap} better than {rival.label}"
    return f"{lead} ({values}; {evidence})."


def _test_lead(comparison: Comparison, leaders: Sequence[Group], rival: Group) -> tuple[str, bool]:
    """Return the evidence that the leaders are better, and whether it is significant.

    If there are several leaders, the largest p-value counts.
    """
    corrected = comparison.correct_p_values(RANKING_METRIC)
    groups = [rival] if comparison.baseline in leaders else leaders
    groups = [group for group in groups if group.label in corrected]
    if not groups:
        return "there are too few common seeds for a test", False
    group = max(groups, key=lambda group: corrected[group.label])
    p_value = corrected[group.label]
    test = comparison.test_against_baseline(group, RANKING_METRIC)
    assert test is not None
    p_text = f"p = {p_value:.3f}" if p_value >= 0.001 else "p < 0.001"
    holm = ", Holm-corrected" if len(corrected) > 1 else ""
    return f"{p_text}, {test.name} over {test.count} seeds{holm}", p_value < SIGNIFICANT


def _find_identical(comparison: Comparison) -> list[str]:
    """Name groups with exactly the same accuracy and loss in every round with every seed."""
    labels: dict[str, list[str]] = {}
    for group in comparison.groups:
        curves = {run.seed: [(r.accuracy, r.loss) for r in run.history] for run in group.runs}
        if any(accuracy is not None for curve in curves.values() for accuracy, _ in curve):
            labels.setdefault(repr(curves), []).append(group.label)
    return [
        f"{_join_names(others, 'others')} gave exactly the same accuracy and loss as {first} "
        "in every round."
        for first, *others in labels.values()
        if others
    ]


def _compare_on_clients(comparison: Comparison) -> list[str]:
    """Write the accuracy on the held-out data of clients, each tested with its own model.

    A method with several models may be better there although it is worse on the test set.
    """
    best, metric = comparison.rank_groups()[0][0], METRICS["client_mean"]
    values = _write_last_round(comparison, best, metric)
    if values is None or comparison.results.own_data != OWN_TEST_DATA:
        return []
    means = {
        group.label: spread.mean
        for group, _ in comparison.rank_groups()
        if (spread := comparison.compute_spread(group, metric)) is not None
    }
    highest = max(means, key=lambda label: means[label])
    is_other = means[highest] - means[best.label] >= _TIE
    other = f"; the highest is {means[highest]:.3f} with {highest}" if is_other else ""
    data = f"On clients' {OWN_TEST_DATA}"
    return [f"{data}, the mean accuracy of the clients in the last round is {values}{other}."]


def _write_last_round(comparison: Comparison, best: Group, metric: Metric) -> str | None:
    """Write a metric of the best group and the baseline; None if it was not computed.

    The text is, for example, "0.951 with CADIS and 0.861 with FedAvg".
    """
    spread, baseline = comparison.compute_spread(best, metric), comparison.baseline
    if spread is None:
        return None
    text = f"{spread.mean:.3f} with {best.label}"
    if baseline is not None and baseline is not best:
        other = comparison.compute_spread(baseline, metric)
        text += f" and {other.mean:.3f} with {baseline.label}" if other else ""
    return text


def _get_noun(comparison: Comparison) -> str:
    return "setting" if comparison.results.kind == "sweep" else "method"


def _write_tie(comparison: Comparison, leaders: Sequence[Group]) -> str:
    mean = comparison.rank_groups()[0][1].mean
    return f"{_join_labels(comparison, leaders)} have the same {comparison.metric} of {mean:.3f}"


def _write_highest(comparison: Comparison, leaders: Sequence[Group]) -> str:
    verb, mean = "has" if len(leaders) == 1 else "have", comparison.rank_groups()[0][1].mean
    labels = _join_labels(comparison, leaders)
    return f"{labels} {verb} the highest {comparison.metric}, {mean:.3f}"


def _format_gap(comparison: Comparison, gap: float) -> str:
    is_accuracy = "accuracy" in comparison.results.metric
    return f"{100 * gap:.1f} percentage points" if is_accuracy else f"{gap:.3f}"


def _write_not_worse(comparison: Comparison, groups: Sequence[Group]) -> str:
    """Write that the best group is not significantly better than some other groups."""
    if not groups:
        return ""
    best = comparison.rank_groups()[0][0].label
    others = _join_labels(comparison, groups, "other ")
    return f" {best} is not significantly better than {others}."


def _join_labels(comparison: Comparison, groups: Sequence[Group], prefix: str = "") -> str:
    return _join_names([group.label for group in groups], f"{prefix}{_get_noun(comparison)}s")


def _join_names(names: Sequence[str], plural: str) -> str:
    """Join names, or write only their number and the plural noun if there are too many."""
    return f"{len(names)} {plural}" if len(names) > _MAX_NAMES else _join_with_and(names)


def _join_with_and(texts: Sequence[str]) -> str:
    """Join texts with commas, and the last one with "and"."""
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
