"""The description of a buffer, without MindSpore: columns, sampling, expiry of rows, and contents of a sample."""
