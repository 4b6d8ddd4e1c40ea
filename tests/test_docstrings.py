"""What is said below a model's fields is read from its source, and only when someone asks for it."""

from trimtab.docstrings import DocumentedModel, read_field_descriptions


class Meal(DocumentedModel):
    """Its own doc-string is none of a field's."""

    soup: str = ""
    """Comes
    first."""

    bread: int = 0

    def eaten(self) -> None:
        """Nor is a method's."""


class Dinner(Meal):
    bread: int = 1
    """With butter."""


def test_a_field_is_described_by_what_stands_below_it() -> None:
    assert read_field_descriptions(Meal) == {"soup": "Comes\nfirst."}


def test_what_is_inherited_keeps_its_description_and_what_is_said_anew_counts() -> None:
    assert read_field_descriptions(Dinner) == {"soup": "Comes\nfirst.", "bread": "With butter."}


def test_a_schema_tells_them() -> None:
    written = Dinner.model_json_schema()["properties"]
    assert {name: field["description"] for name, field in written.items()} == read_field_descriptions(Dinner)


def test_a_class_without_its_source_is_described_by_nobody() -> None:
    made = type("Snack", (Meal,), {"__module__": "builtins"})
    assert read_field_descriptions(made) == read_field_descriptions(Meal)
