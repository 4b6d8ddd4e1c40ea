"""Actions of users on the dashboard."""
