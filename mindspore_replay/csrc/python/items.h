// Rows of any length, copied into an arena and out of it; each function takes the arena, the references of rows, and rows.
#pragma once

#include "arrays.h"
#include "core/items.h"

namespace replay::python {

struct ItemRows {
  Arena arena;
  const Reference *references;
  int64_t n;
  char *memory;
  int64_t bytes;

  // Returns false with an exception set unless the arrays fit each other, and the arena holds all rows.
  bool Take(PyObject *args) {
    PyObject *items, *of_rows, *rows;
    if (!PyArg_ParseTuple(args, "OOO", &items, &of_rows, &rows)) return false;
    if (!IsPlain(items) || PyArray_NDIM(Array(items)) < 1 || PyArray_DIM(Array(items), 0) < 1 || !IsPlain(of_rows) ||
        PyArray_TYPE(Array(of_rows)) != NPY_INT64 || PyArray_NDIM(Array(of_rows)) != 2 ||
        PyArray_DIM(Array(of_rows), 1) != 2 || !IsPlain(rows)) {
      PyErr_SetString(PyExc_TypeError, "rows of any length need plain arrays: an arena, references [n, 2], and rows");
      return false;
    }
    const int64_t all = PyArray_DIM(Array(items), 0);
    arena = {PyArray_BYTES(Array(items)), all, PyArray_NBYTES(Array(items)) / all};
    references = static_cast<const Reference *>(PyArray_DATA(Array(of_rows)));
    n = PyArray_DIM(Array(of_rows), 0);
    memory = PyArray_BYTES(Array(rows));
    bytes = PyArray_NBYTES(Array(rows));
    const auto holds = [this](const Reference &row) { return arena.Holds(row); };
    if (std::all_of(references, references + n, holds)) return true;
    PyErr_SetString(PyExc_RuntimeError, "a reference is damaged: the items of its row are not in the arena");
    return false;
  }

  int64_t Packed() const {
    int64_t sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += arena.Bytes(references[i]);
    return sum;
  }
};

// pad_items: fills rows [n, L, *F].
inline PyObject *PadItems(PyObject *, PyObject *args) {
  ItemRows rows;
  if (!rows.Take(args)) return nullptr;
  const int64_t most = rows.n == 0 ? 0 : rows.bytes / rows.n / rows.arena.item_bytes;
  if (most * rows.n * rows.arena.item_bytes != rows.bytes) {
    PyErr_SetString(PyExc_ValueError, "padded rows must be those of the references, of whole items");
    return nullptr;
  }
  Py_BEGIN_ALLOW_THREADS  // the buffer's lock keeps the rows
      PadRows(rows.arena, rows.references, rows.n, most, rows.memory);
  Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

// pack_items and, with kIn, place_items: rows [N, *F] are filled from the arena, or stored in it.
template <bool kIn>
PyObject *PackItems(PyObject *, PyObject *args) {
  ItemRows rows;
  if (!rows.Take(args)) return nullptr;
  if (rows.Packed() != rows.bytes) {
    PyErr_SetString(PyExc_ValueError, "packed rows must have the lengths of the references");
    return nullptr;
  }
  Py_BEGIN_ALLOW_THREADS PackRows(rows.arena, rows.references, rows.n, rows.memory, kIn);
  Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

}  // namespace replay::python
