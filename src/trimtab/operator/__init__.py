"""The right-sizing operator: policies in, right sizes out, unattended.

Its shell is here: `config` (what may be set), `live` (what is set now), `logs`, `metrics`, `health`, and `webhook`
(what is let in).
"""
