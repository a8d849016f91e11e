"""Files of buffers, on the device or on arrays, without MindSpore."""
