"""Properties of every workload generator, and of each one."""

import subprocess
import sys


def test_generators_draw_the_same_bits_in_another_process() -> None:
    program = "import hashlib; from trimtab.lab.workloads import generate as g; print([hashlib.sha256(g(n, count=3, seed=5, duration=86400.0).cpu.tobytes()).hexdigest() for n in ('borg', 'jvm', 'step')])"
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
