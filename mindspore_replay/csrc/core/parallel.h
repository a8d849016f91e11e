// Copies many bytes in several threads: one thread does not use the full memory bandwidth.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

namespace replay {

// Starting a thread takes as long as copying about 100 kB.
constexpr int64_t kBytesOfThread = 1 << 21;
constexpr int64_t kMostThreads = 4;

// Splits [0, n) into parts and calls work(begin, end) on each, in threads if they copy many bytes.
template <typename Work>
inline void InParallel(int64_t n, int64_t bytes, const Work &work) {
  int64_t parts = std::min({bytes / kBytesOfThread, n, kMostThreads});
  if (parts > 1) parts = std::min(parts, static_cast<int64_t>(std::thread::hardware_concurrency()));  // a system call
  if (parts <= 1) return work(int64_t{0}, n);
  std::vector<std::thread> others;
  others.reserve(static_cast<size_t>(parts));
  for (int64_t part = 1; part < parts; ++part) {
    const int64_t begin = n * part / parts;
    const int64_t end = n * (part + 1) / parts;
    try {
      others.emplace_back([&work, begin, end] { work(begin, end); });
    } catch (const std::system_error &) {  // no thread is available
      work(begin, end);
    }
  }
  work(int64_t{0}, n / parts);
  for (std::thread &thread : others) thread.join();
}

inline void CopyBytes(char *to, const char *from, int64_t bytes) {
  InParallel(bytes, bytes, [=](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace replay
