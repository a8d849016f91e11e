// Tests of a buffer in shared memory: its lock, its journal, and the repair of interrupted operations.
#ifndef MINDSPORE_REPLAY_TESTS_TEST_SHARED_H_
#define MINDSPORE_REPLAY_TESTS_TEST_SHARED_H_

#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "call.h"
#include "check.h"
#include "log.h"
#include "shared.h"

extern "C" {
KernelFunction replay_update;
int replay_share(void *journal, int64_t writer, int alone, int beyond_memory, replay::Limits *limits, int nparam,
                 void **params, int *ndims, int64_t **shapes, const char **dtypes);
int replay_limit(const void *head, replay::Limits *limits, int nparam, void **params, int *ndims, int64_t **shapes,
                 const char **dtypes);
int replay_mode(const void *head, int turn, int mode);
int replay_may_go(const void *head, int turn, int64_t rows, int64_t available);
int replay_begin_block(const void *head, int turn, int64_t rows, int64_t available, int holds, replay::Counting *block);
void replay_end_block(const void *head, int64_t done, int64_t rows, replay::Counting *block);
void replay_count(const void *head, int turn, int64_t rows);
void replay_wake_all(const void *head);
void replay_sleep(int64_t nanoseconds);
int replay_hold(const void *head);
int replay_let_go(const void *head);
void replay_replace(const void *head);
void replay_unshare(const void *head);
void replay_checksums(const replay::RowPart *parts, int64_t n_parts, const int64_t *slots, int64_t n, uint32_t *sums,
                      int by_slot);
int64_t replay_take_changes(const replay::FlushedMemory *memory, char *image, int64_t unknown,
                            const replay::Piece *arrays, int64_t n_arrays, const int64_t *slots, int64_t n,
                            const replay::Piece *more, int64_t n_more, char *entry, int64_t room);
int replay_pieces(const replay::FlushedMemory *memory, const char *pieces, int64_t bytes, int copy);
}

namespace {

// A weighted ring of four rows, 5 to 8, with priorities 1 to 4 as weights, and an undo row.
Arguments SharedRing() {
  return {{"columns", {Make<float>("float32", {4, 2}, {5, 5, 6, 6, 7, 7, 8, 8})}},
          {"head", Int32(0)},
          {"count", Int32(4)},
          {"serials", Int64({8, 0})},
          {"updates", Int64({0, 0})},
          {"weights", Doubles(FreshTree({1, 2, 3, 4}))},
          {"priorities", Floats({1, 2, 3, 4})},
          {"max_priority", Floats({4})},
          {"use_counts", Zeros("int32", {4})},
          {"insertion_clocks", Int64({0, 0, 0, 0})},
          {"clock", Int64({0, 4, 0})},
          {"counts", Int64({0, 0, 0, 0, 0})},
          {"row_rule", Doubles({1, 0, 0, 0, 1})},
          {"handles", Int64({0})},
          {"rows", {Zeros("float32", {2})}},
          {"written", Int64({0, -1})},
          {"invalid", Int32(0)}};
}

void TestInsertionsInLine(void *head, replay::ProcessLock *lock, replay::Journal *journal) {
  // Others died while they asked insertions to let them go first, and while they stood in line: an insertion goes on.
  journal->asking = 7;
  std::thread([&] { replay::RobustLock(journal->line).Lock(); }).join();
  CHECK(replay_hold(head) == replay::kOk && journal->asking == 7);  // nobody was before it
  replay_let_go(head);
  lock->Enter(true);
  CHECK(journal->asking == 0 && journal->busy == 1);
  CHECK(replay_hold(head) == replay::kOk);
  replay_let_go(head);

  // An insertion waits for whoever asks first, also if the lock is free before.
  std::vector<int> order;
  std::thread first([&] {
    replay_hold(head);
    order.push_back(1);
    replay_let_go(head);
  });
  while (__atomic_load_n(&journal->asking, __ATOMIC_SEQ_CST) == 0) std::this_thread::yield();
  std::thread second([&] {
    lock->Enter(true);
    order.push_back(2);
    replay_let_go(head);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  replay_let_go(head);
  first.join(), second.join();
  CHECK(order == std::vector<int>({1, 2}));
}

void TestShared() {
  Arguments buffer = SharedRing();
  Arrays arrays(buffer.For(SignatureOf("update")));
  replay::Journal journal = {};
  journal.slot = -1;
  replay::Limits limits = {};
  const auto share = [&](int alone) {
    return replay_share(&journal, 7, alone, 1, &limits, static_cast<int>(arrays.params.size()), arrays.params.data(),
                        arrays.ndims.data(), arrays.shapes.data(), arrays.dtypes.data());
  };
  void *head = buffer["head"].bytes.data();
  CHECK(share(1) == replay::kOk);
  CHECK(replay_hold(head) == replay::kOk && journal.busy == 1);
  CHECK(replay_hold(head) == replay::kOk);  // again by the same thread
  replay_let_go(head);
  CHECK(journal.busy == 1);
  replay_let_go(head);
  CHECK(journal.busy == 0 && journal.inserted == 8 && journal.oldest == 4);

  // Threads update one column of all rows to one value each; a torn row would have two.
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      const float value = static_cast<float>(10 + thread);
      Arguments own = SharedRing();
      own["handles"] = Int64({4, 5, 6, 7});
      own["rows"] = Make<float>("float32", {4, 2}, std::vector<float>(8, value));
      Arrays update(own.For(SignatureOf("update")));
      for (size_t i = 0; i < 13; ++i) update.params[i] = arrays.params[i];  // the state of the shared buffer
      for (int i = 0; i < 100; ++i) Check(update.Call(replay_update) == replay::kOk, "an update", __LINE__);
    });
  }
  for (std::thread &thread : threads) thread.join();
  const float *rows = buffer["columns"].as<float>();
  for (int i = 1; i < 8; ++i) CHECK(rows[i] == rows[0] && rows[0] >= 10);
  CHECK(buffer["updates"].bytes == Int64({400, 400}).bytes);
  CHECK(journal.slot == -1);
  replay_unshare(head);

