"""Reverse patches of fixes of the past, and the search for the first seed that finds each: `python -m lab.faults.mutants`."""
