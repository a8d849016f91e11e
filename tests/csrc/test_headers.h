// Tests of what the kernels share: threads, scratch memory, and memory for items.
#ifndef MINDSPORE_REPLAY_TESTS_TEST_HEADERS_H_
#define MINDSPORE_REPLAY_TESTS_TEST_HEADERS_H_

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "core/items.h"
#include "core/parallel.h"
#include "core/random.h"
#include "core/scratch.h"

namespace {

// --- parallel.h ---

// Each index is processed once, by several threads only if there are many bytes.
void TestInParallel() {
  const size_t processors = std::thread::hardware_concurrency();
  for (int64_t bytes : {int64_t{0}, int64_t{1} << 20, int64_t{1} << 22, int64_t{1} << 30}) {
    for (int64_t n : {0, 1, 2, 3, 5, 1000}) {
      std::vector<int> visits(static_cast<size_t>(n));
      std::set<std::thread::id> threads;
      std::mutex lock;
      replay::InParallel(n, bytes, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
        const std::lock_guard<std::mutex> guard(lock);
        threads.insert(std::this_thread::get_id());
      });
      CHECK(std::all_of(visits.begin(), visits.end(), [](int visit) { return visit == 1; }));
      const int64_t most = bytes < (1 << 22) ? 1 : bytes == (1 << 22) ? 2 : 4;
      CHECK(threads.size() <= static_cast<size_t>(std::max<int64_t>(1, std::min(n, most))));
      CHECK(threads.size() >= std::min({size_t{2}, processors, static_cast<size_t>(std::min(n, most))}));
    }
  }
}

void TestCopyBytes() {
  std::vector<char> from((1 << 23) + 13);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(replay::RandomBits(1, i));
  std::vector<char> to(from.size() + 2, 'x');
  replay::CopyBytes(to.data() + 1, from.data(), static_cast<int64_t>(from.size()));
  CHECK(std::equal(from.begin(), from.end(), to.begin() + 1));
  CHECK(to.front() == 'x' && to.back() == 'x');
}

// Makes vectors when its thread ends.
struct AtTheEnd {
  bool *made;

  ~AtTheEnd() { *made = replay::Vector<int64_t>(200, 1) == replay::Vector<int64_t>(200, 1); }
};

// A vector takes the memory that one of about its size had before it in this thread, and shares it with no other.
void TestScratch() {
  const auto address_of = [](size_t size) { return replay::Vector<int64_t>(size).data(); };
  const int64_t *first = address_of(200);
  CHECK(address_of(256) == first && address_of(129) == first);
  CHECK(address_of(257) != first && address_of(256) == first);
  replay::Vector<int64_t> one(200, 1), other(200, 2);
  CHECK(one.data() == first && other.data() != first && address_of(200) != first);
  const replay::Vector<int64_t> moved = std::move(one);
  CHECK(moved.data() == first && moved == replay::Vector<int64_t>(200, 1));
  std::thread([&] { CHECK(address_of(200) != other.data() && address_of(200) != first); }).join();
  bool made = false;
  std::thread([&] {
    thread_local const AtTheEnd last{&made};  // goes after what the thread keeps, which is younger
    CHECK(last.made == &made && address_of(200) != nullptr);
  }).join();
  CHECK(made);
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{8192}, size_t{8193}, size_t{100000}}) {
    CHECK(replay::Vector<int64_t>(size, 3) == replay::Vector<int64_t>(size, 3));
  }
}

#ifdef __x86_64__
__attribute__((target("avx"))) void FillUpperHalves() {
  __asm__ volatile("vpcmpeqd %%xmm0, %%xmm0, %%xmm0\n\tvinsertf128 $1, %%xmm0, %%ymm0, %%ymm0" ::: "xmm0");
}

// True if the processor says that upper halves are in use.
__attribute__((target("xsave"))) bool UpperHalvesInUse() { return (_xgetbv(1) & 4) != 0; }

bool ProcessorSaysWhatIsInUse() {
  unsigned a, b, c, d;
  if (!__builtin_cpu_supports("avx") || !__get_cpuid_count(0xd, 1, &a, &b, &c, &d) || (a & 4) == 0) return false;
  FillUpperHalves();
  const bool full = UpperHalvesInUse();
  replay::EmptyWithAvx();
  return full && !UpperHalvesInUse();
}

void TestEmptyUpperHalves() {
  if (!ProcessorSaysWhatIsInUse()) return;
  FillUpperHalves();
  replay::EmptyUpperHalves();
  CHECK(!UpperHalvesInUse());
}
#else
void TestEmptyUpperHalves() {}
#endif

// --- items.h ---

// Each row that an arena can hold, alone and beside a second one.
void TestItems() {
  constexpr int64_t kItems = 7, kBytes = 3;
  for (int64_t offset = 0; offset < 3 * kItems; ++offset) {
    for (int64_t length = -1; length <= kItems + 1; ++length) {
      std::vector<char> memory(kItems * kBytes, '.');
      const replay::Arena arena = {memory.data(), kItems, kBytes};
      const int64_t slot = offset % kItems;
      const replay::Reference rows[] = {{offset, length}, {offset, 0}};
      CHECK(arena.Holds(rows[0]) == (length >= 0 && slot + length <= kItems));
      CHECK(!arena.Holds({-1, 1}));
      if (!arena.Holds(rows[0])) continue;
      std::vector<char> items(static_cast<size_t>(length * kBytes));
      std::iota(items.begin(), items.end(), 'a');
      replay::PackRows(arena, rows, 2, items.data(), true);
      for (int64_t i = 0; i < kItems * kBytes; ++i) {
        const bool inside = i >= slot * kBytes && i < (slot + length) * kBytes;
        CHECK(memory[static_cast<size_t>(i)] == (inside ? 'a' + i - slot * kBytes : '.'));
      }
      std::vector<char> packed(items.size(), '?');
      replay::PackRows(arena, rows, 2, packed.data(), false);
      CHECK(packed == items);
      for (int64_t most = 0; most <= kItems; ++most) {
        std::vector<char> padded(static_cast<size_t>(2 * most * kBytes), '?');
        replay::PadRows(arena, rows, 2, most, padded.data());
        for (int64_t i = 0; i < 2 * most * kBytes; ++i) {
          CHECK(padded[static_cast<size_t>(i)] == (i < std::min(most, length) * kBytes ? 'a' + i : 0));
        }
      }
    }
  }
}

void TestHeaders() {
  TestItems();
  TestEmptyUpperHalves();
  TestScratch();
  TestInParallel();
  TestCopyBytes();
}

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_TEST_HEADERS_H_
