// Pages of mapped files that the disk can neither give nor take: it failed, is gone, or is full. The system then sends
// SIGBUS, which would end the process. Instead, the rest of the file becomes zeros in this process alone, and each kernel
// on the buffer fails from then on, also the one in progress.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>

#ifdef __linux__
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace replay {

// The memory of a file, of the buffer with its head at an address.
struct MappedFile {
  std::atomic<const void *> head{nullptr};  // null for none; set last
  std::atomic<bool> failed{false};
  char *begin = nullptr;
  char *end = nullptr;
};

// Files of all folders that this process uses. Those beyond this number are not guarded. A signal may come at any time,
// so nothing here is allocated or locked.
inline std::array<MappedFile, 4096> mapped_files;
inline std::atomic<int64_t> failed_files{0};

// True if a file of the buffer with its head at an address has failed.
inline bool HasFailed(const void *head) {
  if (failed_files.load(std::memory_order_relaxed) == 0) return false;
  for (const MappedFile &file : mapped_files) {
    if (file.head.load() == head && file.failed.load()) return true;
  }
  return false;
}

#ifdef __linux__
inline struct sigaction handler_before;

inline void OnBusError(int signal, siginfo_t *info, void *) {
  const int error = errno;
  char *address = static_cast<char *>(info->si_addr);
  char *page = address - reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (MappedFile &file : mapped_files) {
    if (file.head.load() == nullptr || address < file.begin || address >= file.end) continue;
    constexpr int kZeros = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(page, static_cast<size_t>(file.end - page), PROT_READ | PROT_WRITE, kZeros, -1, 0) == MAP_FAILED) break;
    file.failed.store(true);
    ++failed_files;
    errno = error;
    return;
  }
  sigaction(signal, &handler_before, nullptr);  // the fault comes again, to this handler
}

// Guards the memory of a file.
inline void Guard(char *memory, int64_t bytes, const void *head) {
  struct sigaction now = {}, ours = {};
  sigaction(SIGBUS, nullptr, &now);
  ours.sa_sigaction = OnBusError;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  if (now.sa_sigaction != OnBusError) {
    handler_before = now;
    sigaction(SIGBUS, &ours, nullptr);
  }
  static std::atomic<bool> busy{false};
  while (busy.exchange(true)) continue;
  for (MappedFile &file : mapped_files) {
    if (file.head.load() != nullptr) continue;
    file.failed.store(false);
    file.begin = memory;
    file.end = memory + bytes;
    file.head.store(head);
    break;
  }
  busy.store(false);
}
#else
inline void Guard(char *, int64_t, const void *) {}
#endif

// Ends the guard of all files of a buffer, whose memory is about to be unmapped.
inline void EndGuard(const void *head) {
  for (MappedFile &file : mapped_files) {
    if (file.head.load() != head) continue;
    if (file.failed.exchange(false)) --failed_files;
    file.head.store(nullptr);
  }
}

}  // namespace replay
