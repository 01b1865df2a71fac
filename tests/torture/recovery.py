"""After a disaster a user resumes, or types the same command again: one of them must do."""

from dataclasses import dataclass
from pathlib import Path

from torture.experiments import Experiment, judge_end
from torture.outcomes import Finding
from torture.victim import Ending, Work, command, run_to_end


@dataclass(frozen=True)
class Recovery:
    """What a user does next.

    Attributes:
        experiment: what was run.
        run: its folder.
        reference: the folder of an undisturbed run.
        saved: the last round that must still be there.
        logs: a folder for what the commands say.
        resumes_first: whether to resume and begin anew only where there is no run; or else to
            type the same command, and resume what it refuses to touch.
        draws: whether figures are really drawn.
    """

    experiment: Experiment
    run: Path
    reference: Path
    saved: int
    logs: Path
    resumes_first: bool = True
    draws: bool = False

    def finding(self) -> Finding:
        """What comes of it: only the same end will do."""
        ending = self._resumed() if self.resumes_first else self._begun_again()
        found = judge_end(ending, self.run, self.reference)
        if found.verdict == "told":
            return Finding("dead end", found.why)
        if ending.code == 0 and ending.rounds and ending.rounds[0] <= self.saved:
            return Finding("lost", f"round {self.saved} was saved; it began at {ending.rounds[0]}")
        return found

    def _resumed(self) -> Ending:
        ending = self._do(self.experiment.resume(self.run), "resumed")
        if ending.refused and "no run" in ending.sentence.lower():
            return self._do(self.experiment.begin(self.run), "begun-again")
        return ending

    def _begun_again(self) -> Ending:
        ending = self._do(self.experiment.begin(self.run), "begun-again")
        return self._do(self.experiment.resume(self.run), "resumed") if ending.refused else ending

    def _do(self, arguments: list[str], name: str) -> Ending:
        work: Work = command(arguments, draws=self.draws)
        return run_to_end(work, self.logs / name)
