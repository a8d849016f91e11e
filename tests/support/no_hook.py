"""A plugin of pytest that takes the parser's hook away: `pytest -p no_hook`. Bodies then must write `buffer.add(x)`."""

from typing import Any

from mindspore_replay import mindspore_api

_parser: Any = mindspore_api.find_parser()
_original = getattr(_parser, mindspore_api.EXPAND_STATEMENT)

from mindspore_replay.ops import statement_hook  # noqa: E402

setattr(_parser, mindspore_api.EXPAND_STATEMENT, _original)
assert not statement_hook.installed()
