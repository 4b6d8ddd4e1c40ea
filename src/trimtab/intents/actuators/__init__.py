"""Actuators that come with Trimtab, a file each: what they would do, and what is expected to come of it."""
