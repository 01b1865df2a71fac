"""Comparison of several methods on a model and data that are Python objects."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cadis._io import Callbacks
from cadis.algorithm import BaseMethod, build_algorithm, find_part_classes, validate
from cadis.algorithm.methods import METHODS, get_method_label
from cadis.analysis import describe_federation
from cadis.errors import CadisError, RunError
from cadis.experiment.execution import FederationRun
from cadis.experiment.run_federation import (
    check_arguments,
    complete_options,
    make_federation,
    plan_run,
)
from cadis.experiment.variants import (
    CHOICES,
    NamedVariant,
    choose_baseline,
    find_method_classes,
    get_folder_name,
    get_variant,
    to_stored_options,
)
from cadis.server import OnRound
from cadis.store import PlannedRun, Study, Variant


@dataclass(frozen=True)
class InMemoryStudy:
    """Runs of several methods on the same model and data.

    Attributes:
        runs: one run per method, by the name of its variant. Its seed is replaced later.
        variants: the methods to compare.
    """

    runs: Mapping[str, FederationRun]
    variants: tuple[Variant, ...]

    @classmethod
    def plan(
        cls, methods: Mapping[str, BaseMethod | None], options: Mapping[str, Any]
    ) -> "InMemoryStudy":
        """Plan one run per method.

        Args:
            methods: method instances by name; None to create the method from its name.
            options: keyword arguments of :func:`cadis.run`.
        """
        if "resume" in options:
            raise CadisError("A comparison resumes by itself if out has its runs; omit resume.")
        options = complete_options(options)
        check_arguments(options)
        federation = make_federation(options)
        runs, variants = {}, []
        for name, instance in _expand_groups(methods).items():
            if instance is not None:
                label = _make_label(name, type(instance))
                folder_name, method, variant = name, instance, NamedVariant(label, name)
            else:
                (method_class,) = find_method_classes([name]).values()
                variant = get_variant(name, method_class)
                method = validate(method_class, variant.parameters)
                folder_name = get_folder_name(name, method_class)
            if folder_name in runs:
                raise CadisError(
                    f"Two methods are called '{folder_name}'; give each a different name."
                )
            run = plan_run({**options, **variant.parts, "method": method}, federation)
            runs[folder_name] = run
            variants.append(Variant(folder_name, variant.label, to_stored_options(run.options)))
        return cls(runs, tuple(variants))

    def make_study(self) -> Study:
        """Return the study, without seeds, targets and command, which are set later."""
        methods = {name: type(run.algorithm.method) for name, run in self.runs.items()}
        return Study(
            kind="compare",
            variants=self.variants,
            seeds=(),
            command="",
            baseline=choose_baseline(methods),
        )

    def check_finished(self, runs: Iterable[PlannedRun]) -> None:
        """Raise an error if a finished run in the folder has other clients or data."""
        for run in runs:
            if run.variant.name in self.runs and run.is_finished():
                engine = self.runs[run.variant.name].with_seed(run.seed).make_engine(run.folder)
                description = describe_federation(engine.federation, engine.num_classes)
                if run.folder.read_json("federation.json") != description:
                    raise CadisError(
                        f"The run in {run.folder.path} has other clients or data; use the same "
                        "data again, or choose another folder as out."
                    )

    def __call__(self, run: PlannedRun, on_round: OnRound, callbacks: Callbacks) -> None:
        """Start or resume one run."""
        planned = self.runs.get(run.variant.name) or self._from_options(run.variant)
        planned = planned.with_seed(run.seed)
        planned.execute(run.folder, run.folder.has_run(), on_round, callbacks)

    def _from_options(self, variant: Variant) -> FederationRun:
        """Plan the run of a method that is in the study folder but was not given this time."""
        try:
            algorithm = build_algorithm(find_part_classes(variant.options), variant.options)
        except CadisError as error:
            raise RunError(f"the method is not among those given: {error}") from None
        run = next(iter(self.runs.values()))
        return replace(run, algorithm=algorithm, options=variant.options)


def _expand_groups(methods: Mapping[str, BaseMethod | None]) -> dict[str, BaseMethod | None]:
    """Replace names of groups, such as "all", with the names of their methods."""
    expanded: dict[str, BaseMethod | None] = {}
    for name, method in methods.items():
        names = find_method_classes([name]) if method is None else [name]
        expanded |= {member: methods.get(member, method) for member in names}
    return expanded


def _make_label(name: str, method: type[Any]) -> str:
    """Return the label of a method; raise an error if a user's class has a built-in name."""
    if METHODS.get(name) is method:
        return get_method_label(name)
    if name in CHOICES or not name.replace("-", "").replace("_", "").isalnum():
        raise CadisError(
            f"The method {method.__name__} cannot have the name '{name}'; choose a name with "
            "letters, digits and hyphens that no built-in method has."
        )
    return str(vars(method).get("label", method.__name__))
