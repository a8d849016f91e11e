// The signatures of all operators, one line each; the adapters and Python read them. From left to right:
//
//   columns            the buffer's columns, or some of them; their number is k
//   ring, ?row_state   a group of the buffer's state; with ? only in buffers that have it, and `versions` only in
//                      calls that give versions
//   row_state(a,...)   only these of its arrays, since each argument costs MindSpore time
//   name:f32[n]        an array. With one axis or none only the element count matters: a number, n (any, but the same
//                      everywhere), C (the capacity), T (the size of a sum tree), U (the size of `updates`),
//                      alternatives as in [1|n], and sums as in [8+7m]. With two axes each counts
//   row_state?name:... an array that is present only together with a group
//   name=other:...     an array that may alias that state array
//   rows[n]            one array per column, of its dtype, with these axes in front of those of a row
//   outputs[m]         m arrays of any dtype and shape, which the kernel determines
//   ->                 separates inputs from outputs; state is modified in place
#pragma once

#include <cstdint>
#include <string_view>

#include "arguments.h"

namespace replay {

constexpr std::string_view kGroups[] = {
    "ring = head:i32[1] count:i32[1] serials:i64[2]",
    "random = random_state:i64[2]",
    "reservoir = row_serials:i64[C] random_state:i64[2]",
    "row_state = priorities:f32[C] use_counts:i32[C] insertion_clocks:i64[C] weights:f64[T] max_priority:f32[1] clock:i64[3] "
    "counts:i64[5] row_rule:f64[5]",
    "episodes = steps:i64[C] flags:u8[C] window_rule:i64[8]",
    "epochs = epoch:i64[5] epoch_rule:i64[3]",
    "versions = counts:i64[5]",
    "updates = updates:i64[U]",
};

constexpr int kNumberOfGroups = sizeof(kGroups) / sizeof(kGroups[0]);

constexpr std::string_view kOperators[] = {
    "insert: columns ring ?reservoir "
    "?row_state(priorities,use_counts,insertion_clocks,weights,max_priority,clock,row_rule) ?episodes ?versions "
    "versions?max_staleness:i64[1] rows[n] row_state?priority=max_priority:f32[1|n] episodes?ends:u8[1|n] "
    "versions?version:i64[1|n] -> first:i64[1]",
    "update: columns ring ?reservoir ?row_state ?episodes updates row_state?written:i64[2] handles:i64[n] rows[n] -> invalid:i32[1]",
    "read: columns ring index:i64[n] -> rows[n]",
    "sample: columns ring random plan:i64[12+7m] ?reservoir ?row_state(use_counts,weights,clock,counts) ?episodes "
    "?epochs episodes?powers:f64[p] row_state?beta:f64[1] sample_range:i64[2] row_state?given_beta:f64[1] -> outputs[m]",
    "sample_groups: columns ring random row_state(weights,clock) episodes options:i64[2] template:any[G,L] -> mask:bool[G,L] "
    "rows[G,L]",
    "update_priorities: ring ?reservoir row_state(priorities,use_counts,weights,max_priority,clock,counts,row_rule) ?episodes "
    "handles:i64[n] priority:f32[1|n] -> invalid:i32[1]",
    "delete: ring ?reservoir row_state(use_counts,insertion_clocks,weights,clock,counts) ?episodes handles:i64[n] -> "
    "removed:i32[1]",
    "advance: ring ?reservoir row_state(use_counts,insertion_clocks,weights,clock,counts) ?episodes max_staleness:i64[1] "
    "ticks:i64[1] -> now:i64[1]",
    "info: ring ?reservoir row_state(priorities,use_counts,insertion_clocks,clock) ?episodes handles:i64[n] -> priority:f32[n] "
    "uses:i32[n] staleness:i64[n]",
    "end_episodes: ring row_state(priorities,use_counts,weights,clock,row_rule) episodes flag:u8[1] -> ended:i32[1]",
    "reset: ring ?reservoir ?row_state ?episodes -> stored:i32[1]",
    "sums: ring row_state(priorities,weights) ranges:i64[2m] -> sums:f64[m]",
    "summary: ring row_state(priorities,weights) -> summary:f64[3]",
    "measure: ring row_state(priorities,use_counts,weights,clock,row_rule) ?episodes what:i64[1] sample_range:i64[2] -> "
    "number:f64[1]",
};
constexpr int kNumberOfOperators = sizeof(kOperators) / sizeof(kOperators[0]);

// Variables that stand for element counts.
constexpr std::string_view kVariables = "CTnmpGLU";
constexpr int kCapacity = 0, kTreeSize = 1, kRowsGiven = 2, kOutputsGiven = 3, kUpdatesSize = 7;

// An element count: `plus` + `times` * variable.
struct Extent {
  int64_t plus = 0;
  int64_t times = 0;
  int variable = -1;
};

enum class Role : int8_t { kState, kInput, kOutput };
enum class Span : int8_t { kOne, kColumns, kRows, kOutputs };

constexpr Dtype kOfAnyDtype = static_cast<Dtype>(-2);

// An array of a signature, or one for each column.
struct Item {
  std::string_view name{};
  Role role = Role::kInput;
  Span span = Span::kOne;
  Dtype dtype = kNoDtype;
  Extent extents[2]{};
  int axes = 0;         // 2 if each axis counts
  bool or_one = false;  // one element is accepted too
  int needs = -1;       // the group it depends on
  int may_be = -1;      // the state item it may alias
};

namespace parsing {

constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Removes the text before the separator, and the separator, from the front of a text and returns it.
constexpr std::string_view Take(std::string_view *text, char separator) {
  const size_t end = text->find(separator);
  const std::string_view taken = text->substr(0, end);
  *text = end == std::string_view::npos ? std::string_view{} : text->substr(end + 1);
  return taken;
}

constexpr bool StartsWith(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

constexpr Dtype DtypeOf(std::string_view text) {
  if (text == "f32") return kFloat32;
  if (text == "f64") return kFloat64;
  if (text == "i32") return kInt32;
  if (text == "i64") return kInt64;
  if (text == "u8") return kUint8;
  if (text == "bool") return kBool;
  return text == "any" ? kOfAnyDtype : throw "a dtype of a signature";
}

constexpr Extent ExtentOf(std::string_view text) {
  Extent extent;
  int64_t number = 0;
  bool digits = false;
  for (const char c : text) {
    if (IsDigit(c)) {
      number = 10 * number + (c - '0');
      digits = true;
    } else if (c == '+') {
      extent.plus = number;
      number = 0;
      digits = false;
    } else {
      extent.variable = static_cast<int>(kVariables.find(c));
      extent.times = digits ? number : 1;
      number = 0;
    }
  }
  if (extent.variable < 0) extent.plus = number;
  return extent;
}

constexpr int NumberOfGroup(std::string_view name) {
  for (int i = 0; i < kNumberOfGroups; ++i) {
    std::string_view text = kGroups[i];
    if (Take(&text, ' ') == name) return i;
  }
  return -1;
}

constexpr void SetExtents(std::string_view text, Item *item) {
  if (StartsWith(text, "1|")) {
    item->or_one = true;
    text = text.substr(2);
  }
  while (!text.empty()) item->extents[item->axes++] = ExtentOf(Take(&text, ','));
}

constexpr Item ItemOf(std::string_view text) {
  Item item;
  const size_t question = text.find('?');
  if (question != std::string_view::npos) {
    item.needs = NumberOfGroup(text.substr(0, question));
    text = text.substr(question + 1);
  }
  const std::string_view head = Take(&text, '[');
  SetExtents(Take(&text, ']'), &item);
  std::string_view rest = head;
  const std::string_view name = Take(&rest, ':');
  item.name = name.substr(0, name.find('='));
  item.span = item.name == "columns"   ? Span::kColumns
              : item.name == "rows"    ? Span::kRows
              : item.name == "outputs" ? Span::kOutputs
                                       : Span::kOne;
  if (item.span == Span::kOne) item.dtype = DtypeOf(rest);
  return item;
}

}  // namespace parsing

// Indices of the groups of state.
constexpr int kReservoirGroup = parsing::NumberOfGroup("reservoir");
constexpr int kRowStateGroup = parsing::NumberOfGroup("row_state");
constexpr int kEpisodesGroup = parsing::NumberOfGroup("episodes");
constexpr int kEpochsGroup = parsing::NumberOfGroup("epochs");
constexpr int kVersionsGroup = parsing::NumberOfGroup("versions");

// True if buffers with these groups of state exist. Windows are drawn by their weights, and rows of a reservoir have no
// neighbours and no order.
constexpr bool AreOfABuffer(const bool (&groups)[kNumberOfGroups]) {
  if ((groups[kEpisodesGroup] || groups[kVersionsGroup]) && !groups[kRowStateGroup]) return false;
  return !groups[kReservoirGroup] || !(groups[kEpisodesGroup] || groups[kEpochsGroup]);
}

// The signature of an operator.
struct Signature {
  static constexpr int kMostItems = 32;

