"""What a user should know of the own data before anything is trained: who has how much."""

from collections.abc import Mapping

from cadis._io import Callbacks
from cadis.data.examples import Dataset

_NAMED = 10
_LARGE = 1000.0
_FEW = 30
"""Of fewer test samples, accuracy says little."""


def tell_sites(dataset: Dataset, callbacks: Callbacks) -> None:
    """Say how much every client trains and is tested on, and what is too little."""
    if len(dataset.test) < _FEW:
        step = f"{1 / len(dataset.test):.2g}"
        callbacks.say(
            f"The test set has {len(dataset.test)} samples: accuracy moves in steps of {step}."
        )
    if dataset.train.inputs.is_floating_point():
        _tell_large(dataset, callbacks)
    if not dataset.owners:
        return
    trained = {client: len(own) for client, own in dataset.owners.items()}
    tested = {client: len(own) for client, own in dataset.test_owners.items()}
    tested |= {client: len(own) for client, own in dataset.client_tests.items()}
    _tell_amounts(trained, tested, callbacks)
    if strangers := [client for client in tested if client not in trained]:
        callbacks.say(
            f"{_some(strangers)} only test samples, and so no part in training: give them some to "
            "train on, or take them as they are."
        )
    if tested:
        _tell_few({client: tested.get(client, 0) for client in trained}, callbacks)


def _tell_large(dataset: Dataset, callbacks: Callbacks) -> None:
    """What is far from 0 makes a model diverge at any usual learning rate."""
    lowest, highest = dataset.train.inputs.aminmax()  # without a copy of all
    largest = max(-float(lowest), float(highest))
    if _LARGE < largest < float("inf"):
        callbacks.say(
            f"Inputs are as large as {largest:,.0f}, at which training may diverge; scale them to "
            "around 1."
        )


def _tell_amounts(
    trained: Mapping[str, int], tested: Mapping[str, int], callbacks: Callbacks
) -> None:
    if len(trained) > _NAMED:
        sizes, tests = trained.values(), [tested.get(client, 0) for client in trained]
        apart = f", and {min(tests):,} to {max(tests):,} to test on" if tested else ""
        callbacks.say(
            f"{len(trained)} clients have {min(sizes):,} to {max(sizes):,} samples to train on"
            f"{apart}."
        )
        return
    apart = " + to test on" if tested else ""
    each = [
        f"{client} {number:,}{f' + {tested.get(client, 0):,}' if tested else ''}"
        for client, number in trained.items()
    ]
    callbacks.say(f"Samples to train on{apart}: {', '.join(each)}.")


def _tell_few(tested: Mapping[str, int], callbacks: Callbacks) -> None:
    if none := [client for client, number in tested.items() if not number]:
        callbacks.say(f"{_some(none)} no test samples, so that nothing is known of them.")
    few = {client: number for client, number in tested.items() if 0 < number < _FEW}
    if few:
        client = min(few, key=lambda name: few[name])
        callbacks.say(
            f"{len(few)} of {len(tested)} clients have fewer than {_FEW} test samples of their "
            f"own; {client} has {few[client]}, so that its accuracy moves in steps of "
            f"{1 / few[client]:.2g}."
        )


def _some(names: list[str]) -> str:
    listed = ", ".join(names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{listed}{more} {'has' if len(names) == 1 else 'have'}"
