"""Buffers: Cells that store rows on the device, and the parts that they consist of."""
