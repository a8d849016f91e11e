from .buffers.replay import ReplayBuffer
from .ops import statement_hook
statement_hook.install()
