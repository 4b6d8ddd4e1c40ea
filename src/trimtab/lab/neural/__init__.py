"""Strategies with trained weights; `lab.training` makes the weights."""