  std::string_view name{};
  Item items[kMostItems]{};
  int size = 0;
  bool optional[kNumberOfGroups]{};  // groups that may be absent
  bool required[kNumberOfGroups]{};  // groups that are always present
  // Arguments that are always present: a constant, a multiple of k and a multiple of m.
  int always = 0;
  int by_columns = 0;
  int by_outputs = 0;
  int with_group[kNumberOfGroups]{};  // additional arguments of an optional group
  // Optional groups, as bits, by the number of additional arguments; -1 for a number that none have.
  int8_t choices[kMostItems]{};

  constexpr int Find(std::string_view wanted) const {
    for (int i = 0; i < size; ++i) {
      if (items[i].name == wanted) return i;
    }
    return -1;
  }

  // Returns the index of an item that must exist.
  constexpr int At(std::string_view wanted) const {
    return Find(wanted) >= 0 ? Find(wanted) : throw "a name that the signature does not have";
  }
};

namespace parsing {

// True if a comma-separated list contains a word; an empty list contains all.
constexpr bool Lists(std::string_view list, std::string_view word) {
  if (list.empty()) return true;
  while (!list.empty()) {
    if (Take(&list, ',') == word) return true;
  }
  return false;
}

// Adds the listed arrays of a group, except arrays that another group has added.
constexpr void AddGroup(int group, bool optional, std::string_view listed, Signature *signature) {
  std::string_view text = kGroups[group];
  Take(&text, '=');
  (optional ? signature->optional : signature->required)[group] = true;
  for (text = text.substr(1); !text.empty();) {
    Item item = ItemOf(Take(&text, ' '));
    if (!Lists(listed, item.name) || signature->Find(item.name) >= 0) continue;
    item.role = Role::kState;
    item.needs = optional ? group : -1;
    signature->items[signature->size++] = item;
  }
}

constexpr void AddItem(std::string_view word, Role role, Signature *signature) {
  Item item = ItemOf(word);
  item.role = item.span == Span::kColumns ? Role::kState : role;
  const size_t equals = word.find('=');
  if (equals != std::string_view::npos) {
    std::string_view other = word.substr(equals + 1);
    item.may_be = signature->At(Take(&other, ':'));
  }
  if (item.needs >= 0 && !signature->optional[item.needs]) item.needs = -1;
  if (signature->Find(item.name) >= 0) throw "a name that comes twice";
  signature->items[signature->size++] = item;
}

constexpr void CountArguments(Signature *signature) {
  for (int i = 0; i < signature->size; ++i) {
    const Item &item = signature->items[i];
    if (item.needs >= 0) {
      signature->with_group[item.needs] += item.span == Span::kOne ? 1 : throw "a group with an array for each column";
    } else if (item.span == Span::kOne) {
      ++signature->always;
    } else {
      ++(item.span == Span::kOutputs ? signature->by_outputs : signature->by_columns);
    }
  }
}

constexpr void FindChoices(Signature *signature) {
  for (int8_t &choice : signature->choices) choice = -1;
  for (int choice = 0; choice < 1 << kNumberOfGroups; ++choice) {
    int more = 0;
    bool groups[kNumberOfGroups] = {};
    bool may_be = true;
    for (int group = 0; group < kNumberOfGroups; ++group) {
      const bool chosen = choice >> group & 1;
      may_be = may_be && (!chosen || signature->optional[group]);
      groups[group] = chosen || signature->required[group];
      if (chosen) more += signature->with_group[group];
    }
    if (!may_be || !AreOfABuffer(groups)) continue;
    if (signature->choices[more] >= 0) throw "two kinds of buffers with the same number of arguments";
    signature->choices[more] = static_cast<int8_t>(choice);
  }
}

constexpr Signature SignatureOf(std::string_view text) {
  Signature signature;
  signature.name = Take(&text, ':');
  Role role = Role::kInput;
  for (text = text.substr(1); !text.empty();) {
    const std::string_view word = Take(&text, ' ');
    const bool optional = word[0] == '?';
    std::string_view listed = optional ? word.substr(1) : word;
    const int group = NumberOfGroup(Take(&listed, '('));
    if (word == "->") {
      role = Role::kOutput;
    } else if (group >= 0) {
      AddGroup(group, optional, listed.substr(0, listed.find(')')), &signature);
    } else {
      AddItem(word, role, &signature);
    }
  }
  CountArguments(&signature);
  FindChoices(&signature);
  return signature;
}

}  // namespace parsing

// Returns the number of an operator in the table.
constexpr int OperatorNumber(std::string_view name) {
  for (int i = 0; i < kNumberOfOperators; ++i) {
    if (parsing::StartsWith(kOperators[i], name) && kOperators[i][name.size()] == ':') return i;
  }
  throw "an operator without a signature";
}

// Returns line i of the table, the groups of state first; null after the last.
constexpr const char *LineOfTable(int i) {
  if (i < kNumberOfGroups) return kGroups[i].data();
  i -= kNumberOfGroups;
  return i < kNumberOfOperators ? kOperators[i].data() : nullptr;
}

template <int kOperator>
constexpr Signature kSignature = parsing::SignatureOf(kOperators[kOperator]);

}  // namespace replay
