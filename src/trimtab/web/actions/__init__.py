"""What users may do from the dashboard."""
