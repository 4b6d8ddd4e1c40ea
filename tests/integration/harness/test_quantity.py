from harness.peers.quantity import GoQuantity


def test_go_parses_quantities(go_quantity: GoQuantity) -> None:
    half, zero, wrong = go_quantity.ask(["quantity 1.5Gi", "quantity 0Ki", "quantity 1.5Z"])
    assert half == {
        "canonical": "1536Mi",
        "decimal": "1610612736.000000000",
        "milli": 1610612736000,
        "value": 1610612736,
    }
    assert zero["canonical"] == "0"
    assert wrong["error"].startswith("quantities must match")


def test_go_parses_durations(go_quantity: GoQuantity) -> None:
    assert go_quantity.ask(["duration 90s", "duration"]) == [
        {"canonical": "1m30s", "nanoseconds": 90_000_000_000},
        {"error": 'time: invalid duration ""'},
    ]
