"""Adam on the server (FedAdam; Reddi et al., 2021) with the weights of CADIS: no new class.

The same by options:  cadis run --method cadis --server-optimizer adam --server-lr 0.03
"""

import cadis
from cadis.algorithm.server_optimizers import Adam
from cadis.experiment import build_experiment, resolve


def main(rounds: int = 20) -> cadis.RunResult:
    """CADIS on handwritten digits, 20 clients in 5 clusters, with Adam on the server."""
    digits = build_experiment(resolve({}, {}))
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
