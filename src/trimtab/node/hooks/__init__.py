"""Into the lives of containers at their creation and update: what their tier is entitled to is there from the start.

Three ways in, best first: `nri` (a plugin of the runtime itself), `cri` (a proxy between kubelet and runtime, a process of
its own that asks by `consultation`), and the strategies (what the other two missed is wished for like any other knob). All
ask `entitlement` what to do. Each is fail-open: an agent that is slow, wrong or dead costs a container its adjustment,
never its start.
"""