  // A process died while it overwrote the oldest row, and had saved a row that it was about to update.
  journal.busy = 1;
  journal.oldest = 5;
  journal.slot = 2;
  journal.priority = 3;
  journal.uses = ~0;
  buffer["rows"].as<float>()[0] = buffer["rows"].as<float>()[1] = 77;
  buffer["columns"].as<float>()[4] = -1;  // half written
  buffer["weights"].as<double>()[1] = 99;
  CHECK(share(1) == replay::kOk);
  CHECK(buffer["columns"].as<float>()[4] == 77 && buffer["columns"].as<float>()[5] == 77 && journal.slot == -1);
  CHECK(*buffer["head"].as<int32_t>() == 1 && *buffer["count"].as<int32_t>() == 3);
  CHECK(buffer["weights"].bytes == Doubles(FreshTree({0, 2, 0, 4})).bytes);
  CHECK(buffer["clock"].as<int64_t>()[1] == 5 && buffer["use_counts"].as<int32_t>()[2] == ~0);
  replay_unshare(head);

  CHECK(share(0) == replay::kOk);
  // Kernels in a library have locks of their own.
  if (replay::ProcessLock *lock = replay::Locks::Of(head).Find(head)) TestInsertionsInLine(head, lock, &journal);
  replay_unshare(head);

  // A process died while it replaced all rows.
  CHECK(share(0) == replay::kOk);
  CHECK(replay_hold(head) == replay::kOk);
  replay_replace(head);
  replay_unshare(head);
  CHECK(journal.busy == 1 && share(1) == replay::kOk);
  CHECK(*buffer["count"].as<int32_t>() == 0 && buffer["serials"].as<int64_t>()[1] == 8);
  CHECK(buffer["weights"].bytes == Doubles(FreshTree({0, 0, 0, 0})).bytes);
  replay_unshare(head);

  arrays.params.pop_back();
  CHECK(share(1) == replay::kBadArguments);
}

