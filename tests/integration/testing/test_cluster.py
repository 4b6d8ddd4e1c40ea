"""The contract of trimtab.testing, kept by a real API server: the same tests as on the fake."""

from testing.test_cluster import *  # noqa: F403 - the tests, with the fixtures of this folder
