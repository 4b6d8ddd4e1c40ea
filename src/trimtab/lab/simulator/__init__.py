"""The simulator: a cluster in arrays, in simulated time, that the production operator runs on unchanged."""
