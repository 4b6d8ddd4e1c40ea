"""View models of the dashboard's pages."""
