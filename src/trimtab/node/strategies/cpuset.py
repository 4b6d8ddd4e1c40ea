"""Which CPUs to give when so many are to be given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import zip_longest

from trimtab.node.picture import Cpu


def by_turns(cpus: Iterable[Cpu]) -> list[int]:
    """All CPUs in the order in which they are given away.

    Both threads of a core come together, since whoever shares a core is disturbed by its other half; cores come from
    all NUMA nodes in turn, so that nobody's memory is far; and from the last core on, since the first ones serve
    interrupts. More CPUs are always the fewer ones and some more, so that nothing has to move.
    """
    nodes: dict[int, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for cpu in cpus:
        nodes[cpu.numa][cpu.socket, cpu.core].append(cpu.id)
    cores = [[sorted(node[key]) for key in sorted(node, reverse=True)] for _, node in sorted(nodes.items())]
    return [cpu for turn in zip_longest(*cores, fillvalue=list[int]()) for threads in turn for cpu in threads]
