"""The sizing controller: ingest usage, recommend, apply."""
