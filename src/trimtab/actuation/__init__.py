"""From a recommendation to reality: in place, recreate or skip; with pace, canary, verification and the way back.

`step.next_deeds` decides, and is pure; `actuator.Actuator` looks, asks it, and carries its deeds out against the
port `cluster.Cluster`. The truth about a change under way is on the workload itself (`marks`), so that whoever
comes next, after a crash or a change of leader, goes on from what is there.
"""
