"""Names from outside cannot control a terminal, nor be computed by a spreadsheet."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cadis._io import escape_controls, format_csv, from_csv_cell

FORMULAS = [
    '=HYPERLINK("http://x","y")',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    " =1",
    "\uff1d1",
    "'=1",
    "a;=1",
    "a\t=1",
    "--1",
    "-1_0",
]


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_cell_begins_a_formula_and_our_reader_returns_the_name(formula: str) -> None:
    ((cell, other),) = read(format_csv([[formula, "b"]]))
    parts = [cell] if formula[0] != "a" else cell.replace("\t", ";").split(";")[1:]
    assert all(part.startswith("'") for part in parts)
    assert (from_csv_cell(cell), other) == (formula, "b")


def test_no_name_begins_a_new_line() -> None:
    assert read(format_csv([["a\r=1", "b"], ["c\n=2", "d"]])) == [[r"a\r=1", "b"], ["c\n=2", "d"]]


@pytest.mark.parametrize(
    "value", [-0.5, -3, None, "-0.5", "+7", "-1e-05", "0.25", "digits", "a-b", "it's", "x = y"]
)
def test_numbers_and_plain_names_are_not_changed(value: object) -> None:
    assert read(format_csv([[value, "b"]])) == [["" if value is None else str(value), "b"]]


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]) | st.sampled_from("\t;'=-")))
def test_every_name_survives_the_round_trip(name: str) -> None:
    ((cell,),) = read(format_csv([[name]])) or [[""]]
    assert from_csv_cell(cell) == name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("a\r\nb\x7f\x00", r"a\r\nb\x7f\x00"),
        ("exe\u202etxt\u2066", r"exe\u202etxt\u2066"),
        ("a\u2028b\u200f", r"a\u2028b\u200f"),
        ("\udc80", r"\udc80"),
    ],
)
def test_controls_are_shown_as_escapes(name: str, shown: str) -> None:
    assert escape_controls(name) == shown


@pytest.mark.parametrize("name", ["pille rot", "äöü 漢字 \U0001f600", "क्\u200dष", "a\u00a0b"])
def test_other_scripts_are_not_changed(name: str) -> None:
    assert escape_controls(name) == name
    assert escape_controls(f"{name}\n\t", keep="\n\t") == f"{name}\n\t"
