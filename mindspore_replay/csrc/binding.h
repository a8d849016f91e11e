// Binds the arguments of a call to the items of its operator's signature and rejects a call that does not match.
// Kernels then take arguments by name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "arguments.h"
#include "core/sum_tree.h"
#include "core/updates.h"
#include "signatures.h"

namespace replay {

// Maps the items of a signature to the arguments of a call: the first argument of each item (-1 if absent), and the
// element count of each single-array item.
struct Binding {
  int at[Signature::kMostItems];
  int64_t elements[Signature::kMostItems];
  int64_t variables[kVariables.size()] = {-1, -1, -1, -1, -1, -1, -1, -1};
  int k = 0;
  int64_t outputs = 0;
  bool groups[kNumberOfGroups] = {};
};

// The address range [begin, end), by default none.
struct Addresses {
  uintptr_t begin = UINTPTR_MAX, end = 0;

  bool Intersect(const Addresses &other) const { return begin < other.end && other.begin < end; }
  Addresses Joined(const Addresses &other) const { return {std::min(begin, other.begin), std::max(end, other.end)}; }
};

// What a caller that is not MindSpore passes along: the binding of its last call, and whether that holds, as it does while
// shapes and dtypes stay; and whether it serves a graph, which never waits for rows.
struct Caller {
  explicit Caller(bool serves_graph = false) : in_graph(serves_graph) {}
  Binding binding;
  Addresses state;  // of all arrays that a kernel writes, but for outputs
  bool bound = false, in_graph;
};

// True if a name is that of the dtype; compares character by character, with the closing zero.
template <Dtype kDtype, size_t... i>
bool IsNamed(const char *name, std::index_sequence<i...>) {
  return ((name[i] == kDtypes[kDtype].name[i]) && ...);
}

template <Dtype kDtype>
bool IsNamed(const char *name) {
  return IsNamed<kDtype>(name, std::make_index_sequence<std::string_view(kDtypes[kDtype].name).size() + 1>());
}

// The signature is a compile-time constant, so binding adds little to the call of a small kernel.
template <int kOperator>
class Binder {
 public:
  Binder(const Arguments &args, Binding *bound) : args_(args), bound_(*bound) {}

  __attribute__((flatten)) bool Bind() {
    bound_.k = args_.LeadingColumns();
    if (kSignature<kOperator>.items[0].span == Span::kColumns ? bound_.k < 1 : bound_.k > 0) return false;
    if (Beyond(0) < 0 || (kSignature<kOperator>.by_outputs == 0 && !ChooseGroups(0))) return false;
    return BindItems(std::make_index_sequence<kSignature<kOperator>.size>());
  }

 private:
  template <size_t... kItems>
  bool BindItems(std::index_sequence<kItems...>) {
    return (BindItem<kItems>() && ...);
  }

  template <size_t i>
  bool BindItem() {
    constexpr Item item = kSignature<kOperator>.items[i];
    if constexpr (item.needs >= 0) {
      if (!bound_.groups[item.needs]) {
        bound_.at[i] = -1;
        return true;
      }
    }
    const int first = next_;
    bound_.at[i] = first;
    next_ += item.span == Span::kOne ? 1 : bound_.k;
    if constexpr (item.span == Span::kColumns) {
      return AreColumns(first);
    } else if constexpr (item.span == Span::kRows) {
      return HoldRows<i>(first);
    } else if constexpr (item.span == Span::kOutputs) {
      return true;
    } else if constexpr (item.dtype == kOfAnyDtype) {
      return HasExtents<i>(first);
    } else {
      if (!IsNamed<item.dtype>(args_.dtype(first)) || !HasExtents<i>(first)) return false;
      // The outputs come last; the item that counts them comes before those of optional groups.
      constexpr bool counts_outputs = kSignature<kOperator>.by_outputs > 0 && item.extents[0].variable == kOutputsGiven;
      return !counts_outputs || ChooseGroups(bound_.variables[kOutputsGiven]);
    }
  }

  // Returns the number of arguments beyond those that are always present, for this number of outputs.
  int64_t Beyond(int64_t outputs) const {
    constexpr const Signature &signature = kSignature<kOperator>;
    return args_.size() - signature.always - signature.by_columns * bound_.k - signature.by_outputs * outputs;
  }

  // Deduces the optional state groups from the number of arguments: no two choices have the same number.
  bool ChooseGroups(int64_t outputs) {
    constexpr const Signature &signature = kSignature<kOperator>;
    const int64_t more = Beyond(outputs);
    if (more < 0 || more >= Signature::kMostItems || signature.choices[more] < 0) return false;
    for (int group = 0; group < kNumberOfGroups; ++group) bound_.groups[group] = signature.choices[more] >> group & 1;
    return true;
  }

  bool AreColumns(int first) {
    const int64_t capacity = args_.dim(first, 0);
    for (int i = first; i < first + bound_.k; ++i) {
      if (args_.dim(i, 0) != capacity || DtypeOf(args_.dtype(i)) == kNoDtype) return false;
    }
    return SetCapacity(capacity);
  }