// Limits by a rule: two samples for each row beyond the first three, at most four ahead on either side.
void TestRule() {
  replay::Limits limits = {};
  limits.low = limits.high = 2, limits.min_size = 3, limits.error = 4, limits.enabled = 1;
  limits.kind = replay::Limits::kRate;
  CHECK(replay_limit(&limits, &limits, 0, nullptr, nullptr, nullptr, nullptr) == replay::kOk);
  const auto may = [&](int turn, int64_t rows) { return replay_may_go(&limits, turn, rows, 0) == 1; };
  CHECK(!may(replay::kSamples, 1) && may(replay::kInserts, 100));
  replay_count(&limits, replay::kInserts, 5);
  CHECK(limits.inserted == 5 && limits.counted == 2 && !may(replay::kInserts, 1));
  CHECK(may(replay::kSamples, 8) && !may(replay::kSamples, 9));

  // A block counts from its beginning for its own side, and from its end for the other.
  replay::Counting block = {}, other = {};
  CHECK(replay_begin_block(&limits, replay::kSamples, 8, 0, 0, &block) == replay::kOk && !may(replay::kSamples, 1));
  CHECK(replay_mode(&limits, replay::kSamples, -1) == replay::kInside && !may(replay::kInserts, 1));
  CHECK(replay_begin_block(&limits, replay::kInserts, 1, 0, 0, &other) == replay::kNotYet && limits.awaited == 1);
  replay_end_block(&limits, 4, 8, &block);
  replay_end_block(&limits, 4, 8, &block);
  CHECK(limits.sampled == 4 && limits.counted_samples == 4 && limits.in_progress[1] == 0 && limits.awaited == 0);
  CHECK(may(replay::kInserts, 2) && !may(replay::kInserts, 3));
  CHECK(replay_mode(&limits, replay::kSamples, replay::kAsks) == replay::kInside);
  CHECK(replay_mode(&limits, replay::kSamples, -1) == replay::kAsks);
  limits.enabled = 0;
  CHECK(may(replay::kSamples, 1000) && may(replay::kInserts, 1000));
  replay_unshare(&limits);
}

// Those that wait for rows of a queue are woken once they are there, the first ones first, and nobody else.
void TestWaiters() {
  replay::Limits limits = {};
  limits.kind = replay::Limits::kQueue;
  const auto wake = [&](int64_t rows) { limits.Wake([=](int turn) { return turn == replay::kSamples ? rows : 0; }); };
  const auto await = [&](int turn, int64_t rows) {
    limits.Await(turn, rows);
    for (replay::Waiter &one : limits.waiters) one.until = INT64_MAX;  // else dead, if the machine is busy
  };
  const auto wait = [&](int64_t rows) { std::thread(await, replay::kSamples, rows).join(); };
  wait(4), wait(2), wait(2), await(replay::kInserts, 1);
  const auto waiting = [&] {
    std::vector<int64_t> rows;
    for (const replay::Waiter &one : limits.waiters)
      if (one.rows > 0) rows.push_back(one.rows);
    return rows;
  };
  wake(1);
  CHECK(limits.awaited == 4 && waiting() == std::vector<int64_t>({4, 2, 2, 1}));
  wake(3);  // not the first, which waits for more
  CHECK(limits.awaited == 3 && waiting() == std::vector<int64_t>({4, 2, 1}));
  limits.in_progress[1] = 3;
  wake(6);
  CHECK(waiting() == std::vector<int64_t>({4, 1}));
  limits.waiters[0].until = 0;  // it is dead
  wake(0);
  CHECK(limits.awaited == 1 && waiting() == std::vector<int64_t>({1}));

  // The thread sleeps until it is woken, or has been.
  std::thread waker([&] { limits.WakeAll(); });
  replay_sleep(int64_t{60} * 1000000000);
  waker.join();
  limits.Await(replay::kInserts, 1);
  limits.WakeAll();
  replay_sleep(int64_t{60} * 1000000000);
  CHECK(waiting().empty());

  limits.in_progress[1] = 0;
  // Not more than there are places for: the others look again by themselves.
  for (int i = 0; i < replay::Limits::kPlaces + 1; ++i) wait(9);
  CHECK(waiting() == std::vector<int64_t>(replay::Limits::kPlaces, 9));
  wake(9);
  CHECK(waiting() == std::vector<int64_t>(replay::Limits::kPlaces - 1, 9));
}

