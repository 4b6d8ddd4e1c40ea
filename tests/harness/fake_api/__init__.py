"""A Kubernetes API server in the test's own process; `server.FakeApiServer` is the way in.

It keeps objects as the real one does: resourceVersions and 409, watches and 410, pages, patches, subresources,
authentication and RBAC, and the controllers that make pods. tests/testing/test_api_server.py has the contract, which
tests/integration/testing holds the real server to. What it does not implement, it refuses with 501.
"""
