"""``python -m experiments run PLAN ...`` runs plans; ``tables`` rewrites those in docs."""

import argparse

from experiments import signatures
from experiments.plans import PLANS
from experiments.running import run_plan
from experiments.tables import rewrite


def main() -> None:
    """Do what was asked for."""
    parser = argparse.ArgumentParser("python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run what is missing of plans")
    names = [*PLANS, "signatures"]
    run.add_argument("plans", nargs="+", choices=names, metavar="PLAN", help=", ".join(names))
    run.add_argument("--data-dir", default="", help="folder of the datasets")
    run.add_argument("--seeds", type=int, help="instead of the plan's own number")
    run.add_argument("--at-once", type=int, default=2, help="runs at a time, one process each")
    commands.add_parser("tables", help="rewrite the tables in docs")
    arguments = parser.parse_args()
    if arguments.command == "tables":
        rewrite()
        return
    for name in arguments.plans:
        if name == "signatures":
            signatures.run(arguments.data_dir)
            continue
        run_plan(name, arguments.data_dir, arguments.seeds, arguments.at_once)


if __name__ == "__main__":
    main()
