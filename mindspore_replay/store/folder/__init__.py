"""The arrays of a buffer as files of several processes."""