// Rows of 41 bytes, of which the one in slot 1 differs in one bit, and the one in slot 2 in none; and items.
void TestRowChecksums() {
  char altered[3 * 41] = {};
  altered[41 + 40] = 1;
  const replay::Reference references[] = {{0, 2}, {2, 1}, {3, 2}};
  char items[] = {1, 2, 3, 1, 2};
  const replay::RowPart column = {altered, 41, 0, nullptr}, arena = {items, 1, 5, references};
  const int64_t slots[] = {2, 1, 0};
  uint32_t sums[3] = {}, by_slot[3] = {}, of_items[3] = {}, shorter[3] = {};
  replay_checksums(&column, 1, slots, 3, sums, 0);
  CHECK(sums[0] == sums[2] && sums[0] != sums[1] && sums[0] != 0);
  replay_checksums(&column, 1, slots, 2, by_slot, 1);
  CHECK(by_slot[0] == 0 && by_slot[1] == sums[1] && by_slot[2] == sums[0]);
  replay_checksums(&arena, 1, slots, 3, of_items, 0);
  CHECK(of_items[0] == of_items[2] && of_items[0] != of_items[1]);
  const replay::RowPart short_arena = {items, 1, 4, references};  // the last row cannot be in it
  replay_checksums(&short_arena, 1, slots, 3, shorter, 0);
  CHECK(shorter[0] == 0 && shorter[1] == of_items[1]);
}

// A state of three lines, of which the last is of an array by slot, and a column of 5 bytes a row.
void TestLog() {
  constexpr int64_t kState = 192, kSlots = 8;
  std::vector<char> state(kState), image(kState), columns(5 * kSlots, 'c'), entry(1000, 'e');
  const replay::FlushedMemory memory = {state.data(), kState, columns.data(), 5 * kSlots};
  const replay::Piece by_slot[] = {{128, 8}, {kState, 5}}, none[] = {{kState + 39, 1}};
  state[70] = 1, state[128 + 8] = 2, columns[10] = 'd';
  const int64_t slots[] = {1, 2};
  const auto take = [&](int64_t room) {
    return replay_take_changes(&memory, image.data(), 128, by_slot, 2, slots, 2, none, 1, entry.data(), room);
  };
  // A record, then a line, the line of the slots, two rows and one byte, each behind its place.
  const int64_t size = 56 + (16 + 64) + (16 + 64) + (16 + 16) + (16 + 8);
  CHECK(take(1000) == size && image == state);
  const replay::FlushRecord *record = reinterpret_cast<const replay::FlushRecord *>(entry.data());
  CHECK(record->size == size - 56);
  CHECK(take(1000) == 56 + (16 + 16) + (16 + 8));  // nothing has changed but the rows, which it was told
  state[70] = 3;
  CHECK(take(55) == 0 && image == state);
  state[70] = 4;
  CHECK(take(56 + 80 + 55) == 0 && take(1000) > 0 && image == state);

  state[70] = 5;
  const int64_t bytes = take(1000) - 56;
  const char *pieces = entry.data() + 56;
  std::vector<char> old_state(kState), old_columns(5 * kSlots);
  const replay::FlushedMemory old = {old_state.data(), kState, old_columns.data(), 5 * kSlots};
  CHECK(replay_pieces(&old, pieces, bytes, 0) == 1 && old_state == std::vector<char>(kState));
  CHECK(replay_pieces(&old, pieces, bytes, 1) == 1 && old_state[70] == 5);
  CHECK(old_columns[4] == 0 && old_columns[5] == 'c' && old_columns[10] == 'd' && old_columns[39] == 'c');
  // Pieces that do not lie in the memory, or are cut off.
  for (const int64_t place : {int64_t{-1}, kState + 40, int64_t{1} << 62}) {
    replay::Piece wrong = {place, 8};
    std::memcpy(entry.data() + 56, &wrong, sizeof(wrong));
    CHECK(replay_pieces(&old, pieces, bytes, 1) == 0);
  }
  for (const int64_t wrong_bytes : {int64_t{-1}, int64_t{200}, std::numeric_limits<int64_t>::max()}) {
    replay::Piece wrong = {0, wrong_bytes};
    std::memcpy(entry.data() + 56, &wrong, sizeof(wrong));
    CHECK(replay_pieces(&old, pieces, bytes, 1) == 0);
  }
  const replay::Piece across = {kState - 8, 16};
  std::memcpy(entry.data() + 56, &across, sizeof(across));
  CHECK(replay_pieces(&old, pieces, 32, 1) == 0 && replay_pieces(&old, pieces, 8, 1) == 0);
  CHECK(replay_pieces(&old, pieces, 0, 1) == 1);
}

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_TEST_SHARED_H_
