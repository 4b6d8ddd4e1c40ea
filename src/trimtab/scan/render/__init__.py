"""Render a scan as a table, Markdown, HTML, JSON or an image."""
