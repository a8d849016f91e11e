// The arguments of a custom operator, with the checks that every kernel makes before it touches memory.
#ifndef MINDSPORE_REPLAY_ARGUMENTS_H_
#define MINDSPORE_REPLAY_ARGUMENTS_H_

#include <cstdint>
#include <cstring>

namespace replay {

// A dtype that a column may have, in the words of MindSpore; a GPU knows it by its number.
struct DtypeName {
  const char *name;
  int64_t bytes;
};
constexpr DtypeName kDtypes[] = {
    {"float32", 4}, {"int32", 4},  {"uint8", 1},   {"bool", 1},    {"int64", 8},   {"float64", 8},  {"float16", 2},
    {"int8", 1},    {"int16", 2},  {"uint16", 2},  {"uint32", 4},  {"uint64", 8},  {"bfloat16", 2}};

// Numbers of dtypes, in the order of kDtypes.
enum Dtype : int32_t {
  kNoDtype = -1,
  kFloat32 = 0,
  kInt32 = 1,
  kUint8 = 2,
  kBool = 3,
  kFloat64 = 5,
  kFloat16 = 6,
  kBfloat16 = 12,
};

inline Dtype DtypeOf(const char *dtype) {
  for (int32_t i = 0; i < static_cast<int32_t>(sizeof(kDtypes) / sizeof(kDtypes[0])); ++i) {
    const char *name = kDtypes[i].name;
    if (dtype[0] == name[0] && std::strcmp(dtype, name) == 0) return static_cast<Dtype>(i);
  }
  return kNoDtype;
}

// Bytes of one element, 0 for a dtype that no column may have.
inline int64_t ElementBytes(const char *dtype) {
  const Dtype number = DtypeOf(dtype);
  return number == kNoDtype ? 0 : kDtypes[number].bytes;
}

// The same for a dtype that a column may have, from the last character of its name, which is quicker to find.
inline int64_t BytesByName(const char *dtype) {
  const size_t length = std::strlen(dtype);
  switch (length == 0 ? '8' : dtype[length - 1]) {
    case '4': return 8;
    case '2': return 4;
    case '6': return 2;
    default: return 1;
  }
}

class Arguments {
 public:
  Arguments(int size, void **params, int *ndims, int64_t **shapes, const char **dtypes)
      : size_(size), params_(params), ndims_(ndims), shapes_(shapes), dtypes_(dtypes) {}

  // The same in other memory.
  Arguments In(void **params) const { return {size_, params, ndims_, shapes_, dtypes_}; }

  int size() const { return size_; }
  int ndim(int i) const { return ndims_[i]; }
  const char *dtype(int i) const { return dtypes_[i]; }
  int64_t dim(int i, int axis) const { return shapes_[i][axis]; }

  template <typename T>
  T *data(int i) const {
    return static_cast<T *>(params_[i]);
  }

  int64_t elements(int i) const {
    int64_t n = 1;
    for (int axis = 0; axis < ndims_[i]; ++axis) n *= shapes_[i][axis];
    return n;
  }

  // Whether argument i has this dtype and this number of elements.
  bool Is(int i, const char *dtype, int64_t n) const { return std::strcmp(dtypes_[i], dtype) == 0 && elements(i) == n; }

  // Whether argument i is a column: a known dtype and at least a capacity axis.
  bool IsColumn(int i) const { return ndims_[i] >= 1 && dim(i, 0) >= 1 && ElementBytes(dtypes_[i]) > 0; }

  int64_t Bytes(int i) const { return elements(i) * BytesByName(dtypes_[i]); }

  int64_t RowBytes(int column) const { return elements(column) / dim(column, 0) * ElementBytes(dtypes_[column]); }

  // How many columns come before the first argument that is one number of this dtype.
  int LeadingColumns(const char *dtype) const {
    int k = 0;
    while (k < size_ && !(ndims_[k] == 0 && Is(k, dtype, 1))) ++k;
    return k;
  }

  // Number j of argument i, which holds integers.
  int64_t Integer(int i, int64_t j) const {
    const int64_t bytes = ElementBytes(dtypes_[i]);
    if (bytes == 8) return data<int64_t>(i)[j];
    const bool is_signed = dtypes_[i][0] == 'i';
    if (bytes == 4) return is_signed ? data<int32_t>(i)[j] : static_cast<int64_t>(data<uint32_t>(i)[j]);
    if (bytes == 2) return is_signed ? data<int16_t>(i)[j] : data<uint16_t>(i)[j];
    return is_signed ? data<int8_t>(i)[j] : data<uint8_t>(i)[j];
  }

  bool IsFloat(int i) const { return std::strstr(dtypes_[i], "float") != nullptr; }

  // How many rows of a column argument i holds: 1 for the column's shape without its capacity axis, n with one more
  // axis, -1 if dtype or shape do not fit.
  int64_t RowsOf(int i, int column) const {
    const int extra = ndims_[i] - ndims_[column] + 1;
    if ((extra != 0 && extra != 1) || !SameDtype(i, column)) return -1;
    for (int axis = 1; axis < ndims_[column]; ++axis) {
      if (dim(i, axis - 1 + extra) != dim(column, axis)) return -1;
    }
    return extra == 0 ? 1 : dim(i, 0);
  }

  // Whether two arguments have one dtype; a bool column is kept as uint8, so each stands for the other.
  bool SameDtype(int i, int j) const { return std::strcmp(Stored(dtypes_[i]), Stored(dtypes_[j])) == 0; }

 private:
  static const char *Stored(const char *dtype) { return std::strcmp(dtype, "bool") == 0 ? "uint8" : dtype; }

  int size_;
  void **params_;
  int *ndims_;
  int64_t **shapes_;
  const char **dtypes_;
};

}  // namespace replay

#endif  // MINDSPORE_REPLAY_ARGUMENTS_H_
