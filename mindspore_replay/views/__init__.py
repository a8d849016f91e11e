"""Views: other forms of samples of rows that are stored once."""
