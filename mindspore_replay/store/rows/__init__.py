"""Rows in and out."""
