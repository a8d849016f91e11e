"""What a column, a row, a name and an error are."""
