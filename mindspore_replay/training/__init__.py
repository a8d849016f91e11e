"""Tools around a buffer during training: rate limits, prefetching, monitoring, rows of vector environments."""
