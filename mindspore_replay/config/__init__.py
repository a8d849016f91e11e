"""Buffers from configurations."""
