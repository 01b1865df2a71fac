"""What a study looks like in the terminal while it works: one display for all its runs."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, Task, TaskID, TimeRemainingColumn
from rich.text import Text

from cadis._io import Callbacks
from cadis.analysis import headline_of
from cadis.report.terminal import (
    bar_callbacks,
    bar_columns,
    measured_in_words,
    plain_callbacks,
    tell,
)
from cadis.server import OnRound, RoundRecord, RoundResult
from cadis.store import PlannedRun, StudyCallbacks

_MOST_ROWS = 12  # with more variants than that, only the one at work is shown
_SILENCE = 60.0  # seconds without a line where there is no terminal, at most about


@contextmanager
def study_progress(console: Console, runs: Sequence[PlannedRun]) -> Iterator[StudyCallbacks]:
    """A live display for all runs, with the time left; without a terminal, a line now and then."""
    if not console.is_terminal:
        yield _Lines(console, runs)
        return
    columns = bar_columns(console, _TimeLeft())
    # Drawn on demand, without a thread: worker processes are forked meanwhile.
    bars = Progress(*columns, console=console, auto_refresh=False, speed_estimate_period=3600)
    with bars:
        yield _Bars(bars, runs)


class _TimeLeft(TimeRemainingColumn):
    """The time left, for all runs together only."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.fields.get("timed") else Text("")


class _Bars:
    """A bar for everything, and one for each variant."""

    def __init__(self, bars: Progress, runs: Sequence[PlannedRun]) -> None:
        self.of_run: Callbacks = bar_callbacks(bars)
        self._bars, self._runs, self._ended = bars, len(runs), 0
        self._all = self._add("all runs", runs, f"0/{self._runs}", timed=True)
        names = list(dict.fromkeys(run.variant.name for run in runs))
        self._rows: dict[str, TaskID] = {}
        for name in names if len(names) <= _MOST_ROWS else []:
            own = [run for run in runs if run.variant.name == name]
            self._rows[name] = self._add(own[0].variant.label, own)
        bars.refresh()

    def _add(
        self, name: str, runs: Sequence[PlannedRun], amount: str = "", timed: bool = False
    ) -> TaskID:
        total, done = sum(run.rounds for run in runs), sum(len(run.done()) for run in runs)
        return self._bars.add_task(
            name, total=total, completed=done, amount=amount, state="", timed=timed
        )

    def begin(self, run: PlannedRun) -> OnRound:
        def on_round(result: RoundResult) -> None:
            amount = f"seed {run.seed}: {result.record.round}/{run.rounds}"
            self._bars.advance(self._all)
            state, row = _state(run, result.record), self._rows.get(run.variant.name)
            if row is None:
                state = f"{run.variant.label}, {amount}, {state}"
                self._bars.update(self._all, state=state)
            else:
                self._bars.update(row, advance=1, amount=amount)
                if state:  # not every round need be tested
                    self._bars.update(row, state=state)
            self._bars.refresh()

        return on_round

    def end(self, run: PlannedRun, reused: bool) -> None:
        self._ended += 1
        self._bars.update(self._all, amount=f"{self._ended}/{self._runs}")
        if reused and run.variant.name in self._rows:
            state = f"{_state(run, run.done()[-1])} (there already)"
            self._bars.update(self._rows[run.variant.name], amount="", state=state)
        self._bars.refresh()

    def fail(self, sentence: str) -> None:
        self._ended += 1
        tell(self._bars.console, sentence)


class _Lines:
    """A line when a run ends, and in long ones now and then."""

    def __init__(self, console: Console, runs: Sequence[PlannedRun]) -> None:
        self.of_run = plain_callbacks(console)
        self._console, self._runs, self._ended = console, len(runs), 0
        self._started = self._told = time.monotonic()
        self._done, self._todo = 0, sum(run.rounds - len(run.done()) for run in runs)

    def begin(self, run: PlannedRun) -> OnRound:
        def on_round(result: RoundResult) -> None:
            self._done += 1
            if time.monotonic() > self._told + _SILENCE:
                told = f"round {result.record.round}/{run.rounds}, {_state(run, result.record)}"
                self._tell(f"{_name(run)}: {told}{self._left()}")

        return on_round

    def end(self, run: PlannedRun, reused: bool) -> None:
        self._ended += 1
        there = " (there already)" if reused else self._left()
        state = _state(run, run.done()[-1])
        self._tell(f"run {self._ended}/{self._runs}: {_name(run)}: {state}{there}")

    def fail(self, sentence: str) -> None:
        self._ended += 1
        self._tell(f"run {self._ended}/{self._runs}: {sentence}")

    def _left(self) -> str:
        """The time left, if the other rounds take as long as those so far."""
        rest = self._todo - self._done
        if not self._done or rest <= 0:
            return ""
        minutes = (time.monotonic() - self._started) / self._done * rest / 60
        return f", about {minutes:.0f} min left" if minutes >= 1 else ", less than a minute left"

    def _tell(self, sentence: str) -> None:
        self._told = time.monotonic()
        tell(self._console, sentence)


def _name(run: PlannedRun) -> str:
    return f"{run.variant.label}, seed {run.seed}"


def _state(run: PlannedRun, record: RoundRecord) -> str:
    return measured_in_words(record, headline_of(run.variant.options))
