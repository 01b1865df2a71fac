"""CADIS with Adam as the optimizer of the server, as in FedAdam. No new class is needed.

FedAdam: Reddi et al., ICLR 2021, https://arxiv.org/abs/2003.00295

The same on the command line:  cadis run --method cadis --server-optimizer adam --server-lr 0.03
"""

import cadis
from cadis.algorithm.server_optimizers import Adam
from cadis.experiment import make_experiment, resolve


def main(rounds: int = 20) -> cadis.RunResult:
    """Run CADIS with Adam on the server: handwritten digits, 20 clients in 5 clusters."""
    digits = make_experiment(resolve({}, {}))
    return cadis.run(
        digits.model,
        digits.federation.clients,
        digits.federation.test,
        rounds=rounds,
        per_round=10,
        method=cadis.CADIS(),
        server_optimizer=Adam(server_lr=0.03),
        lr=0.1,
    )


if __name__ == "__main__":
    print(f"accuracy {main().accuracy:.3f}")
