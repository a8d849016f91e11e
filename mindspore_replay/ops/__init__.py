"""The operators under the buffers, each with a native and a composite body."""
