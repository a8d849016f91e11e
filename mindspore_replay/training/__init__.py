"""Around a buffer while an agent learns: limits, samples drawn ahead, measurements, rows of vector environments."""
