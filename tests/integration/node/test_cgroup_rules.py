"""The kernel's rules for cgroups, on the kernel of this machine: the same tests as on the fake tree."""

from node.test_cgroup_rules import *  # noqa: F403 - the tests, with the fixtures of this folder
