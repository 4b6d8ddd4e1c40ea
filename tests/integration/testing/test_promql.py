"""The contract of a PromQL client, on a real Prometheus: the same tests as on the fake."""

from testing.test_promql import *  # noqa: F403 - the tests, with the fixtures of this folder
