"""All attacks by name."""

from torture import damages, disks, fuzzing, kills, power
from torture.outcomes import Attack

ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for attack in (kills.ATTACK, damages.ATTACK, fuzzing.ATTACK, disks.ATTACK, power.ATTACK)
}
