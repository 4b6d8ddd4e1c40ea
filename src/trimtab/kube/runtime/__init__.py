"""The parts that controllers run on: work queue, leader election, Events."""
