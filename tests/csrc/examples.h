// A valid call of every operator of the table, for every kind of buffer.
#ifndef MINDSPORE_REPLAY_TESTS_EXAMPLES_H_
#define MINDSPORE_REPLAY_TESTS_EXAMPLES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "binding.h"
#include "call.h"
#include "test_row_state.h"

namespace {

// The groups of state that a buffer has, by their numbers in the table.
struct Groups {
  bool there[replay::kNumberOfGroups] = {};

  bool Reservoir() const { return there[replay::kReservoirGroup]; }
  bool RowState() const { return there[replay::kRowStateGroup]; }
  bool Time() const { return there[replay::kEpisodesGroup]; }
  bool Versions() const { return there[replay::kVersionsGroup]; }
  bool Epochs() const { return there[replay::kEpochsGroup]; }
};

// All combinations of groups that a signature allows, even if there are no such buffers.
std::vector<Groups> GroupsOf(const replay::Signature &signature) {
  std::vector<Groups> all;
  for (int choice = 0; choice < 1 << replay::kNumberOfGroups; ++choice) {
    Groups groups;
    bool may_be = true;
    for (int group = 0; group < replay::kNumberOfGroups; ++group) {
      groups.there[group] = choice >> group & 1;
      may_be = may_be && (signature.optional[group] || signature.required[group] == groups.there[group]);
    }
    if (may_be) all.push_back(groups);
  }
  return all;
}

// Four rows with serials 6 to 9 of 10, in order in slots 2, 3, 0, 1, in a reservoir in slots 0 to 3. In time they are
// the first of a running episode; windows start at all but the last.
Arguments StateOf(const Groups &groups) {
  Arguments state = {
      {"columns",
       {Make<float>("float32", {4, 2}, {8, 8, 9, 9, 6, 6, 7, 7}), Make<uint8_t>("uint8", {4}, {0, 1, 1, 0})}},
      {"head", Int32(groups.Reservoir() ? 0 : 2)},
      {"count", Int32(4)},
      {"serials", Int64({10, 6})},
      {"updates", Int64({6, 5})},
      {"random_state", Int64({1, 0})}};
  if (groups.Reservoir()) state["row_serials"] = Int64({6, 7, 8, 9});
  if (groups.RowState()) {
    state = state.With({{"priorities", Floats({3, 1, 2, 4})},
                        {"use_counts", Ints({0, 1, 0, 2})},
                        {"insertion_clocks", Int64({3, 5, 1, 2})},
                        {"weights", Doubles(FreshTree({3, 0, 2, 4}))},
                        {"max_priority", Make<float>("float32", {}, {4})},
                        {"clock", Int64({5, 6, 0})},
                        {"counts", Int64({100, 10, 20, 30, 40})},
                        {"row_rule", Doubles({1, 0, 0, 0, 1})}});
  }
  if (groups.Time()) {
    state = state.With({{"steps", Int64({2, 3, 0, 1})},
                        {"flags", Flags({0, 0, 0, 0})},
                        {"window_rule", Int64({0, 2, 1, 1, 1, 0, -1, 0})}});
  }
  if (groups.Epochs()) state = state.With({{"epoch", Int64({0, 0, 0, 0, 0})}, {"epoch_rule", Int64({0, 0, 1})}});
  return state;
}

Item ThreeRows() { return {Make<float>("float32", {3, 2}, {5, 5, 4, 4, 3, 3}), Make<uint8_t>("bool", {3}, {1, 0, 1})}; }

using Example = std::function<Arguments(const Groups &)>;

// Inputs and outputs of each operator, without the state.
const std::map<std::string, Example> &Examples() {
  static const std::map<std::string, Example> examples = {
      {"insert",
       [](const Groups &groups) {
         Arguments arguments = {{"rows", ThreeRows()}, {"first", One("int64")}};
         if (groups.RowState()) arguments["priority"] = Floats({0.5f, 7, 3});
         if (groups.Time()) arguments["ends"] = Flags({0, 1, 0});
         if (groups.Versions())
           arguments =
               arguments.With({{"version", Int64({5, 0, 3})}, {"max_staleness", Int64({groups.Reservoir() ? -1 : 4})}});
         return arguments;
       }},
      {"update",
       [](const Groups &groups) {
         Arguments arguments = {{"handles", Int64({8, 5, 6})}, {"rows", ThreeRows()}, {"invalid", One("int32")}};
         if (groups.RowState()) arguments["written"] = Int64({0, -1});
         return arguments;
       }},
      {"read", [](const Groups &) { return Arguments{{"index", Int64({0, -1, 2})}, {"rows", ThreeRows()}}; }},
      {"sample",
       [](const Groups &groups) {
         const int64_t draw = groups.Epochs() ? 5 : groups.RowState() ? 2 : 0;
         Arguments arguments = {
             {"plan", PlanOf({draw, 0, 0, 0, 0, 0, 0, 0}, 2, 0.25)},
             {"sample_range", Int64({0, INT64_MAX})},
             {"outputs", {Zeros("int64", {3}), Zeros("float32", {3}), Zeros("float32", {3, 2}), Zeros("bool", {3})}}};
         if (groups.RowState()) arguments = arguments.With({{"beta", Doubles({0.5})}, {"given_beta", Doubles({1})}});
         if (groups.Time()) arguments["powers"] = Doubles({1});
         return arguments;
       }},
      {"sample_groups",
       [](const Groups &) {
         return Arguments{{"options", Int64({1, 0})},
                          {"template", Zeros("int8", {2, 3})},
                          {"mask", Zeros("bool", {2, 3})},
                          {"rows", {Zeros("float32", {2, 3, 2}), Zeros("bool", {2, 3})}}};
       }},
      {"update_priorities",
       [](const Groups &) {
         return Arguments{{"handles", Int64({8, 5, 6})}, {"priority", Floats({5, 9, 1})}, {"invalid", One("int32")}};
       }},
      {"delete", [](const Groups &) { return Arguments{{"handles", Int64({9, 7, 5})}, {"removed", One("int32")}}; }},
      {"advance",
       [](const Groups &groups) {
         return Arguments{
             {"ticks", Int64({2})}, {"max_staleness", Int64({groups.Reservoir() ? -1 : 4})}, {"now", One("int64")}};
       }},
      {"info",
       [](const Groups &) {
         return Arguments{{"handles", Int64({6, 7, 5})},
                          {"priority", Zeros("float32", {3})},
                          {"uses", Zeros("int32", {3})},
                          {"staleness", Zeros("int64", {3})}};
       }},
      {"end_episodes", [](const Groups &) { return Arguments{{"flag", Flags({1})}, {"ended", One("int32")}}; }},
      {"reset", [](const Groups &) { return Arguments{{"stored", One("int32")}}; }},
      {"sums",
       [](const Groups &) {
         return Arguments{{"ranges", Make<int64_t>("int64", {2, 2}, {0, 3, -1, 9})}, {"sums", Zeros("float64", {2})}};
       }},
      {"summary", [](const Groups &) { return Arguments{{"summary", Zeros("float64", {3})}}; }},
      {"measure",
       [](const Groups &) {
         return Arguments{{"what", Int64({1})}, {"sample_range", Int64({0, 3})}, {"number", Zeros("float64", {1})}};
       }},
  };
  return examples;
}

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_EXAMPLES_H_
