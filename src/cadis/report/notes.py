"""Write the notes on all tables: seeds, bold numbers, data that were tested, missing runs."""

from collections.abc import Iterator, Sequence
from statistics import fmean

from cadis.analysis import OWN_TEST_DATA, OWN_TRAINING_DATA, Comparison, RunData
from cadis.store import format_metric_name


def write_notes(comparison: Comparison) -> list[str]:
    """Write the sentences that a reader of the tables needs."""
    sentences = [
        *_write_seed_notes(comparison),
        *_write_metric_notes(comparison),
        *_write_data_notes(comparison),
    ]
    if comparison.has_several_comparisons:
        sentences.append(
            'Inside the folder "cells", each comparison has a folder with its page, tables and '
            "figures."
        )
    return [*sentences, *_write_missing_notes(comparison)]


def _write_seed_notes(comparison: Comparison) -> Iterator[str]:
    """Explain the number of seeds and bold numbers."""
    counts = {len(group.scores) for group in comparison.groups}
    seeds = {scores.seed for group in comparison.groups for scores in group.scores}
    if max(counts) > 1:
        count = f"{max(counts)}" if len(counts) == 1 else f"up to {max(counts)}"
        yield f"Numbers are mean ± sample standard deviation over {count} seeds."
    elif len(seeds) == 1:
        yield f"All numbers come from a single seed ({seeds.pop()})."
    comparisons = [Comparison(comparable.results) for comparable in comparison.comparable_sets]
    if any(one.is_conclusive for one in comparisons):
        has_tests = any(one.baseline is not None for one in comparisons)
        tests = " The p-values say which differences are significant." if has_tests else ""
        yield f"Bold: best mean of the column.{tests}"


def _write_metric_notes(comparison: Comparison) -> Iterator[str]:
    """Explain the main metric, the results of the paper and simulated time."""
    results = comparison.results
    run_metrics = sorted({run_data.metric for run_data in results.runs})
    if run_metrics != [results.metric]:
        names = " or ".join(map(format_metric_name, run_metrics))
        ranking = f"Results are ranked by {comparison.metric}"
        yield f"{ranking}; the stored best model of a run is the one with the highest {names}."
    paper = results.paper
    if paper is not None and any(results.get_paper_accuracy(g) for g in comparison.groups):
        changed = f"; different here: {', '.join(paper.changed)}" if paper.changed else ""
        yield f"Paper: best top-1 accuracy that it reports in {paper.place}{changed}."
    ends = {
        g.label: [s.round_end_times[-1] for s in g.scores if s.round_end_times]
        for g in comparison.groups
    }
    totals = ", ".join(f"{label} {fmean(end):,.4g}" for label, end in ends.items() if end)
    if totals:
        yield (
            "Simulated seconds: a round ends when its slowest participant has finished (in FedAT: "
            "when the slowest client of one tier, a group of clients with similar speed, has "
            f"finished). All rounds together: {totals}."
        )


def _write_data_notes(comparison: Comparison) -> Iterator[str]:
    """Explain which rounds, clients and classes were tested."""
    runs, own_data = comparison.results.runs, comparison.results.own_data
    if not all(run_data.options.get("profiles", True) for run_data in runs):
        yield (
            "With --no-profiles, class profiles and similarities of clients were not kept, so "
            "there are no figures of them, and clusters are known from their labels only."
        )
    if any(record.accuracy is None for run_data in runs for record in run_data.history):
        yield "Not every round was tested; means are over the tested rounds."
    sampled = next((run_data for run_data in runs if run_data.test_sample_text), None)
    if sampled is not None:
        has_all = len(sampled.last_client_accuracy) == len(sampled.test_sizes)
        reason = "the others have too few samples" if has_all else "a random sample"
        clients = f"{sampled.test_sample_text} ({reason})"
        yield f"Accuracy on clients' {sampled.own_data} was measured for {clients}."
    if any(run_data.client_accuracy for run_data in runs):
        yield _write_own_data_note(runs, own_data)
    if rare := comparison.results.rare_classes_text:
        yield (
            "Rare classes: accuracy in the last round on the classes that only the smallest "
            f"clusters have ({rare})."
        )
    if any(group.is_reference for group in comparison.groups):
        yield "SingleSet trains on the pooled data of all clients: a reference that is not ranked."


def _write_own_data_note(runs: Sequence[RunData], own_data: str) -> str:
    if own_data == OWN_TEST_DATA:
        sizes = [size for run_data in runs for size in run_data.test_sizes]
        count = f"{min(sizes)} to {max(sizes)}"
        return f"Own test data: {count} held-out samples per client, not used for training."
    if own_data == OWN_TRAINING_DATA:
        return (
            "Own training data: the samples that a client trains on. With --client-test 0.2, a "
            "fifth of them is held out and used for the test instead."
        )
    return (
        "Clients are tested on held-out data in some runs and on training data in others; "
        "do not compare these numbers."
    )


def _write_missing_notes(comparison: Comparison) -> Iterator[str]:
    results = comparison.results
    num_finished = sum(run_data.is_finished for run_data in results.runs)
    if num_finished < results.planned:
        yield f"{results.planned - num_finished} of {results.planned} runs are not finished."
    if rejected := sum(run_data.summary["rejected"] for run_data in results.runs):
        verb = "update was" if rejected == 1 else "updates were"
        yield f"{rejected} client {verb} rejected; history.jsonl lists the reasons."
