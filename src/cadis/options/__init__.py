"""What users give: names and values, checked in one sentence."""

from cadis.options.parts import checked_method, method_from, options_of, parameters_of
from cadis.options.validation import check_names, names_of, validated

__all__ = [
    "check_names",
    "checked_method",
    "method_from",
    "names_of",
    "options_of",
    "parameters_of",
    "validated",
]
