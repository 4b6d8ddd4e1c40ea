"""Planners search for the plan of least cost that meets the objectives."""
