"""A report on the backend that operators run on."""

from typing import NamedTuple

from ..store.faces.place import DEVICE, HOST
from . import native, statement_hook


class KernelStatus(NamedTuple):
    """The default backend and storage of buffers on the current device target.

    Attributes:
        backend (str): ``"native"`` or ``"composite"``, as ``backend="auto"`` chooses.
        library (str): Path of the kernel library for the current device target, empty if there is none.
        reason (str): Why native kernels cannot run on the current device target, empty if they can.
        insert_statement (bool): Whether the bare statement ``buffer.insert(rows)`` compiles. If not, write
            ``buffer.add(rows)`` in compiled code.
        cuda (str): Why native kernels cannot run on a GPU, whatever the current device target, empty if the CUDA
            kernel library was built and loads.
        storage (str): ``"device"`` or ``"host"``, where ``storage=None`` keeps the rows.

    Examples:
        >>> from mindspore_replay import kernel_status
        >>> status = kernel_status()
        >>> print(status.backend, status.insert_statement, status.storage)
        native True device
    """

    backend: str
    library: str
    reason: str
    insert_statement: bool
    cuda: str = ""
    storage: str = DEVICE

    def __str__(self) -> str:
        kernels = self.library or "none"
        statement = "compiles as written" if self.insert_statement else "is refused in a graph: write buffer.add(rows)"
        lines = [f"backend: {self.backend}", f"kernels: {kernels}", f"rows: storage={self.storage!r} by default"]
        lines.append(f"buffer.insert(rows): {statement}")
        return "\n".join(lines + ([f"reason: {self.reason}"] if self.reason else []))


def kernel_status() -> KernelStatus:
    """Report the default backend and storage on the current device target, and why.

    Returns:
        KernelStatus: The report. Prints as a few lines.

    Examples:
        >>> from mindspore_replay import kernel_status
        >>> kernel_status().insert_statement
        True
    """
    reason = native.why_not()
    storage = DEVICE if native.runs_on_device() else HOST
    backend = "composite" if reason and (storage == DEVICE or native.why_not("CPU")) else "native"
    inserts, cuda = statement_hook.installed(), native.why_not("GPU")
    return KernelStatus(backend, native.library_path(), reason, inserts, cuda, storage)
