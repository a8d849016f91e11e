// Counts checks.
#ifndef MINDSPORE_REPLAY_TESTS_CHECK_H_
#define MINDSPORE_REPLAY_TESTS_CHECK_H_

#include <cstdio>

inline int passed = 0;
inline int failed = 0;

inline void Check(bool ok, const char *what, int line) {
  ok ? ++passed : ++failed;
  if (!ok) std::printf("line %d failed: %s\n", line, what);
}

// How many times as many random steps to make as find the wrong kernels that were tried, with a margin of two.
inline int times = 1;

#define CHECK(condition) Check(static_cast<bool>(condition), #condition, __LINE__)

#endif  // MINDSPORE_REPLAY_TESTS_CHECK_H_
