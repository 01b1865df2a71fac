"""All attacks by name."""

import platform

from torture import damages, disks, fuzzing, kills, power
from torture.outcomes import Attack

ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for attack in (kills.ATTACK, damages.ATTACK, fuzzing.ATTACK, disks.ATTACK, power.ATTACK)
}


def obstacle(attack: Attack) -> str | None:
    """Why an attack cannot be made here, None if it can."""
    if platform.system() != "Linux":
        return "only Linux tells enough of processes and file systems"
    return attack.obstacle()
