"""A study of methods on a model and data of the user's own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cadis._io import Callbacks
from cadis.algorithm import BaseMethod, algorithm_of, classes_in, validated
from cadis.algorithm.methods import METHODS, label_of
from cadis.analysis import describe_federation
from cadis.errors import CadisError, RunError
from cadis.experiment.execution import FederationRun
from cadis.experiment.run_federation import build_federation, plan_run, run_options
from cadis.experiment.variants import (
    CHOICES,
    NamedVariant,
    choose_baseline,
    classes_by_name,
    folder_name,
    named_variant,
    plain_options,
)
from cadis.server import OnRound
from cadis.store import PlannedRun, Study, Variant


@dataclass(frozen=True)
class OwnStudy:
    """Runs of several methods on the same model and data.

    Attributes:
        runs: a run of each method with any seed, by the name of its variant.
        variants: what is compared.
    """

    runs: Mapping[str, FederationRun]
    variants: tuple[Variant, ...]

    @classmethod
    def plan(
        cls, methods: Mapping[str, BaseMethod | None], options: Mapping[str, Any]
    ) -> "OwnStudy":
        """Plan a run of each method.

        Args:
            methods: by name; None for methods that are given by name only.
            options: those of :func:`cadis.run` that the user gives.
        """
        if "method" in options:
            raise CadisError("Give what is compared as methods, and no single method.")
        options = run_options(options)
        federation = build_federation(options)
        runs, variants = {}, []
        for name, given in _expand_groups(methods).items():
            if given is not None:
                key, method, named = name, given, NamedVariant(_label(name, type(given)), name)
            else:
                (method_class,) = classes_by_name([name]).values()
                named = named_variant(name, method_class)
                method = validated(method_class, named.parameters)
                key = folder_name(name, method_class)
            if key in runs:
                raise CadisError(f"Two methods are called '{key}'; give each a name of its own.")
            runs[key] = plan_run({**options, **named.parts, "method": method}, federation)
            variants.append(Variant(key, named.label, plain_options(runs[key].options)))
        return cls(runs, tuple(variants))

    def study(self) -> Study:
        """Return what is compared, as yet without seeds, targets and a command."""
        methods = {name: type(run.algorithm.method) for name, run in self.runs.items()}
        return Study("compare", self.variants, (), "", choose_baseline(methods))

    def check_finished(self, runs: Iterable[PlannedRun]) -> None:
        """Refuse finished runs of other data, which would be reused."""
        for run in runs:
            if run.variant.name in self.runs and run.finished():
                engine = self.runs[run.variant.name].with_seed(run.seed).engine(run.folder)
                described = describe_federation(engine.given, engine.num_classes)
                if run.folder.read_json("federation.json") != described:
                    raise CadisError(
                        f"The run in {run.folder.path} has other clients or data; put back what it "
                        "began with, or choose another folder as out."
                    )

    def __call__(self, run: PlannedRun, on_round: OnRound, callbacks: Callbacks) -> None:
        """Begin or resume one run."""
        planned = self.runs.get(run.variant.name) or self._from_options(run.variant)
        planned = planned.with_seed(run.seed)
        planned.execute(run.folder, run.folder.holds_run(), on_round, callbacks)

    def _from_options(self, variant: Variant) -> FederationRun:
        """Plan a run of a method that was compared before and is not given this time."""
        try:
            algorithm = algorithm_of(classes_in(variant.options), variant.options)
        except CadisError as error:
            raise RunError(f"it is not given this time: {error}") from None
        run = next(iter(self.runs.values()))
        return replace(run, algorithm=algorithm, options=variant.options)


def _expand_groups(methods: Mapping[str, BaseMethod | None]) -> dict[str, BaseMethod | None]:
    """Replace names that stand for several methods, such as "all"."""
    expanded: dict[str, BaseMethod | None] = {}
    for name, method in methods.items():
        names = classes_by_name([name]) if method is None else [name]
        expanded |= {each: methods.get(each, method) for each in names}
    return expanded


def _label(name: str, method: type[Any]) -> str:
    """Return what tables call an instance's class; a class of the user's own needs its own name."""
    if METHODS.get(name) is method:
        return label_of(name)
    if name in CHOICES or not name.replace("-", "").replace("_", "").isalnum():
        raise CadisError(
            f"{method.__name__} cannot be called '{name}'; give it a name of its own, of letters, "
            "digits and hyphens."
        )
    return str(vars(method).get("label", method.__name__))
