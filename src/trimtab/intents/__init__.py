"""Intents: from what is wanted of a workload to the cheapest deeds that bring it.

The core is pure: what is known goes in, a plan comes out. Measuring, performing and remembering are at the edges.
"""
