// Rows of any length, copied out of arenas and into them.
#pragma once

#include <algorithm>

#include "arrays.h"
#include "core/items.h"
#include "output.h"

namespace replay::python {

// Where rows are: a plain array of references, int64 [..., 2].
struct References {
  const Reference *rows;
  int64_t n = 1;
  int axes;
  const npy_intp *sizes;

  // Returns false with an exception set unless they are such an array, and the arena holds all rows.
  bool Take(PyObject *object, const Arena &arena) {
    if (!IsPlain(object) || PyArray_TYPE(Array(object)) != NPY_INT64 || PyArray_NDIM(Array(object)) < 1 ||
        PyArray_DIM(Array(object), PyArray_NDIM(Array(object)) - 1) != 2) {
      PyErr_SetString(PyExc_TypeError, "references must be a plain array, int64 [..., 2]");
      return false;
    }
    axes = PyArray_NDIM(Array(object)) - 1;
    sizes = PyArray_DIMS(Array(object));
    for (int axis = 0; axis < axes; ++axis) n *= sizes[axis];
    rows = static_cast<const Reference *>(PyArray_DATA(Array(object)));
    if (std::all_of(rows, rows + n, [&arena](const Reference &row) { return arena.Holds(row); })) return true;
    PyErr_SetString(PyExc_RuntimeError, "a reference is damaged: the items of its row are not in the arena");
    return false;
  }
};

// Items(arenas): the items of columns that share their lengths, each a plain array [N, *F].
struct Items {
  static constexpr char kName[] = "mindspore_replay._calls.Items";

