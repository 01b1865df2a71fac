"""``python -m experiments``: run plans, the queue of long plans, and rewrite tables in docs."""

import argparse
import sys
from pathlib import Path

from cadis.errors import CadisError
from experiments import drift, queue, signatures
from experiments.plans import PLANS, QUEUE
from experiments.running import RESULTS, run_plan
from experiments.tables import rewrite


def main() -> None:
    """Parse the command line and run the command."""
    arguments = _parser().parse_args()
    try:
        _run(arguments)
    except CadisError as error:
        sys.exit(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the missing runs of plans")
    names = [*PLANS, "signatures", "drift"]
    run.add_argument("plans", nargs="+", choices=names, metavar="PLAN", help=", ".join(names))
    run.add_argument("--data-dir", default="", help="folder of the datasets")
    run.add_argument("--seeds", type=int, help="number of seeds instead of that of the plan")
    run.add_argument("--at-once", type=int, default=2, help="runs at a time, one process each")
    text = "only runs of these methods or variants, separated by commas"
    run.add_argument("--methods", default="", help=text)
    text = f"work through the long plans in the background: {', '.join(QUEUE)}"
    long = commands.add_parser("queue", help=text, description=text)
    long.add_argument("--status", action="store_true", help="print finished and remaining runs")
    long.add_argument("--data-dir", default="", help="folder of the datasets")
    long.add_argument("--here", action="store_true", help="use this checkout")
    long.add_argument("--home", type=Path, default=queue.HOME, help=argparse.SUPPRESS)
    long.add_argument("--results", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    commands.add_parser("tables", help="rewrite the tables in docs")
    return parser


def _run(arguments: argparse.Namespace) -> None:
    if arguments.command == "tables":
        rewrite()
    elif arguments.command == "queue":
        _run_queue(arguments)
    else:
        for name in arguments.plans:
            if name == "signatures":
                signatures.run(arguments.data_dir)
            elif name == "drift":
                drift.run(at_once=arguments.at_once)
            else:
                methods = [method for method in arguments.methods.split(",") if method]
                run_plan(name, arguments.data_dir, arguments.seeds, arguments.at_once, methods)


def _run_queue(arguments: argparse.Namespace) -> None:
    if arguments.here and arguments.status:
        queue.print_status(arguments.home, arguments.results)
    elif arguments.here:
        queue.work(arguments.data_dir, arguments.home, arguments.results)
    elif arguments.status:
        queue.show_status()
    else:
        queue.start(arguments.data_dir)


if __name__ == "__main__":
    main()
