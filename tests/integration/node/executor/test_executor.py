"""The executor on this machine's own cgroups, where they are of version 1: the same tests as on the fake tree."""

from node.executor.test_cgroup_writes import *  # noqa: F403 - the tests, with the fixtures of this folder
