"""The compiled core of the default strategy."""
