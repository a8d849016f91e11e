"""The numbers of arrays that C++ reads as structs, by name and in order.

`test_structs.py` compares them with the structs in csrc.
"""

#: Options of a sample: int64, those of `FLOATS` as the bits of a float64; the outputs follow.
PLAN = (
    *("draw", "replace", "ordered", "max_use", "by_buffer", "chain", "needs_next", "strategy", "beta_step", "ratio"),
    *("achieved", "tolerance"),
)
FLOATS = ("beta_step", "ratio", "tolerance")
#: The rule for rows with weights, float64.
ROW_RULE = "alpha", "epsilon", "keep", "late", "initial_priority"
#: The state of an epoch.
EPOCH = "key", "first", "size", "position", "begun"
#: The learner's clock.
CLOCK = "now", "fresh", "unordered"
#: Events since the buffer was made.
COUNTS = "drawn", "used_up", "stale", "deleted", "invalid"
#: The limits of a buffer; the places of those that wait follow.
LIMITS = (
    *("low", "high", "min_size", "error", "enabled", "inserted", "sampled", "counted", "counted_samples"),
    *(["in_progress"] * 4 + ["largest"] * 2 + ["usual"] * 2),
    *("kind", "awaited", "tickets"),
)
#: The journal, behind the lock; a number of it is `JOURNAL_AT` plus its index.
JOURNAL = "busy", "inserted", "oldest", "slot", "serial", "uses", "clock", "writer"
JOURNAL_AT = 8
