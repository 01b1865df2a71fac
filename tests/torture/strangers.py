"""Files of a stranger that name code, and model files with hostile descriptions."""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

from hostile_descriptions import (
    encode,
    list_hostile_files,
    make_description,
    make_tensors,
    use_model,
)
from strangers import Attack as CodeAttack
from strangers import list_attacks, prepare_run, use_files, write_canaries, write_files
from torture.fuzzing import judge, limit_memory
from torture.harm import CONTENT_DAMAGES
from torture.outcomes import NOTE, Attack, Finding, Trial, Verdict

_CODE_ATTACKS = tuple(list_attacks())
_FILES = 40
"""Number of hostile model files of one trial."""


def prepare(base: Path) -> None:
    prepare_run(base)


def attempt(trial: Trial) -> tuple[str, Finding]:
    """Use files that name code in the first trials, and hostile model files in the others."""
    limit_memory()
    if trial.number < len(_CODE_ATTACKS):
        return _name_code(trial, _CODE_ATTACKS[trial.number])
    return _describe_wrongly(trial)


def _name_code(trial: Trial, attack: CodeAttack) -> tuple[str, Finding]:
    here = trial.folder / "here"
    here.mkdir()
    os.chdir(here)
    what = f"{attack.use} with {attack.place} = {attack.name!r}"
    (trial.folder / NOTE).write_text(what, encoding="utf-8")
    marker = write_canaries(here)
    write_files(attack, trial.base / "run")
    codes = list[int]()
    finding = judge(lambda: codes.append(use_files(attack)[0]))
    if marker.exists():
        return what, Finding("code", "the code ran")
    return what, Finding("reported") if codes and codes[0] else finding


def _describe_wrongly(trial: Trial) -> tuple[str, Finding]:
    """Use random hostile model files; stop at the first that causes a failure."""
    random, path, others = trial.random, trial.folder / "model.safetensors", Counter[Verdict]()
    files = random.sample([*list_hostile_files()], _FILES // 2)
    files += [_damage_model(random) for _ in range(_FILES // 2)]
    for what, content in files:
        path.write_bytes(content)
        (trial.folder / NOTE).write_text(what, encoding="utf-8")
        finding = judge(lambda: use_model(path, trial.folder, "torchscript"))
        if not finding.is_good:
            return what, finding
        others[finding.verdict] += 1
    others[finding.verdict] -= 1  # the finding counts itself
    return f"{_FILES} model files", replace(finding, others=+others)


def _damage_model(random: Random) -> tuple[str, bytes]:
    content = encode(make_description(), make_tensors())
    header = content[: 8 + int.from_bytes(content[:8], "little")]
    damage = random.choice(CONTENT_DAMAGES)
    return damage.__name__, damage(header, random) + content[len(header) :]


ATTACK = Attack(
    name="strangers",
    title="model files, runs and studies that name code, or have hostile descriptions",
    trials=300,
    quick=(0, len(_CODE_ATTACKS) - 1, len(_CODE_ATTACKS)),
    prepare=prepare,
    attempt=attempt,
)
