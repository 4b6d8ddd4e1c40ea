"""Actuators and planners in processes of their own, in any language, over gRPC.

A plugin is asked and told, and never trusted: what it says is checked (`translate`), what it does not say in time is
done without (`registry`), and what it proposes passes the same limits as everything else.
"""
