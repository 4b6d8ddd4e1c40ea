"""The status of NodeQoSPolicies."""
