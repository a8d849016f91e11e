"""Who may go on: queues and limiters."""
