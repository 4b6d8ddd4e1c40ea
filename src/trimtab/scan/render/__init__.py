"""A scan as a table, Markdown, HTML, JSON or a picture."""
