"""Hooks into container creation and update, so that tier defaults apply from the start.

There are three ways, best first: `nri` (a plugin of the runtime), `cri` (a proxy process between kubelet and
runtime that asks the agent by `agent_socket`), and the strategies, which request what the other two missed.
All use `tier_defaults`. Each fails open: an agent that is slow, wrong or dead costs a container its
adjustment, never its start.
"""
