// What a kernel is given may lie in the state that it writes: rows of the buffer itself, its priorities. The kernel would
// overwrite what it has yet to read. So each kernel says where its state ends, and is called with copies of what lies
// there. Where nothing does, that takes a comparison of addresses.
#ifndef MINDSPORE_REPLAY_GIVEN_H_
#define MINDSPORE_REPLAY_GIVEN_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "arguments.h"

namespace replay {

// The arguments that a kernel reads while it writes those before them, up to its one output, the last argument.
struct Given {
  int first;
  // An argument that may be this one of the state, where the kernel reads it before it writes there; -1 for none.
  int priority = -1;
  int max_priority = -1;

  bool MayStay(const Arguments &args, int i) const {
    return i == priority && args.data<char>(i) == args.data<char>(max_priority);
  }
};

// Finds them for a call, whose arguments may be wrong still.
using GivenOf = Given (*)(const Arguments &);

// For a kernel that has read what it is given before it writes anything but outputs.
inline Given ReadsFirst(const Arguments &args) { return {args.size()}; }

// For a kernel whose state is a tree.
inline Given AfterTree(const Arguments &) { return {1}; }

// For a kernel whose state is columns and, from `head` on, so many other arguments.
template <int kOthers>
Given AfterState(const Arguments &args) {
  return {args.LeadingColumns("int32") + kOthers};
}

// The same for an insertion with weights: factors and a priority come first, which may be the largest one so far.
template <int kOthers>
Given AfterStateWithPriority(const Arguments &args) {
  const int k = args.LeadingColumns("int32");
  return {k + kOthers, k + kOthers + 1, k + 5};
}

// Addresses from `begin` up to `end`.
struct Extent {
  uintptr_t begin;
  uintptr_t end;

  bool Meets(const Extent &other) const { return begin < other.end && other.begin < end; }
};

inline Extent ExtentOf(const Arguments &args, int i) {
  const auto begin = reinterpret_cast<uintptr_t>(args.data<char>(i));
  return {begin, begin + static_cast<uintptr_t>(args.Bytes(i))};
}

inline bool MeetsState(const Arguments &args, const Given &given, const Extent &extent) {
  for (int j = 0; j < given.first; ++j) {
    if (ExtentOf(args, j).Meets(extent)) return true;
  }
  return false;
}

// The given arguments that share memory with the state.
inline std::vector<int> SharedWithState(const Arguments &args, const Given &given) {
  Extent all{UINTPTR_MAX, 0};
  for (int i = given.first; i < args.size() - 1; ++i) {
    if (given.MayStay(args, i)) continue;
    const Extent extent = ExtentOf(args, i);
    all = {std::min(all.begin, extent.begin), std::max(all.end, extent.end)};
  }
  std::vector<int> shared;
  if (given.first >= args.size() - 1 || !MeetsState(args, given, all)) return shared;
  for (int i = given.first; i < args.size() - 1; ++i) {
    if (!given.MayStay(args, i) && MeetsState(args, given, ExtentOf(args, i))) shared.push_back(i);
  }
  return shared;
}

}  // namespace replay

#endif  // MINDSPORE_REPLAY_GIVEN_H_
