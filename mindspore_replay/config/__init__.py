"""Makes buffers from configurations."""
