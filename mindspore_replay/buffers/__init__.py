"""Buffers: Cells that keep rows on the device, and the parts that they are made of."""
