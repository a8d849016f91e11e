// The arguments of a custom operator, in the form MindSpore passes them.
#pragma once

#include <cstdint>

#include "core/portable.h"

namespace replay {

// A dtype allowed for columns, by its MindSpore name; a GPU uses its number.
struct DtypeName {
  const char *name;
  int64_t bytes;
};
constexpr DtypeName kDtypes[] = {{"float32", 4}, {"int32", 4},   {"uint8", 1},   {"bool", 1},  {"int64", 8},
                                 {"float64", 8}, {"float16", 2}, {"int8", 1},    {"int16", 2}, {"uint16", 2},
                                 {"uint32", 4},  {"uint64", 8},  {"bfloat16", 2}};

// Dtype numbers, in the order of kDtypes.
enum Dtype : int32_t {
  kNoDtype = -1,
  kFloat32 = 0,
  kInt32 = 1,
  kUint8 = 2,
  kBool = 3,
  kInt64 = 4,
  kFloat64 = 5,
  kFloat16 = 6,
  kInt8 = 7,
  kInt16 = 8,
  kUint16 = 9,
  kUint32 = 10,
  kUint64 = 11,
  kBfloat16 = 12,
};

// True if `name` begins with `start`, its closing zero not counted; `rest` then points behind it.
template <size_t kSize>
bool Takes(const char *name, const char (&start)[kSize], const char **rest) {
  for (size_t i = 0; i + 1 < kSize; ++i) {
    if (name[i] != start[i]) return false;
  }
  *rest = name + kSize - 1;
  return true;
}

template <size_t kSize>
bool IsName(const char *name, const char (&wanted)[kSize]) {
  const char *rest;
  return Takes(name, wanted, &rest) && *rest == 0;
}

// Returns the dtype whose name ends with these digits, out of those with 8, 16, 32 and 64 bits.
inline Dtype DtypeOfBits(const char *digits, Dtype bits8, Dtype bits16, Dtype bits32, Dtype bits64) {
  switch (digits[0]) {
    case '8': return digits[1] == 0 ? bits8 : kNoDtype;
    case '1': return IsName(digits + 1, "6") ? bits16 : kNoDtype;
    case '3': return IsName(digits + 1, "2") ? bits32 : kNoDtype;
    case '6': return IsName(digits + 1, "4") ? bits64 : kNoDtype;
    default: return kNoDtype;
  }
}

inline Dtype DtypeOf(const char *dtype) {
  const char *rest;
  switch (dtype[0]) {
    case 'f':
      return Takes(dtype, "float", &rest) ? DtypeOfBits(rest, kNoDtype, kFloat16, kFloat32, kFloat64) : kNoDtype;
    case 'i': return Takes(dtype, "int", &rest) ? DtypeOfBits(rest, kInt8, kInt16, kInt32, kInt64) : kNoDtype;
    case 'u': return Takes(dtype, "uint", &rest) ? DtypeOfBits(rest, kUint8, kUint16, kUint32, kUint64) : kNoDtype;
    case 'b': return IsName(dtype, "bool") ? kBool : IsName(dtype, "bfloat16") ? kBfloat16 : kNoDtype;
    default: return kNoDtype;
  }
}

// Returns the bytes of one element, 0 for a dtype that no column may have.
inline int64_t ElementBytes(const char *dtype) {
  const Dtype number = DtypeOf(dtype);
  return number == kNoDtype ? 0 : kDtypes[number].bytes;
}

class Arguments {
 public:
  Arguments(int size, void **params, int *ndims, int64_t **shapes, const char **dtypes)
      : size_(size), params_(params), ndims_(ndims), shapes_(shapes), dtypes_(dtypes) {}

  // The same arguments at other addresses.
  Arguments In(void **params) const { return {size_, params, ndims_, shapes_, dtypes_}; }

  int size() const { return size_; }
  void **params() const { return params_; }
  int ndim(int i) const { return ndims_[i]; }
  const char *dtype(int i) const { return dtypes_[i]; }
  int64_t *shape(int i) const { return shapes_[i]; }
  int64_t dim(int i, int axis) const { return shapes_[i][axis]; }

  template <typename T>
  T *data(int i) const {
    return static_cast<T *>(params_[i]);
  }

  int64_t elements(int i) const {
    if (ndims_[i] == 1) return shapes_[i][0];
    int64_t n = 1;
    for (int axis = 0; axis < ndims_[i]; ++axis) n *= shapes_[i][axis];
    return n;
  }

  // Returns the elements of one row of a column.
  int64_t RowElements(int column) const {
    int64_t n = 1;
    for (int axis = 1; axis < ndims_[column]; ++axis) n *= shapes_[column][axis];
    return n;
  }

  // Returns the number of leading arguments that have an axis: the columns of the buffer.
  int LeadingColumns() const {
    int k = 0;
    while (k < size_ && ndims_[k] > 0) ++k;
    return k;
  }

  // Returns the rows of a column that argument i holds: 1 for the column's shape without its capacity axis, n with one
  // more axis, -1 if the shape does not fit.
  int64_t RowsOf(int i, int column) const {
    const int extra = ndims_[i] - ndims_[column] + 1;
    if (extra != 0 && extra != 1) return -1;
    for (int axis = 1; axis < ndims_[column]; ++axis) {
      if (dim(i, axis - 1 + extra) != dim(column, axis)) return -1;
    }
    return extra == 0 ? 1 : dim(i, 0);
  }

 private:
  int size_;
  void **params_;
  int *ndims_;
  int64_t **shapes_;
  const char **dtypes_;
};

// A bool column is stored as uint8, so the two count as equal.
REPLAY_BOTH inline bool SameDtype(Dtype a, Dtype b) {
  return a == b || ((a == kBool || a == kUint8) && (b == kBool || b == kUint8));
}
inline bool SameDtype(const char *a, const char *b) { return a == b || SameDtype(DtypeOf(a), DtypeOf(b)); }

// Returns element i of an array of integers.
REPLAY_BOTH inline int64_t IntegerAt(const char *data, Dtype dtype, int64_t i) {
  switch (dtype) {
    case kInt32: return reinterpret_cast<const int32_t *>(data)[i];
    case kUint32: return reinterpret_cast<const uint32_t *>(data)[i];
    case kInt16: return reinterpret_cast<const int16_t *>(data)[i];
    case kUint16: return reinterpret_cast<const uint16_t *>(data)[i];
    case kInt8: return reinterpret_cast<const int8_t *>(data)[i];
    case kUint8:
    case kBool: return reinterpret_cast<const uint8_t *>(data)[i];
    default: return reinterpret_cast<const int64_t *>(data)[i];
  }
}

REPLAY_BOTH inline bool IsFloat(Dtype dtype) {
  return dtype == kFloat32 || dtype == kFloat64 || dtype == kFloat16 || dtype == kBfloat16;
}

}  // namespace replay
