"""Docstrings of fields are read from the source, and only on demand."""

from typing import ClassVar

from trimtab.docstrings import DocumentedModel, read_field_descriptions


class Meal(DocumentedModel):
    """Its own doc-string is none of a field's."""

    soup: str = ""
    """Comes
    first."""

    bread: int = 0

    kinds: ClassVar[int] = 2
    """A class variable is no field."""

    def eaten(self) -> None:
        """Nor is a method's."""


class Dinner(Meal):
    bread: int = 1
    """With butter."""


def test_field_docstring_is_the_string_below_it() -> None:
    assert read_field_descriptions(Meal) == {"soup": "Comes\nfirst."}


def test_field_docstring_is_inherited_unless_overridden() -> None:
    assert read_field_descriptions(Dinner) == {"soup": "Comes\nfirst.", "bread": "With butter."}


def test_field_docstrings_appear_in_the_schema() -> None:
    written = Dinner.model_json_schema()["properties"]
    assert {name: field["description"] for name, field in written.items()} == read_field_descriptions(Dinner)


def test_field_docstrings_are_empty_without_source() -> None:
    made = type("Snack", (Meal,), {"__module__": "builtins"})
    assert read_field_descriptions(made) == read_field_descriptions(Meal)
