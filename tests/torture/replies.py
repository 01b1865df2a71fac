"""One client whose replies lie: any value, in any part of the reply, with any method."""

from math import isinf
from pathlib import Path
from random import Random

import torch

from cadis.algorithm import BaseMethod
from cadis.algorithm.weight_limits import compute_share_limit
from cadis.errors import RunError
from lying_clients import (
    LIAR,
    Ending,
    Lie,
    fill,
    fill_tensors,
    list_methods,
    make_federation,
    make_liar,
    make_model,
    report,
    run,
    shift,
)
from torture.outcomes import Attack, Finding, Trial

_ROUNDS = 3
_MARGIN = 0.15
"""Largest loss of accuracy if the lie was rejected; the liar's data are missing then."""


def attempt(trial: Trial) -> tuple[str, Finding]:
    """Run a method with a lying client, and compare the result with an honest run."""
    random = trial.random
    methods = list_methods()
    name = random.choice(list(methods))
    what, lie = draw_lie(random, methods[name])
    clients, first = random.choice([LIAR + 1, 6, 10, 10]), random.choice([1, 1, 2, 3])
    dtype = random.choice([torch.float32, torch.float32, torch.float64])
    what = f"{name}, {what} from round {first}, {clients} clients, {dtype}"
    liar = make_liar(methods[name], lie, first)
    federation = make_federation(clients)
    try:
        honest = run(methods[name], trial.folder, _ROUNDS, federation, make_model(dtype))
        ending = run(liar, trial.folder, _ROUNDS, federation, make_model(dtype))
    except RunError as error:
        return what, Finding("dead end", str(error))
    return what, judge(ending, honest, methods[name], clients)


def judge(ending: Ending, honest: Ending, method: BaseMethod, clients: int) -> Finding:
    """Return a finding: the models are finite, and the lie has no weight that the method excludes.

    Args:
        ending: end of the run with the liar.
        honest: end of the run without a lie.
        method: the method.
        clients: number of clients.
    """
    if not ending.is_finite:
        return Finding("silent change", "the global model is not finite")
    limit = 1.0 if isinf(method.largest_share) else method.largest_share
    share = compute_share_limit(clients, limit) if limit > 1 else limit
    if ending.largest_share > share + 1e-9:
        return Finding("silent change", f"the liar has the weight {ending.largest_share:.3f}")
    if not ending.reasons:
        return Finding("accepted")
    if all(LIAR in result.record.participants for result in ending.results):
        return Finding("silent change", "the rejected liar took part in all rounds")
    if ending.accuracy < honest.accuracy - _MARGIN:
        return Finding(
            "silent change", f"accuracy {ending.accuracy:.2f} instead of {honest.accuracy:.2f}"
        )
    return Finding("reported")


def draw_lie(random: Random, method: BaseMethod) -> tuple[str, Lie]:
    """Draw a lie about a part of the reply."""
    value = _draw_value(random)
    lies = {
        f"all parameters {value:g}": fill("parameters", value),
        f"one parameter {value:g}": fill("parameters", value, everywhere=False),
        f"parameters moved by {value:g}": shift("parameters", value),
        f"all buffers {value:g}": fill("buffers", value),
        f"buffers moved by {value:g}": shift("buffers", value),
        "counters of 2^62": fill("counters", 2**62),
    }
    if method.needs_tensors:
        lies |= {f"tensors {value:g}": fill_tensors(value)} | {"tensors": fill_tensors(-1e25)}
    for name in method.needs_scalars:
        number = random.choice([value, 0, -1, 1000, 1e308, True, "1", float("nan"), 10**400])
        lies |= {f"{name} {str(number)[:12]}": report(name, number)}
        lies |= {f"{name} {value:g}": report(name, value)}
    name = random.choice(list(lies))
    return name, lies[name]


def _draw_value(random: Random) -> float:
    """Draw a number of any size; half of them are at the end of single precision."""
    size = random.choice([random.uniform(-3, 38), random.uniform(18, 38.5)])
    special = [float("nan"), float("inf"), 3.4e38]
    value = random.choice([10**size, 10**size, 10**size, random.choice(special)])
    return random.choice([-1, 1]) * value


def prepare(_base: Path) -> None:
    """Prepare nothing: runs are in memory."""


ATTACK = Attack(
    name="replies",
    title="one client sends absurd values in any part of its replies, with any method",
    trials=400,
    quick=(0, 1, 2, 3),
    prepare=prepare,
    attempt=attempt,
)
