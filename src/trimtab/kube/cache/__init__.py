"""Local copies of cluster objects, kept current by list and watch."""
