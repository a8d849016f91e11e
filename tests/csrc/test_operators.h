// Tests of every operator of the table, on every kind of buffer that it supports: it accepts valid arguments and
// rejects a wrong one before it changes anything.
#ifndef MINDSPORE_REPLAY_TESTS_TEST_OPERATORS_H_
#define MINDSPORE_REPLAY_TESTS_TEST_OPERATORS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "binding.h"
#include "call.h"
#include "check.h"
#include "examples.h"
#include "signatures.h"

namespace {

// Another dtype of the same size.
const char *OtherDtype(const std::string &dtype) {
  const int64_t bytes = replay::ElementBytes(dtype.c_str());
  if (bytes == 8) return dtype == "int64" ? "float64" : "int64";
  if (bytes == 4) return dtype == "int32" ? "float32" : "int32";
  return "int8";
}

// The argument with more (or fewer) rows or elements.
Argument Resized(const Argument &argument, int64_t more) {
  Shape shape = argument.shape.empty() ? Shape{1} : argument.shape;
  shape[0] += more;
  Argument resized = Zeros(argument.dtype.c_str(), std::move(shape));
  std::copy_n(argument.bytes.begin(), std::min(argument.bytes.size(), resized.bytes.size()), resized.bytes.begin());
  return resized;
}

// One operator on one kind of buffer, and wrong values for its arguments.
class WrongArguments {
 public:
  WrongArguments(const replay::Signature &signature, const Groups &groups, Arguments right)
      : signature_(signature), groups_(groups), name_(signature.name), right_(std::move(right)) {}

  void TestAll() {
    for (int i = 0; i < signature_.size; ++i) {
      const replay::Item &item = signature_.items[i];
      if (!right_.Has(item)) continue;
      TestDtypes(item);
      TestSizes(item);
      TestMissing(item);
    }
    TestNumbers();
  }

 private:
  void Refused(const std::string &item, size_t i, const std::function<void(Argument *)> &change) {
    Arguments wrong = right_;
    change(&wrong.All(item)[i]);
    const size_t given = wrong.For(signature_, false).size();
    RefusesArrays(name_, wrong.For(signature_), given, replay::kBadArguments, __LINE__);
  }

  void TestDtypes(const replay::Item &item) {
    if (item.dtype == replay::kOfAnyDtype) return;
    const std::string name(item.name);
    for (size_t i = 0; i < right_.All(name).size(); ++i) {
      for (const char *dtype : {OtherDtype(right_.All(name)[i].dtype), "complex64", ""}) {
        Refused(name, i, [&](Argument *argument) { argument->dtype = dtype; });
      }
    }
  }

  // True if no other item determines the element count of an item.
  bool HasAnySize(const replay::Item &item) {
    const auto variable = static_cast<size_t>(item.extents[0].variable);
    if (item.span != replay::Span::kOne || item.extents[0].variable < 0 || replay::kVariables[variable] == 'p')
      return false;
    int others =
        item.extents[0].variable == replay::kCapacity && right_.Has("columns") && signature_.Find("columns") >= 0;
    for (int i = 0; i < signature_.size; ++i) {
      const replay::Item &other = signature_.items[i];
      if (!right_.Has(std::string(other.name)) || other.name == item.name) continue;
      // Trees of several capacities have the same size.
      others += other.extents[0].variable == item.extents[0].variable;
    }
    return others == 0;
  }

  void TestSizes(const replay::Item &item) {
    const std::string name(item.name);
    if (HasAnySize(item)) return;
    for (size_t i = 0; i < right_.All(name).size(); ++i) {
      for (const int64_t more : {-1, 1}) {
        Refused(name, i, [&](Argument *argument) { *argument = Resized(*argument, more); });
      }
      if (item.span != replay::Span::kRows) continue;
      Refused(name, i, [](Argument *argument) { argument->shape.insert(argument->shape.begin(), 1); });
      Refused(name, i, [](Argument *argument) { argument->shape.push_back(1); });
      Refused(name, i, [](Argument *argument) { *argument = Zeros(argument->dtype.c_str(), {}); });
    }
  }

  // If the only argument of an optional group is missing, the buffer does not have that group.
  void TestMissing(const replay::Item &item) {
    const std::string name(item.name);
    if (item.needs >= 0 && signature_.with_group[item.needs] == 1) return;
    for (size_t i = 0; i < right_.All(name).size(); ++i) {
      Arguments wrong = right_;
      wrong.All(name).erase(wrong.All(name).begin() + static_cast<int64_t>(i));
      RefusesArrays(name_, wrong.For(signature_), wrong.For(signature_, false).size(), replay::kBadArguments, __LINE__);
    }
  }

  // One argument too many, a single one, and none.
  void TestNumbers() {
    const std::vector<Argument *> right = right_.For(signature_);
    const size_t given = right_.For(signature_, false).size();
    Argument more = Int32(0);
    std::vector<Argument *> wrong = right;
    wrong.push_back(&more);
    RefusesArrays(name_, wrong, given, replay::kBadArguments, __LINE__);
    wrong.insert(wrong.end(), 20, &more);
    RefusesArrays(name_, wrong, given, replay::kBadArguments, __LINE__);
    RefusesArrays(name_, {right.front()}, 1, replay::kBadArguments, __LINE__);
    RefusesArrays(name_, {}, 0, replay::kBadArguments, __LINE__);
  }

  const replay::Signature &signature_;
  const Groups &groups_;
  const std::string name_;
  Arguments right_;
};

void TestOperator(const replay::Signature &signature) {
  const std::string name(signature.name);
  const auto example = Examples().find(name);
  if (KernelOf(name) == nullptr || example == Examples().end()) {
    Check(false, ("a kernel and an example of the operator " + name).c_str(), __LINE__);
    return;
  }
  for (const Groups &groups : GroupsOf(signature)) {
    const Arguments right = StateOf(groups).With(example->second(groups));
    Arguments arguments = right;
    if (!replay::AreOfABuffer(groups.there)) {  // no such buffers
      Refuses(name, right, [](Arguments &) {}, replay::kBadArguments, __LINE__);
      continue;
    }
    Check(Call(name, &arguments) == replay::kOk, ("right arguments of " + name).c_str(), __LINE__);
    WrongArguments(signature, groups, right).TestAll();
  }
}

void TestOperators() {
  for (const replay::Signature &signature : Signatures()) TestOperator(signature);
  Check(Examples().size() == Signatures().size(), "examples of operators in the table", __LINE__);
}

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_TEST_OPERATORS_H_
