"""Checkpoints: buffers and whole training runs saved to files and loaded from them."""
