"""Requests to the API server: transport, retries, list pages, discovery, RBAC rules, typed object access."""
