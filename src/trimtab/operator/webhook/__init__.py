"""What of OptimizationPolicies is let into the cluster, and how pods are: the answers, the server that gives them, its
certificate.

`rules` decide (pure), `review` and `newborn` speak the API server's language, `server` listens, `certificate`, `shared` and `given`
are about the certificate, `registration` tells the API server of us, and `gate` joins them for a process.
"""
