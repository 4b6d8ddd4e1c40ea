"""Talk to Kubernetes. Each module is one noun; import what you need from where it lives.

To reach a cluster: `auth` (who we are), `wire` (how a request travels), `client` (what can be asked), `errors`,
`pace` (how fast, and when again), `resources`, `features` and `rights` (what the cluster can and lets us do).

To keep a copy of it: `informer` (list, watch, resume), `watch` (bytes to events), `cache`, `intern`, and the records
that it holds: `pods`, `nodes`, `metadata`, over `records`.

To work on it: `queue` and `schedule`, `lease` and `election`, `events` and `ledger`.
"""
