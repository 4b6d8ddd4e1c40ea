"""Per-container state in arrays, and its serialized form."""
