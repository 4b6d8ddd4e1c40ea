"""Actuators and planners in separate processes, in any language, over gRPC.

Plugins are not trusted: their messages are checked (`codec`), late answers are skipped (`registry`), and their
proposals must meet the same constraints as all others.
"""
