// Makes arrays for what a kernel gives.
#pragma once

#include <algorithm>

#include "arrays.h"

namespace replay::python {

// An array is used again as soon as nothing else refers to its memory, neither a Tensor nor an array: a loop that draws
// batches uses the same few. The C library would get memory for large ones from the system at each allocation, which
// costs more than filling it, and for a batch of smaller ones it takes as long as drawing it.
constexpr size_t kMostKept = 4;  // one used by the learner, and some that were drawn ahead
// An array may be in use for ever. So each time that this many calls found all in use, the oldest makes room for a new one.
constexpr size_t kPatience = 64;

// Output(shape, dtype): a function without arguments that makes such arrays; `kept()` returns the number that it keeps.
struct Output {
  static constexpr char kName[] = "mindspore_replay._calls.Output";
  static constexpr char kKind[] = "an Output";

  Form form;
  std::vector<Held> kept;
  size_t misses = 0;

  bool Init(PyObject *args) {
    PyObject *shape, *dtype;
    return PyArg_ParseTuple(args, "O!O", &PyTuple_Type, &shape, &dtype) && form.Init(shape, dtype);
  }

  // Returns an array with any contents; null with an exception set if there is no memory.
  PyObject *Make() {
    for (auto at = kept.begin(); at != kept.end();) {
      if (Py_REFCNT(at->get()) > 1) {
        ++at;
      } else if (IsAsMade(at->get())) {
        return Py_NewRef(at->get());
      } else {
        at = kept.erase(at);
      }
    }
    PyObject *made = form.Make();
    if (made == nullptr) return nullptr;
    if (kept.size() == kMostKept) {
      if (++misses % kPatience != 0) return made;
      kept.erase(kept.begin());
    }
    kept.push_back(NewHeld(made));
    return made;
  }

  static PyObject *Call(PyObject *object, PyObject *, PyObject *) { return ValueOf<Output>(object)->Make(); }

  static PyObject *CountKept(PyObject *object, PyObject *) {
    return PyLong_FromSize_t(ValueOf<Output>(object)->kept.size());
  }

  static inline PyMethodDef methods[] = {{"kept", CountKept, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};

 private:
  // True unless somebody has changed what an array is, for example its shape in place.
  bool IsAsMade(PyObject *object) const {
    PyArrayObject *array = Array(object);
    return PyArray_ISCARRAY(array) && PyArray_DESCR(array) == form.dtype() &&
           PyArray_NDIM(array) == static_cast<int>(form.shape.size()) &&
           std::equal(form.shape.begin(), form.shape.end(), PyArray_DIMS(array));
  }
};

}  // namespace replay::python
