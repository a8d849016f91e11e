"""Views: other samples of rows that are stored once."""
