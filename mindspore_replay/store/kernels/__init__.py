"""Arrays by name, and calls of the kernels on them."""
