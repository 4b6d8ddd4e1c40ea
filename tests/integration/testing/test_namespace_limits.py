"""ResourceQuotas and LimitRanges of a real API server: the same tests as on the simulated cluster."""

from lab.simulator.test_namespace_limits import *  # noqa: F403 - the tests, with the fixtures of this folder