  bool SetCapacity(int64_t capacity) {
    if (capacity < 1 || capacity > INT32_MAX) return false;
    bound_.variables[kCapacity] = capacity;
    return true;
  }

  template <size_t i>
  bool HoldRows(int first) {
    constexpr Item item = kSignature<kOperator>.items[i];
    for (int column = 0; column < bound_.k; ++column) {
      const int rows = first + column;
      if (!SameDtype(args_.dtype(rows), args_.dtype(column))) return false;
      if constexpr (item.axes == 2) {
        if (!HaveLead<i>(rows, column)) return false;
      } else {
        const int64_t n = args_.RowsOf(rows, column);
        int64_t &expected = bound_.variables[item.extents[0].variable];
        if (expected < 0) expected = n;
        if (n < 1 || n != expected) return false;
      }
    }
    return true;
  }

  // True if argument `rows` holds rows of a column behind the two axes of an item.
  template <size_t i>
  bool HaveLead(int rows, int column) const {
    constexpr Item item = kSignature<kOperator>.items[i];
    if (args_.ndim(rows) != args_.ndim(column) + 1) return false;
    for (int axis = 0; axis < args_.ndim(rows); ++axis) {
      const int64_t size = axis < 2 ? bound_.variables[item.extents[axis].variable] : args_.dim(column, axis - 1);
      if (args_.dim(rows, axis) != size) return false;
    }
    return true;
  }

  template <size_t i>
  bool HasExtents(int at) {
    constexpr Item item = kSignature<kOperator>.items[i];
    if constexpr (item.axes == 2) {
      return args_.ndim(at) == 2 && Matches<i, 0>(args_.dim(at, 0)) && Matches<i, 1>(args_.dim(at, 1));
    } else {
      const int64_t elements = args_.elements(at);
      bound_.elements[i] = elements;
      return (item.or_one && elements == 1) || Matches<i, 0>(elements);
    }
  }

  // True if the element count matches the signature; sets a variable that is not yet known.
  template <size_t i, int kAxis>
  bool Matches(int64_t elements) {
    constexpr Extent extent = kSignature<kOperator>.items[i].extents[kAxis];
    if constexpr (extent.variable < 0) {
      return elements == extent.plus;
    } else {
      int64_t &value = bound_.variables[extent.variable];
      if (value < 0) {
        const int64_t rest = elements - extent.plus;
        if constexpr (extent.variable == kTreeSize) {
          value = SumTree::Size(bound_.variables[kCapacity]);
        } else if constexpr (extent.variable == kUpdatesSize) {
          value = Updates::Size(bound_.variables[kCapacity]);
        } else if (rest < 1 || rest % extent.times != 0) {
          return false;
        } else if constexpr (extent.variable == kCapacity) {
          if (!SetCapacity(rest)) return false;
        } else {
          value = rest / extent.times;
        }
      }
      return elements == extent.plus + extent.times * value;
    }
  }

  const Arguments &args_;
  Binding &bound_;
  int next_ = 0;
};

// True for an argument that a kernel reads after it has begun to write.
constexpr bool IsReadLate(const Item &item) {
  return item.role == Role::kInput && (item.extents[0].variable == kRowsGiven || item.needs == kVersionsGroup);
}

template <int kOperator>
constexpr bool MayOverlap() {
  bool may = false;
  for (int i = 0; i < kSignature<kOperator>.size; ++i) may |= IsReadLate(kSignature<kOperator>.items[i]);
  return may && kOperator != OperatorNumber("read") && kOperator != OperatorNumber("info");  // these only read
}

// Finds inputs that overlap the state the kernel writes, such as rows or priorities of the buffer itself. The kernel
// would overwrite them before it has read them, so it gets copies. Arrays of fixed size are read before anything is
// written, except those that come with versions.
template <int kOperator>
class Overlaps {
 public:
  Overlaps(const Arguments &args, const Binding &bound) : args_(args), bound_(bound) {}

  int64_t Bytes(int i) const { return args_.elements(i) * ElementBytes(args_.dtype(i)); }

  // Returns where the state is, and what may lie between its arrays; nothing for a kernel whose inputs may share its memory.
  Addresses State() const {
    Addresses all;
    if constexpr (MayOverlap<kOperator>()) ForState([&](const Addresses &one) { all = all.Joined(one); }, kItems);
    return all;
  }

  // Returns the inputs that share memory with the state.
  std::vector<int> Find(const Addresses &state) const {
    if constexpr (!MayOverlap<kOperator>()) return {};
    Addresses all;
    ForInputs([&](int, const Addresses &addresses) { all = all.Joined(addresses); }, kItems);
    std::vector<int> shared;
    if (!MeetsState(all, state)) return shared;
    const auto find = [&](int i, const Addresses &one) {
      if (MeetsState(one, state)) shared.push_back(i);
    };
    ForInputs(find, kItems);
    return shared;
  }

 private:
  static constexpr auto kItems = std::make_index_sequence<kSignature<kOperator>.size>();

