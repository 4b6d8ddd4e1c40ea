"""Into the lives of containers at their creation and update: what their tier is entitled to is there from the start.

Three ways in, best first: `nri` (a plugin of the runtime itself), `cri` (a proxy between kubelet and runtime), and
the `reconciler` (what the other two missed is wished for like any other knob). All ask `adjustments` what to do. Each
is fail-open: an agent that is slow, wrong or dead costs a container its adjustment, never its start.
"""
