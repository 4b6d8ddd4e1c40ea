"""What of OptimizationPolicies is let into the cluster: the answers, the server that gives them, its certificate.

`rules` decide (pure), `review` speaks the API server's language, `server` listens, `certificate`, `shared` and `given`
are about the certificate, `registration` tells the API server of us, and `gate` joins them for a process.
"""
