"""Which policy applies to which workload, and what its status says."""
