"""What a buffer is, without MindSpore: its columns, how it draws, when rows expire, and what a sample holds."""
