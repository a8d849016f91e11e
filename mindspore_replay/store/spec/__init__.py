"""What a buffer is: columns, sampling, expiry of rows, and contents of a sample."""
