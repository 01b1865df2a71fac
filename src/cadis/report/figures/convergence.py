"""How fast the similarity matrix converges, with and without transitive learning."""

from pathlib import Path

import numpy as np

from cadis.analysis import Results
from cadis.report.style import Place, figure, looks, shown


def draw_convergence(results: Results, place: Place) -> Path | None:
    """Mean squared error against the matrix that all observations of a run make."""
    path, styles = place("convergence"), looks([group.name for group in results.groups])
    told = [(group, [c for s in group.runs if (c := s.convergence)]) for group in results.groups]
    if not any(found for _, found in told):
        return None
    with figure(path, 6.4, 3.6) as drawing:
        axes = drawing.subplots()
        for (group, found), look in zip(told, styles, strict=True):
            if found:
                rounds = min((each.rounds for each in found), key=len)
                for name, ls in (("transitive", "-"), ("standard", (0, (4, 1.5)))):
                    if not getattr(found[0], name):  # it estimates nothing
                        continue
                    values = np.mean([getattr(each, name)[: len(rounds)] for each in found], axis=0)
                    label = "with" if name == "transitive" else "without"
                    text = f"{shown(group.label)}, {label} transitive learning"
                    axes.plot(rounds, values, color=look.colour, ls=ls, label=text)
        axes.set(xlabel="round", ylabel="mean squared error", xlim=(1, None))
        axes.set_ylim(0, None)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        choice = next((s.choice for s in results.runs if s.choice), "")
        among = f"\namong pairs of {choice}" if choice else ""
        title = f"Distance of the similarity matrix to the one at the end{among}"
        axes.set_title(title, fontsize=10)
    return path.with_suffix(".png")
