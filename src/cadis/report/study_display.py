"""Show the progress of all runs of a study in the terminal."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, Task, TaskID, TimeRemainingColumn
from rich.text import Text

from cadis._io import Callbacks
from cadis.analysis import get_main_metric
from cadis.report.terminal import (
    format_metric,
    make_bar_callbacks,
    make_bar_columns,
    make_line_callbacks,
    print_line,
)
from cadis.server import OnRound, RoundRecord, RoundResult
from cadis.store import PlannedRun, StudyCallbacks

_MAX_ROWS = 12  # with more variants, only the active one is shown
_LINE_SECONDS = 60.0  # time between lines if the output is not a terminal


@contextmanager
def show_study_progress(console: Console, runs: Sequence[PlannedRun]) -> Iterator[StudyCallbacks]:
    """Show live bars for all runs with the time left; print lines if there is no terminal."""
    if not console.is_terminal:
        yield _Lines(console, runs)
        return
    columns = make_bar_columns(console, _TimeLeft())
    # Refreshed explicitly and not by a thread, since worker processes are forked meanwhile.
    bars = Progress(*columns, console=console, auto_refresh=False, speed_estimate_period=3600)
    with bars:
        yield _Bars(bars, runs)


class _TimeLeft(TimeRemainingColumn):
    """Time left, shown in the row of all runs only."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.fields.get("timed") else Text("")


class _Bars:
    """A bar for all runs, and one for each variant."""

    def __init__(self, bars: Progress, runs: Sequence[PlannedRun]) -> None:
        self.run_callbacks: Callbacks = make_bar_callbacks(bars)
        self._bars, self._runs, self._ended = bars, len(runs), 0
        self._all = self._add("all runs", runs, f"0/{self._runs}", timed=True)
        names = list(dict.fromkeys(run.variant.name for run in runs))
        self._rows: dict[str, TaskID] = {}
        for name in names if len(names) <= _MAX_ROWS else []:
            selected = [run for run in runs if run.variant.name == name]
            self._rows[name] = self._add(selected[0].variant.label, selected)
        bars.refresh()

    def _add(
        self, name: str, runs: Sequence[PlannedRun], amount: str = "", timed: bool = False
    ) -> TaskID:
        total, done = sum(run.rounds for run in runs), sum(len(run.read_history()) for run in runs)
        return self._bars.add_task(
            name, total=total, completed=done, amount=amount, state="", timed=timed
        )

    def begin(self, run: PlannedRun) -> OnRound:
        def on_round(result: RoundResult) -> None:
            amount = f"seed {run.seed}: {result.record.round}/{run.rounds}"
            self._bars.advance(self._all)
            state, row = _format_state(run, result.record), self._rows.get(run.variant.name)
            if row is None:
                state = f"{run.variant.label}, {amount}, {state}"
                self._bars.update(self._all, state=state)
            else:
                self._bars.update(row, advance=1, amount=amount)
                if state:  # empty if the round was not tested
                    self._bars.update(row, state=state)
            self._bars.refresh()

        return on_round

    def end(self, run: PlannedRun, reused: bool) -> None:
        self._ended += 1
        self._bars.update(self._all, amount=f"{self._ended}/{self._runs}")
        if reused and run.variant.name in self._rows:
            state = f"{_format_state(run, run.read_history()[-1])} (finished before)"
            self._bars.update(self._rows[run.variant.name], amount="", state=state)
        self._bars.refresh()

    def fail(self, sentence: str) -> None:
        self._ended += 1
        print_line(self._bars.console, sentence)


class _Lines:
    """A line when a run ends, and about every minute in long runs."""

    def __init__(self, console: Console, runs: Sequence[PlannedRun]) -> None:
        self.run_callbacks = make_line_callbacks(console)
        self._console, self._runs, self._ended = console, len(runs), 0
        self._started = self._printed = time.monotonic()
        self._done, self._todo = 0, sum(run.rounds - len(run.read_history()) for run in runs)

    def begin(self, run: PlannedRun) -> OnRound:
        def on_round(result: RoundResult) -> None:
            self._done += 1
            if time.monotonic() > self._printed + _LINE_SECONDS:
                progress = f"round {result.record.round}/{run.rounds}"
                state = f"{progress}, {_format_state(run, result.record)}"
                self._print(f"{_format_name(run)}: {state}{self._format_time_left()}")

        return on_round

    def end(self, run: PlannedRun, reused: bool) -> None:
        self._ended += 1
        suffix = " (finished before)" if reused else self._format_time_left()
        state = _format_state(run, run.read_history()[-1])
        self._print(f"run {self._ended}/{self._runs}: {_format_name(run)}: {state}{suffix}")

    def fail(self, sentence: str) -> None:
        self._ended += 1
        self._print(f"run {self._ended}/{self._runs}: {sentence}")

    def _format_time_left(self) -> str:
        """Extrapolate the time left from the rounds so far."""
        rest = self._todo - self._done
        if not self._done or rest <= 0:
            return ""
        minutes = (time.monotonic() - self._started) / self._done * rest / 60
        return f", about {minutes:.0f} min left" if minutes >= 1 else ", less than a minute left"

    def _print(self, sentence: str) -> None:
        self._printed = time.monotonic()
        print_line(self._console, sentence)


def _format_name(run: PlannedRun) -> str:
    return f"{run.variant.label}, seed {run.seed}"


def _format_state(run: PlannedRun, record: RoundRecord) -> str:
    return format_metric(record, get_main_metric(run.variant.options))
