// Powers, for weights of priorities and importance weights. They use only arithmetic on doubles. So the results have
// the same bits on every processor and GPU (with -ffp-contract=off, --fmad=false), and a loop over many numbers is
// compiled to vector instructions (with -fno-trapping-math; `benchmarks/budget.py` notices if not).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/portable.h"

namespace replay {

template <typename To, typename From>
REPLAY_BOTH inline To BitsAs(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits of another size");
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// c[0] + c[1] x + c[2] x^2 + ...
template <int kTerms>
REPLAY_BOTH inline double Polynomial(const double (&c)[kTerms], double x) {
  double sum = c[kTerms - 1];
  for (int i = kTerms - 2; i >= 0; --i) sum = sum * x + c[i];
  return sum;
}

constexpr uint64_t kBitsOfOne = 0x3ff0000000000000;  // bits of 1.0; the exponent is in bits 52 and up

// Both polynomials meet their function at Chebyshev's points; their relative error is 3e-16, apart from rounding.

// Returns the binary logarithm of a normal number above 0.
REPLAY_BOTH inline double BinaryLogarithm(double x) {
  constexpr uint64_t kExponent = 0xfff0000000000000, kRootOfHalf = 0x3fe6a09e667f3bcd;
  constexpr uint64_t kTwoTo52 = 0x4330000000000000;  // with an integer in its lowest bits it is 2^52 and that integer
  // Of atanh(z) / z * 2 / ln 2 in z^2, for z up to (sqrt 2 - 1) / (sqrt 2 + 1).
  constexpr double kTerms[] = {2.885390081777927,   0.9617966939243345, 0.5770780172463286, 0.4121984020482752,
                               0.32061638813224547, 0.2614442493522915, 0.2429160853987535};
  const auto bits = BitsAs<uint64_t>(x);
  const uint64_t shifted = bits + (kBitsOfOne - kRootOfHalf);
  const double exponent = BitsAs<double>((shifted >> 52) | kTwoTo52) - (BitsAs<double>(kTwoTo52) + 1023);
  const auto fraction = BitsAs<double>(bits - (shifted & kExponent) + kBitsOfOne);  // from sqrt 1/2 to sqrt 2
  const double z = (fraction - 1) / (fraction + 1);
  return exponent + z * Polynomial(kTerms, z * z);
}

// Returns 2^x for x from -1000 to 1000.
REPLAY_BOTH inline double PowerOfTwo(double x) {
  constexpr double kRounder = 6755399441055744;  // 1.5 * 2^52: the sum has the integer nearest to x in its lowest bits
  // Of 2^x, for x from -1/2 to 1/2.
  constexpr double kTerms[] = {1.0,
                               0.69314718055995,
                               0.24022650695910097,
                               0.05550410866444772,
                               0.009618129107606888,
                               0.0013333558230164974,
                               0.0001540353044173605,
                               1.5252657260200837e-05,
                               1.321544258792169e-06,
                               1.0208690299958306e-07,
                               7.072585949269223e-09};
  const double whole = x + kRounder;
  const auto scale = BitsAs<double>((BitsAs<uint64_t>(whole) << 52) + kBitsOfOne);
  return Polynomial(kTerms, x - (whole - kRounder)) * scale;
}

// Returns base^exponent, rounded to float32; both are finite and not negative. 0^0 is 1. A subnormal base counts as 0,
// as in MindSpore's threads, which flush subnormals.
REPLAY_BOTH inline float Power(double base, double exponent) {
  const double wanted = exponent * BinaryLogarithm(base);
  const double power = PowerOfTwo(std::max(-1000.0, std::min(wanted, 1000.0)));
  const double of_zero = exponent == 0 ? 1.0 : 0.0;
  return static_cast<float>(base < std::numeric_limits<double>::min() ? of_zero : power);
}

}  // namespace replay
