// The names of all operators; test_operators.h checks that none of the table is missing.
#ifndef MINDSPORE_REPLAY_TESTS_OPERATORS_H_
#define MINDSPORE_REPLAY_TESTS_OPERATORS_H_

#define ALL_OPERATORS(of)                                                                                           \
  of(insert) of(update) of(read) of(sample) of(sample_groups) of(update_priorities) of(delete) of(advance) of(info) \
      of(end_episodes) of(reset) of(sums) of(summary) of(measure)

#endif  // MINDSPORE_REPLAY_TESTS_OPERATORS_H_
