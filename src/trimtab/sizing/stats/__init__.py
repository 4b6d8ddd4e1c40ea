"""Statistics over many containers at once: histograms, windows, periods, scaling."""