  Addresses AddressesOf(int i, int64_t bytes) const {
    const auto begin = reinterpret_cast<uintptr_t>(args_.data<char>(i));
    return {begin, begin + static_cast<uintptr_t>(bytes)};
  }

  template <size_t i>
  Addresses AddressesOf() const {
    return AddressesOf(bound_.at[i], bound_.elements[i] * kDtypes[kSignature<kOperator>.items[i].dtype].bytes);
  }

  template <typename Visit, size_t... i>
  void ForInputs(const Visit &visit, std::index_sequence<i...>) const {
    (VisitInput<i>(visit), ...);
  }

  template <size_t i, typename Visit>
  void VisitInput(const Visit &visit) const {
    constexpr Item item = kSignature<kOperator>.items[i];
    if constexpr (IsReadLate(item)) {
      const int at = bound_.at[i];
      if constexpr (item.span == Span::kRows) {
        for (int rows = at; rows < at + bound_.k; ++rows) visit(rows, AddressesOf(rows, Bytes(rows)));
      } else {
        if (at < 0) return;
        if constexpr (item.may_be >= 0) {
          if (args_.data<char>(at) == args_.data<char>(bound_.at[item.may_be])) return;
        }
        visit(at, AddressesOf<i>());
      }
    }
  }

  bool MeetsState(const Addresses &given, const Addresses &state) const {
    bool meets = false;
    if (given.Intersect(state))
      ForState([&](const Addresses &addresses) { meets |= addresses.Intersect(given); }, kItems);
    return meets;
  }

  template <typename Visit, size_t... i>
  void ForState(const Visit &visit, std::index_sequence<i...>) const {
    (VisitState<i>(visit), ...);
  }

  template <size_t i, typename Visit>
  void VisitState(const Visit &visit) const {
    constexpr Item item = kSignature<kOperator>.items[i];
    if constexpr (item.span == Span::kColumns) {
      for (int column = 0; column < bound_.k; ++column) visit(AddressesOf(column, Bytes(column)));
    } else if constexpr (item.role == Role::kState) {
      if (bound_.at[i] >= 0) visit(AddressesOf<i>());
    }
  }

  const Arguments &args_;
  const Binding &bound_;
};

constexpr uint64_t HashOf(std::string_view text) {
  uint64_t hash = 14695981039346656037ULL;
  for (const char c : text) hash = (hash ^ static_cast<uint64_t>(c)) * 1099511628211ULL;
  return hash;
}

template <int kOperator>
constexpr int ItemOfHash(uint64_t hash) {
  for (int i = 0; i < kSignature<kOperator>.size; ++i) {
    if (HashOf(kSignature<kOperator>.items[i].name) == hash) return i;
  }
  return -1;
}

// The name of an item, resolved at compile time.
#define NAMED(name) (std::integral_constant<uint64_t, replay::HashOf(name)>{})

class Shared;

// The bound arguments of a call, by name.
template <int kOperator>
class Bound {
 public:
  Bound(const Arguments &raw, const Binding &binding, Shared *shared = nullptr)
      : raw_(raw), binding_(binding), shared_(shared) {}

  const Arguments &raw() const { return raw_; }
  // Of a buffer in memory shared by processes; null for any other.
  Shared *shared() const { return shared_; }
  int columns() const { return binding_.k; }
  int64_t capacity() const { return binding_.variables[kCapacity]; }
  int64_t n() const { return binding_.variables[kRowsGiven]; }
  int64_t outputs() const { return binding_.variables[kOutputsGiven]; }
  static constexpr bool MayHaveGroup(int group) {
    return kSignature<kOperator>.required[group] || kSignature<kOperator>.optional[group];
  }
  bool HasGroup(int group) const { return kSignature<kOperator>.required[group] || binding_.groups[group]; }

  // Index of an item's first argument.
  template <uint64_t kHash>
  int at(std::integral_constant<uint64_t, kHash>) const {
    constexpr int i = ItemOfHash<kOperator>(kHash);
    static_assert(i >= 0, "the signature has no such name");
    return binding_.at[i];
  }

  template <typename T, uint64_t kHash>
  T *data(std::integral_constant<uint64_t, kHash> name) const {
    return raw_.data<T>(at(name));
  }

  // Null if the operator does not take the array or the buffer does not have it.
  template <typename T, uint64_t kHash>
  T *data_or_null(std::integral_constant<uint64_t, kHash>) const {
    constexpr int i = ItemOfHash<kOperator>(kHash);
    if constexpr (i >= 0) {
      if (binding_.at[i] >= 0) return raw_.data<T>(binding_.at[i]);
    }
    return nullptr;
  }

  template <uint64_t kHash>
  int64_t elements(std::integral_constant<uint64_t, kHash>) const {
    return binding_.elements[ItemOfHash<kOperator>(kHash)];
  }

  int64_t RowBytes(int column) const { return raw_.RowElements(column) * ElementBytes(raw_.dtype(column)); }

 private:
  const Arguments &raw_;
  const Binding &binding_;
  Shared *shared_;
};

}  // namespace replay