  bool Init(PyObject *args) {
    PyObject *arenas;
    if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &arenas)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_Size(arenas); ++i) {
      PyObject *array = PyTuple_GetItem(arenas, i);
      if (!IsPlain(array) || PyArray_NDIM(Array(array)) < 1 || PyArray_DIM(Array(array), 0) < 1 ||
          PyArray_DIM(Array(array), 0) != PyArray_DIM(Array(PyTuple_GetItem(arenas, 0)), 0)) {
        PyErr_SetString(PyExc_TypeError, "arenas must be plain arrays of as many items");
        return false;
      }
      const int64_t items = PyArray_DIM(Array(array), 0);
      columns_.push_back({NewHeld(array), {PyArray_BYTES(Array(array)), items, PyArray_NBYTES(Array(array)) / items}});
    }
    return !columns_.empty();
  }

  // padded(references, most): the lengths of rows, int32 [...], and a tuple of the rows of each column, [..., L, *F]. Rows
  // are cut after L = `most` items; if that is negative, L is the length of the longest.
  PyObject *Padded(PyObject *const *args, Py_ssize_t nargs) {
    References from;
    if (!TakeFrom(args, nargs, 2, &from)) return nullptr;
    int64_t most = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred()) return nullptr;
    if (most < 0) {
      most = 0;
      for (int64_t i = 0; i < from.n; ++i) most = std::max(most, from.rows[i].length);
    }
    const Held lengths(PyArray_SimpleNew(from.axes, from.sizes, NPY_INT32));
    if (lengths.get() == nullptr) return nullptr;
    std::transform(from.rows, from.rows + from.n, static_cast<int32_t *>(PyArray_DATA(Array(lengths.get()))),
                   [most](const Reference &row) { return static_cast<int32_t>(std::min(row.length, most)); });
    std::vector<npy_intp> lead(from.sizes, from.sizes + from.axes);
    lead.push_back(most);
    return Filled(lengths, lead, from.n * most,
                  [&](const Arena &arena, char *rows) { PadRows(arena, from.rows, from.n, most, rows); });
  }

  // packed(references): the offsets of rows, int32 [n + 1], and a tuple of the items of each column, [N, *F].
  PyObject *Packed(PyObject *const *args, Py_ssize_t nargs) {
    References from;
    if (!TakeFrom(args, nargs, 1, &from)) return nullptr;
    npy_intp bounds = from.n + 1;
    const Held offsets(PyArray_SimpleNew(1, &bounds, NPY_INT32));
    if (offsets.get() == nullptr) return nullptr;
    auto *offset = static_cast<int32_t *>(PyArray_DATA(Array(offsets.get())));
    int64_t sum = 0;
    for (int64_t i = 0; i <= from.n; ++i) {
      offset[i] = static_cast<int32_t>(sum);
      if (i < from.n) sum += from.rows[i].length;
    }
    return Filled(offsets, {sum}, sum,
                  [&](const Arena &arena, char *rows) { PackRows(arena, from.rows, from.n, rows, false); });
  }

  // place(column, references, items): stores the items of rows, one behind the other, in a column.
  PyObject *Place(PyObject *const *args, Py_ssize_t nargs) {
    const Py_ssize_t i = nargs == 3 ? PyLong_AsSsize_t(args[0]) : -1;
    References to;
    if (PyErr_Occurred()) return nullptr;
    if (i < 0 || i >= static_cast<Py_ssize_t>(columns_.size()) || !IsPlain(args[2])) {
      return PyErr_Format(PyExc_TypeError, "place(column, references, items) needs a column, and plain arrays");
    }
    const Arena &arena = columns_[static_cast<size_t>(i)].arena;
    if (!to.Take(args[1], arena)) return nullptr;
    int64_t bytes = 0;
    for (int64_t row = 0; row < to.n; ++row) bytes += arena.Bytes(to.rows[row]);
    if (bytes != PyArray_NBYTES(Array(args[2]))) {
      return PyErr_Format(PyExc_ValueError, "the items must be those of the rows");
    }
    PackRows(arena, to.rows, to.n, PyArray_BYTES(Array(args[2])), true);
    Py_RETURN_NONE;
  }

  static inline PyMethodDef methods[] = {
      Method<Items, &Items::Padded>("padded"),
      Method<Items, &Items::Packed>("packed"),
      Method<Items, &Items::Place>("place"),
      {nullptr, nullptr, 0, nullptr},
  };

 private:
  struct Column {
    Held array;
    Arena arena;
    Output output{};          // makes the memory of rows
    npy_intp most_items = 0;  // for which it has room
  };

  bool TakeFrom(PyObject *const *args, Py_ssize_t nargs, Py_ssize_t expected, References *from) const {
    if (nargs == expected) return from->Take(args[0], columns_[0].arena);
    PyErr_Format(PyExc_TypeError, "%zd arguments are needed", expected);
    return false;
  }

  // Returns a tuple of `first`, and of arrays of `items` items, [*lead, *F], which fill(arena, memory) fills.
  template <typename Fill>
  PyObject *Filled(const Held &first, const std::vector<npy_intp> &lead, npy_intp items, const Fill &fill) {
    Held rows(PyTuple_New(static_cast<Py_ssize_t>(columns_.size())));
    if (rows.get() == nullptr) return nullptr;
    std::vector<char *> places;
    for (size_t i = 0; i < columns_.size(); ++i) {
      PyObject *made = Make(&columns_[i], lead, items);
      if (made == nullptr) return nullptr;
      PyTuple_SetItem(rows.get(), static_cast<Py_ssize_t>(i), made);
      places.push_back(PyArray_BYTES(Array(made)));
    }
    Py_BEGIN_ALLOW_THREADS  // the buffer's lock keeps the rows
        for (size_t i = 0; i < columns_.size(); ++i) fill(columns_[i].arena, places[i]);
    Py_END_ALLOW_THREADS return PyTuple_Pack(2, first.get(), rows.get());
  }

  // Returns an array with any contents, in memory that is used again once nothing refers to it.
  static PyObject *Make(Column *column, const std::vector<npy_intp> &lead, npy_intp items) {
    PyArrayObject *arena = Array(column->array.get());
    const npy_intp *sizes = PyArray_DIMS(arena);
    PyObject *dtype = reinterpret_cast<PyObject *>(PyArray_DESCR(arena));
    if (items > column->most_items || column->output.form.shape.empty()) {
      std::vector<npy_intp> shape(sizes, sizes + PyArray_NDIM(arena));
      shape[0] = items;
      column->output = Output{{NewHeld(dtype), shape}, {}, 0};
      column->most_items = items;
    }
    Held memory(column->output.Make());
    if (memory.get() == nullptr) return nullptr;
    std::vector<npy_intp> shape = lead;
    shape.insert(shape.end(), sizes + 1, sizes + PyArray_NDIM(arena));
    Py_INCREF(dtype);  // the array takes it
    Held made(PyArray_NewFromDescr(&PyArray_Type, PyArray_DESCR(arena), static_cast<int>(shape.size()), shape.data(),
                                   nullptr, PyArray_DATA(Array(memory.get())), NPY_ARRAY_CARRAY, nullptr));
    if (made.get() == nullptr || PyArray_SetBaseObject(Array(made.get()), memory.Release()) != 0) return nullptr;
    return made.Release();
  }

  std::vector<Column> columns_;
};

}  // namespace replay::python
