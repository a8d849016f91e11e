// Numbers of Python and NumPy as fields of a row, cast to the column's dtype, as `store/base/casts.py` has it.
#pragma once

#include "arrays.h"

#include <numpy/arrayscalars.h>

#include <cmath>
#include <type_traits>

namespace replay::python {

// The memory of a number.
struct Place {
  char *memory;
  char kind;  // NumPy kind: b, i, u, f; 0 for bfloat16
  int64_t item_bytes;
};

// Bits of the nearest float16, of two equally near ones the even one.
inline uint16_t Float16Bits(double value) {
  constexpr uint64_t kInfinity = 0x7ff0000000000000, kLeastNormal = 0x3f10000000000000, kTooLarge = 0x40effe0000000000;
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const auto sign = static_cast<uint16_t>(bits >> 48 & 0x8000);
  bits &= 0x7fffffffffffffff;
  if (bits > kInfinity) {  // a NaN, which keeps what fits of its payload
    const auto payload = static_cast<uint16_t>(bits >> 42 & 0x3ff);
    return static_cast<uint16_t>(sign | 0x7c00 | (payload == 0 ? 1 : payload));
  }
  if (bits >= kTooLarge) return sign | 0x7c00;
  if (bits < kLeastNormal) return sign | static_cast<uint16_t>(std::nearbyint(std::abs(value) * 0x1p24));
  bits += 0x1ffffffffff + (bits >> 42 & 1);
  return static_cast<uint16_t>(sign | ((bits >> 42) - (uint64_t{1023 - 15} << 10)));
}

inline double Float16Value(uint16_t half) {
  const uint64_t exponent = half >> 10 & 31, mantissa = half & 0x3ff, sign = uint64_t{half} >> 15 << 63;
  if (exponent == 0) return std::copysign(static_cast<double>(mantissa) * 0x1p-24, sign != 0 ? -1.0 : 1.0);
  const uint64_t bits = sign | (exponent == 31 ? 0x7ff : exponent + 1023 - 15) << 52 | mantissa << 42;
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Bits of the nearest bfloat16, of two equally near ones the even one.
inline uint16_t Bfloat16Bits(float value) {
  if (std::isnan(value)) return 0x7fc0;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <typename T>
bool Write(T value, const Place &place) {
  std::memcpy(place.memory, &value, sizeof(T));
  return true;
}

// Writes any number to a column of floats; false if it is one of other numbers.
template <typename T>
bool WriteFloat(T value, const Place &place) {
  if (place.kind == '\0') return Write(Bfloat16Bits(static_cast<float>(value)), place);
  if (place.kind != 'f') return false;
  switch (place.item_bytes) {
    case 2:
      return Write(Float16Bits(std::is_same_v<T, double> ? value : static_cast<float>(value)), place);  // like NumPy
    case 4: return Write(static_cast<float>(value), place);
    default: return Write(static_cast<double>(value), place);
  }
}

// Writes an int to a column of `To`; false if it is out of range.
template <typename To, typename T>
bool WriteInRange(T value, const Place &place) {
  const auto cast = static_cast<To>(value);
  return static_cast<T>(cast) == value && (cast < 0) == (value < 0) && Write(cast, place);
}

template <typename T>
bool WriteInt(T value, const Place &place) {
  if (place.kind == 'b') return (value == 0 || value == 1) && Write(static_cast<uint8_t>(value), place);
  if (place.kind != 'i' && place.kind != 'u') return WriteFloat(value, place);
  const bool is_signed = place.kind == 'i';
  switch (place.item_bytes) {
    case 1: return is_signed ? WriteInRange<int8_t>(value, place) : WriteInRange<uint8_t>(value, place);
    case 2: return is_signed ? WriteInRange<int16_t>(value, place) : WriteInRange<uint16_t>(value, place);
    case 4: return is_signed ? WriteInRange<int32_t>(value, place) : WriteInRange<uint32_t>(value, place);
    default: return is_signed ? WriteInRange<int64_t>(value, place) : WriteInRange<uint64_t>(value, place);
  }
}

inline bool WriteBool(bool value, const Place &place) { return WriteInt(int64_t{value}, place); }

inline bool WritePythonInt(PyObject *value, const Place &place) {
  int overflow;
  const int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow == 0) return WriteInt(number, place);
  if (overflow < 0) return false;
  const uint64_t large = PyLong_AsUnsignedLongLong(value);
  if (!PyErr_Occurred()) return WriteInt(large, place);
  PyErr_Clear();
  return false;
}

inline bool IsBool(PyObject *value) { return PyBool_Check(value) || Py_IS_TYPE(value, &PyBoolArrType_Type); }

inline bool IsTrue(PyObject *value) { return value == Py_True || value == PyArrayScalar_True; }

// Writes a number of a type of Python or NumPy itself, not of one derived from it; false if it is none that fits the column.
inline bool WriteNumber(PyObject *value, const Place &place) {
  const PyTypeObject *type = Py_TYPE(value);
#define REPLAY_IF(Type, Write) \
  if (type == &Py##Type##ArrType_Type) return Write(reinterpret_cast<Py##Type##ScalarObject *>(value)->obval, place)
  REPLAY_IF(Float, WriteFloat);
  if (type == &PyFloat_Type) return WriteFloat(PyFloat_AsDouble(value), place);
  if (IsBool(value)) return WriteBool(IsTrue(value), place);
  if (type == &PyLong_Type) return WritePythonInt(value, place);
  REPLAY_IF(Long, WriteInt);
  REPLAY_IF(Int, WriteInt);
  REPLAY_IF(Double, WriteFloat);
  REPLAY_IF(Short, WriteInt);
  REPLAY_IF(Byte, WriteInt);
  REPLAY_IF(UByte, WriteInt);
  REPLAY_IF(UShort, WriteInt);
  REPLAY_IF(UInt, WriteInt);
  REPLAY_IF(ULong, WriteInt);
  REPLAY_IF(LongLong, WriteInt);
  REPLAY_IF(ULongLong, WriteInt);
  REPLAY_IF(LongDouble, WriteFloat);
#undef REPLAY_IF
  return type == &PyHalfArrType_Type &&
         WriteFloat(Float16Value(reinterpret_cast<PyHalfScalarObject *>(value)->obval), place);
}

// Writes numbers of one kind one behind the other; false if one does not fit.
template <typename T, typename Write>
bool WriteAll(PyObject *numbers, Place place, const Write &write) {
  const T *from = static_cast<const T *>(PyArray_DATA(Array(numbers)));
  for (npy_intp i = 0; i < PyArray_SIZE(Array(numbers)); ++i, place.memory += place.item_bytes) {
    if (!write(from[i], place)) return false;
  }
  return true;
}

// True for a number, and for a list or tuple, possibly nested, of numbers only.
inline bool AreNumbers(PyObject *value) {
  if (!IsListOrTuple(value)) {
    return PyFloat_Check(value) || PyLong_Check(value) || PyArray_IsScalar(value, Number) || IsBool(value);
  }
  for (Py_ssize_t i = 0; i < SizeOf(value); ++i) {
    if (!AreNumbers(ItemOf(value, i))) return false;
  }
  return true;
}

}  // namespace replay::python
