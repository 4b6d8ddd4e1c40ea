"""Deterministic fault simulation of the whole operator.

`run_case` runs the production wiring on a simulated cluster while faults of a plan are injected at its ports, and checks
invariants at every write, at every step and at the end. A case is a world and a plan, both drawn from a seed; the same
case gives the same run, to the byte.

    python -m trimtab.lab.faults run 0 100          # seeds 0 to 99, on two cores
    python -m trimtab.lab.faults replay 42 --trace  # who did what when
    python -m trimtab.lab.faults shrink 42 --output tests/lab/faults/corpus/NAME.json

The same for the node agent is in `node_*`: `run 0 100 --subject node`.

To add a fault: add a `FaultKind` to `KINDS` of the module of its port (`api_faults`, `watch_faults`, `usage_faults`,
`store_faults`, `world_faults` for the cluster and other writers, `process_faults` for processes, configuration and
policies), ask `injector.hit(NAME, target)` where it takes effect, and call `injector.record`.

To add an invariant: a class in `size_invariants`, `change_invariants` or `run_invariants` with a name and a sentence;
call `self.check` for each evaluation, and add it to `INVARIANTS` of its module.

To add to worlds: draw it in `worlds`; everything that a world has is plain data, so that `shrink` can remove it.
"""
