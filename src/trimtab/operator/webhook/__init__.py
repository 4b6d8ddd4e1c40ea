"""Admission webhooks for OptimizationPolicies and pods, their certificates and their registration."""
