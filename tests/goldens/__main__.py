"""Compute hashes and compare them: ``PYTHONPATH=tests python -m goldens [WORD...]``."""

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import torch

from goldens.cases import CASES
from goldens.hashing import Hashes
from goldens.record import HASHES, Goldens, describe_machine, find_differences
from goldens.running import Case

_ERROR = "error"


@click.command()
@click.argument("words", nargs=-1, metavar="[WORD...]")
@click.option("--save", is_flag=True, help="Write the hashes to the file instead of comparing.")
@click.option("--list", "only_list", is_flag=True, help="List the names of the cases.")
def main(words: tuple[str, ...], save: bool, only_list: bool) -> None:
    """Compare the hashes of results with those in tests/goldens/hashes.json.

    WORD is the name of a case or a part of it between slashes, such as fedavg, sampler or
    flower; a case with any of the words is run. Without words, all are. Exits with 1 if any
    differ.
    """
    torch.set_num_threads(1)
    cases = select(words)
    if only_list:
        print("\n".join(case.name for case in cases))
        return
    goldens, started = Goldens.read(), time.monotonic()
    results = compute(cases, {} if save else goldens.cases)
    print(f"{len(results)} cases in {time.monotonic() - started:.0f} s.")
    if save:
        _save(goldens, results, is_complete=not words)
        return
    if unknown := sorted(goldens.cases.keys() - {case.name for case in CASES}):
        print(f"Hashes without a case: {', '.join(unknown)}.")
    sys.exit(_report(goldens, results) or bool(unknown))


def select(words: Sequence[str]) -> list[Case]:
    """Return the cases that any of the words names; all without words."""
    for word in words:
        if not any(case.matches(word) for case in CASES):
            raise click.UsageError(f"There is no case '{word}'; --list lists them.")
    return [case for case in CASES if not words or any(map(case.matches, words))]


def compute(cases: Sequence[Case], expected: Mapping[str, Hashes]) -> dict[str, Hashes]:
    """Return the hashes of each case, and print one line each; an error is stored as a hash."""
    results: dict[str, Hashes] = {}
    for number, case in enumerate(cases, start=1):
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="cadis-goldens-") as folder:
            try:
                results[case.name] = case.compute(Path(folder))
            except Exception as error:
                results[case.name] = {_ERROR: f"{type(error).__name__}: {error}"}
        verdict = _verdict(results[case.name], expected.get(case.name), bool(expected))
        seconds = time.monotonic() - started
        print(f"[{number}/{len(cases)}] {case.name} {seconds:.1f} s {verdict}".rstrip(), flush=True)
    return results


def _verdict(results: Hashes, expected: Hashes | None, is_compared: bool) -> str:
    """Return the outcome of a case as text."""
    if _ERROR in results:
        return f"FAILED, {results[_ERROR]}"
    names = find_differences(expected, results) if is_compared else []
    return f"DIFFERS: {', '.join(names)}" if names else ""


def _save(goldens: Goldens, results: dict[str, Hashes], is_complete: bool) -> None:
    """Write the hashes; if only some cases were run, keep the hashes of the others."""
    if failed := [name for name, hashes in results.items() if _ERROR in hashes]:
        sys.exit(f"Nothing is saved, since {len(failed)} cases failed: {', '.join(failed)}.")
    machine = describe_machine()
    if not is_complete and goldens.machine_differences(machine):
        sys.exit("Nothing is saved: the file is of another machine; save all cases.")
    Goldens(machine, results if is_complete else {**goldens.cases, **results}).write()
    print(f"{HASHES} is written.")


def _report(goldens: Goldens, results: dict[str, Hashes]) -> bool:
    """Print a table of the differences, and return whether there are any."""
    rows = {
        name: names
        for name, hashes in results.items()
        if (names := find_differences(goldens.cases.get(name), hashes))
    }
    print(f"{len(results)} cases, {len(rows)} differ{':' if rows else '.'}")
    width = max(map(len, rows), default=0)
    for name, names in rows.items():
        print(f"  {name:{width}}  {', '.join(names)}")
    if others := goldens.machine_differences(describe_machine()):
        print("The hashes are of another machine, so differences may be due to rounding;")
        print("check out the code before your change, and run --save first.")
        print("\n".join(f"  {line}" for line in others))
    return bool(rows)


if __name__ == "__main__":
    main()
