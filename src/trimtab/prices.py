"""The default prices of resources, which are OpenCost's, in dollars."""

CPU_HOUR = 0.031611
"""The price of one core for one hour."""
GIB_HOUR = 0.004237
"""The price of one GiB of memory for one hour."""
MONTH_HOURS = 730.0
"""The hours of a month."""
MAX_PRICE = 1e6
"""The highest price of anything for one hour, so that every sum is finite."""
