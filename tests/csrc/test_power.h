// Tests of powers against the C library's, with more bits.
#ifndef MINDSPORE_REPLAY_TESTS_TEST_POWER_H_
#define MINDSPORE_REPLAY_TESTS_TEST_POWER_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "check.h"
#include "core/power.h"
#include "core/random.h"

namespace {

float ExactPower(double base, double exponent) {
  return static_cast<float>(std::pow(static_cast<long double>(base), static_cast<long double>(exponent)));
}

// Bases from 2^-300 to 2^300, half of them from 2^-20 to 2^20; exponents from 0 to 1.
void TestRandomPowers() {
  int64_t different = 0;
  for (uint64_t i = 0; i < 200000; ++i) {
    const int range = i % 2 == 0 ? 300 : 20;
    const double fraction = replay::UnitInterval(replay::RandomBits(1, 3 * i)) + 1;
    const auto scale = static_cast<int>(replay::RandomBits(1, 3 * i + 1) % static_cast<uint64_t>(2 * range)) - range;
    const double base = std::ldexp(fraction, scale);
    const double exponent = replay::UnitInterval(replay::RandomBits(1, 3 * i + 2));
    different += replay::Power(base, exponent) != ExactPower(base, exponent);
  }
  CHECK(different == 0);
}

void TestSpecialPowers() {
  constexpr double kLeast = std::numeric_limits<double>::min();
  CHECK(replay::Power(0, 0) == 1 && replay::Power(0, 0.01) == 0 && replay::Power(0, 1) == 0);
  CHECK(replay::Power(kLeast / 2, 0) == 1 && replay::Power(kLeast / 2, 0.01) == 0);
  CHECK(replay::Power(kLeast, 0.01) == ExactPower(kLeast, 0.01) && replay::Power(kLeast, 1) == 0);
  CHECK(std::isinf(replay::Power(1e300, 1)) && replay::Power(1e300, 0.1) == ExactPower(1e300, 0.1));
  for (const double exponent : {0.0, 0.1, 0.6, 1.0}) CHECK(replay::Power(1, exponent) == 1);
  bool same = true;
  for (float base = 1e-30f; base < 1e30f; base *= 1.37f) {
    same = same && replay::Power(base, 1) == base && replay::Power(base, 0) == 1;
    same = same && replay::Power(base, 0.5) == static_cast<float>(std::sqrt(static_cast<double>(base)));
  }
  CHECK(same);
}

void TestPowers() {
  TestRandomPowers();
  TestSpecialPowers();
}

}  // namespace

#endif  // MINDSPORE_REPLAY_TESTS_TEST_POWER_H_
