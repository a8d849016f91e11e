// Tests of every operator of the table with inputs that lie in the state of the buffer.
#ifndef MINDSPORE_REPLAY_TESTS_TEST_OVERLAPS_H_
#define MINDSPORE_REPLAY_TESTS_TEST_OVERLAPS_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "call.h"
#include "check.h"
#include "examples.h"

namespace {

// Compares an input that lies in the state with a copy in memory of its own. `given` and `state` are positions in the
// call.
void TestPlace(const replay::Signature &signature, const Arguments &arguments, size_t given, size_t state,
               size_t offset) {
  const Kernel kernel = KernelOf(std::string(signature.name));
  Arguments inside = arguments, apart = arguments;
  const std::vector<Argument *> inner = inside.For(signature), other = apart.For(signature);
  std::vector<char> &bytes = other[given]->bytes;
  std::memcpy(bytes.data(), inner[state]->bytes.data() + offset, bytes.size());
  const int expected = Arrays(other).Call(kernel);
  Arrays arrays(inner);
  arrays.params[given] = inner[state]->bytes.data() + offset;
  bool same = arrays.Call(kernel) == expected;
  for (size_t i = 0; i < inner.size(); ++i) same = same && (i == given || inner[i]->bytes == other[i]->bytes);
  const std::string name(signature.name);
  Check(same, (name + ": argument " + std::to_string(given) + " in " + std::to_string(state)).c_str(), __LINE__);
}

void TestGiven(const replay::Signature &signature, Arguments arguments) {
  const std::vector<Argument *> arrays = arguments.For(signature);
  std::vector<size_t> inputs, states;
  size_t next = 0;
  for (int i = 0; i < signature.size; ++i) {
    const replay::Item &item = signature.items[i];
    if (!arguments.Has(item)) continue;
    const size_t size = arguments.All(std::string(item.name)).size();
    for (size_t end = next + size; next < end; ++next) {
      // Beta is modified in place.
      if (item.role == replay::Role::kInput && item.name != "beta") inputs.push_back(next);
      if (item.role == replay::Role::kState) states.push_back(next);
    }
  }
  for (const size_t given : inputs) {
    const size_t bytes = arrays[given]->bytes.size();
    const replay::Dtype dtype = replay::DtypeOf(arrays[given]->dtype.c_str());
    for (const size_t state : states) {
      const size_t size = arrays[state]->bytes.size();
      if (!replay::SameDtype(dtype, replay::DtypeOf(arrays[state]->dtype.c_str())) || size < bytes) continue;
      const auto step = static_cast<size_t>(replay::kDtypes[dtype].bytes);
      for (size_t offset = 0; offset + bytes <= size; offset += step)
        TestPlace(signature, arguments, given, state, offset);
    }
  }
}

void TestOverlaps() {
  for (const replay::Signature &signature : Signatures()) {
    const std::string name(signature.name);
    for (const Groups &groups : GroupsOf(signature)) {
      if (!replay::AreOfABuffer(groups.there)) continue;
      const Arguments arguments = StateOf(groups).With(Examples().at(name)(groups));
      TestGiven(signature, arguments);
      if (name == "insert" && groups.RowState()) TestGiven(signature, arguments.With({{"priority", Floats({1})}}));
    }
  }
}

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_TEST_OVERLAPS_H_
