// Rows that are kept compressed, each as a bytes object in an array of objects. Row 0 is all zeros and is not stored.
#pragma once

#include <atomic>
#include <memory>
#include <unordered_map>

#include "arrays.h"
#include "core/parallel.h"

namespace replay::python {

// LZ4_compress_default and LZ4_decompress_safe: they return the bytes written, and 0 or less if they failed.
using Codec = int (*)(const char *from, char *to, int bytes, int room);

inline Codec CodecAt(PyObject *address) { return reinterpret_cast<Codec>(PyLong_AsVoidPtr(address)); }

// The most bytes of a compressed row, as the format has it.
constexpr int64_t MostCompressed(int64_t bytes) { return bytes + bytes / 255 + 16; }

constexpr int64_t kMostRowBytes = 0x7E000000;  // LZ4_MAX_INPUT_SIZE

// The bytes of an object whose rows are compressed: what comes before them, and a zero behind them.
inline int64_t BytesOf(PyObject *object) {
  constexpr int64_t kAround = sizeof(PyVarObject) + sizeof(Py_hash_t) + 1;
  return object != nullptr && PyBytes_CheckExact(object) ? kAround + PyBytes_Size(object) : 0;
}

// The stored rows, and numbers of some of them.
struct Numbered {
  PyObject **rows;
  int64_t size;
  const int64_t *numbers;
  int64_t n;
  char *memory;  // of the uncompressed rows with these numbers
  int64_t row_bytes;

  // Returns false with an exception set unless the arrays fit each other.
  bool Take(PyObject *stored, PyObject *numbered, PyObject *memory_of) {
    if (!IsPlain(stored) || PyArray_TYPE(Array(stored)) != NPY_OBJECT || !IsPlain(numbered) ||
        PyArray_TYPE(Array(numbered)) != NPY_INT64 || !IsPlain(memory_of) || PyArray_SIZE(Array(numbered)) < 1 ||
        PyArray_NBYTES(Array(memory_of)) % PyArray_SIZE(Array(numbered)) != 0) {
      PyErr_SetString(PyExc_TypeError, "compressed rows need plain arrays: of objects, of int64, and of rows");
      return false;
    }
    rows = static_cast<PyObject **>(PyArray_DATA(Array(stored)));
    size = PyArray_SIZE(Array(stored));
    numbers = static_cast<const int64_t *>(PyArray_DATA(Array(numbered)));
    n = PyArray_SIZE(Array(numbered));
    memory = PyArray_BYTES(Array(memory_of));
    row_bytes = PyArray_NBYTES(Array(memory_of)) / n;
    if (row_bytes <= kMostRowBytes) return true;
    PyErr_SetString(PyExc_ValueError, "a row is too large to be compressed");
    return false;
  }
};

// compress(codec, stored, numbers, rows): compresses rows and stores them under these numbers. Returns by how many bytes
// the stored rows have grown.
inline PyObject *CompressRows(PyObject *, PyObject *args) {
  PyObject *address, *stored, *numbers, *rows;
  Numbered to;
  if (!PyArg_ParseTuple(args, "O!OOO", &PyLong_Type, &address, &stored, &numbers, &rows) ||
      !to.Take(stored, numbers, rows)) {
    return nullptr;
  }
  const Codec codec = CodecAt(address);
  const int64_t room = std::min<int64_t>(MostCompressed(to.row_bytes), INT32_MAX);
  const std::unique_ptr<char[]> scratch(new char[room]);
  int64_t grown = 0;
  for (int64_t i = 0; i < to.n; ++i) {
    const int64_t number = to.numbers[i];
    int bytes = 0;
    if (number > 0 && number < to.size) {
      Py_BEGIN_ALLOW_THREADS bytes =
          codec(to.memory + i * to.row_bytes, scratch.get(), static_cast<int>(to.row_bytes), static_cast<int>(room));
      Py_END_ALLOW_THREADS
    }
    if (bytes <= 0)
      return PyErr_Format(PyExc_ValueError, "row %lld cannot be compressed", static_cast<long long>(number));
    PyObject *row = PyBytes_FromStringAndSize(scratch.get(), bytes);
    if (row == nullptr) return nullptr;
    const Held old(std::exchange(to.rows[number], row));
    grown += BytesOf(row) - BytesOf(old.get());
  }
  return PyLong_FromLongLong(grown);
}

// Rows to decompress and to copy. Each row is decompressed once; a number that comes again is a copy.
struct Decompression {
  struct Job {
    const char *from;
    int64_t from_bytes;
    char *to;
    int64_t bytes;
  };
  std::vector<Job> jobs, copies;
  std::unordered_map<int64_t, const char *> done;
  int64_t bytes = 0;

  // Adds rows. Returns false with an exception set if one is not stored.
  bool Add(const Numbered &of) {
    char *to = of.memory;
    for (int64_t i = 0; i < of.n; ++i, to += of.row_bytes) {
      const int64_t number = of.numbers[i];
      if (number == 0) {
        std::memset(to, 0, static_cast<size_t>(of.row_bytes));
        continue;
      }
      PyObject *row = number > 0 && number < of.size ? of.rows[number] : nullptr;
      if (row == nullptr || !PyBytes_CheckExact(row)) {
        PyErr_Format(PyExc_RuntimeError, "compressed row %lld is not stored", static_cast<long long>(number));
        return false;
      }
      const auto [before, is_new] = done.try_emplace(number, to);
      if (!is_new) {
        copies.push_back({before->second, of.row_bytes, to, of.row_bytes});
      } else {
        jobs.push_back({PyBytes_AsString(row), PyBytes_Size(row), to, of.row_bytes});
        bytes += of.row_bytes;
      }
    }
    return true;
  }

  // Returns false if a row is damaged.
  bool Run(Codec codec) const {
    std::atomic<bool> whole{true};
    InParallel(static_cast<int64_t>(jobs.size()), bytes, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Job &job = jobs[static_cast<size_t>(i)];
        const int written = codec(job.from, job.to, static_cast<int>(job.from_bytes), static_cast<int>(job.bytes));
        if (written != job.bytes) whole = false;
      }
    });
    for (const Job &copy : copies) std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
    return whole;
  }
};

// decompress(codec, stored, parts): for each part, a pair of numbers and an array, fills the array with these rows.
inline PyObject *DecompressRows(PyObject *, PyObject *args) {
  PyObject *address, *stored, *parts;
  if (!PyArg_ParseTuple(args, "O!OO!", &PyLong_Type, &address, &stored, &PyTuple_Type, &parts)) return nullptr;
  Decompression work;
  for (Py_ssize_t i = 0; i < PyTuple_Size(parts); ++i) {
    PyObject *numbers, *rows;
    Numbered of;
    if (!PyArg_ParseTuple(PyTuple_GetItem(parts, i), "OO", &numbers, &rows) || !of.Take(stored, numbers, rows) ||
        !work.Add(of)) {
      return nullptr;
    }
  }
  bool whole;
  Py_BEGIN_ALLOW_THREADS  // the buffer's lock keeps the rows
      whole = work.Run(CodecAt(address));
  Py_END_ALLOW_THREADS if (whole) Py_RETURN_NONE;
  PyErr_SetString(PyExc_RuntimeError, "a compressed row is damaged: it does not decompress to a row");
  return nullptr;
}

}  // namespace replay::python
