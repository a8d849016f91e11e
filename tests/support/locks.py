"""A lock that records its use."""


class RecordingLock:
    """Records what happens to it."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def acquire(self) -> None:
        self.log.append("acquired")

    def release(self) -> None:
        self.log.append("released")
