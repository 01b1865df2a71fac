"""CADIS with clipped updates and Gaussian noise, as in DP-FedAvg. No new class is needed.

DP-FedAvg: McMahan et al., ICLR 2018, https://arxiv.org/abs/1710.06963

The same on the command line:  cadis run --method cadis --clip 1.0 --noise 0.1
"""

import cadis
from cadis.algorithm.transforms import Clip, Noise
from cadis.experiment import make_experiment, resolve


def main(rounds: int = 20) -> cadis.RunResult:
    """Run CADIS on handwritten digits; clip updates to the norm 1 and add noise."""
    digits = make_experiment(resolve({}, {}))
    return cadis.run(
        digits.model,
        digits.federation.clients,
        digits.federation.test,
        rounds=rounds,
        per_round=10,
        method=cadis.CADIS(),
        transforms=[Clip(clip=1.0), Noise(noise=0.1)],
        lr=0.1,
    )


if __name__ == "__main__":
    print(f"accuracy {main().accuracy:.3f}")
