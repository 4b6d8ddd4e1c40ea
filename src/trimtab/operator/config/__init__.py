"""The operator's configuration: its model, its sources, and reloading it at run time."""
