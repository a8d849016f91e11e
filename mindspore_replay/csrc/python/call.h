// A kernel and its arguments, called from Python.
#pragma once

#include "binding.h"
#include "object.h"

#include <cstdint>

namespace replay::python {

using Kernel = int (*)(int, void **, int *, int64_t **, const char **, void *, void *);

// Call(kernel, size, params, ndims, shapes, dtypes, owned): the addresses of a kernel and of its arguments, and what
// owns the memory of these.
struct Call {
  static constexpr char kName[] = "mindspore_replay._calls.Call";
  static constexpr char kKind[] = "a Call";

  Kernel kernel;
  int size;
  void **params;
  int *ndims;
  int64_t **shapes;
  const char **dtypes;
  Held owned;
  mutable Caller caller;

  bool Init(PyObject *args) {
    unsigned long long at[5];
    PyObject *owner;
    if (!PyArg_ParseTuple(args, "KiKKKKO", &at[0], &size, &at[1], &at[2], &at[3], &at[4], &owner)) return false;
    kernel = reinterpret_cast<Kernel>(at[0]);
    params = reinterpret_cast<void **>(at[1]);
    ndims = reinterpret_cast<int *>(at[2]);
    shapes = reinterpret_cast<int64_t **>(at[3]);
    dtypes = reinterpret_cast<const char **>(at[4]);
    owned = NewHeld(owner);
    return true;
  }

  // Returns false with an exception set unless it has arguments `at` to `at + count`.
  bool Has(int at, Py_ssize_t count = 1) const {
    if (at >= 0 && at + count <= size) return true;
    PyErr_Format(PyExc_IndexError, "arguments %d to %zd of %d", at, at + count, size);
    return false;
  }

  // Points an argument to a vector.
  void Bind(int at, void *memory, int64_t n) const {
    params[at] = memory;
    SetSize(at, 0, n);
  }

  void SetSize(int at, int axis, int64_t size) const {
    if (std::exchange(shapes[at][axis], size) != size) caller.bound = false;
  }

  // Returns the kernel's status.
  int Run() const {
    int status;
    Py_BEGIN_ALLOW_THREADS  // a kernel waits for others on the same buffer
        status = kernel(size, params, ndims, shapes, dtypes, &caller, nullptr);
    Py_END_ALLOW_THREADS return status;
  }

  static PyObject *RunFromPython(PyObject *object, PyObject *) { return PyLong_FromLong(ValueOf<Call>(object)->Run()); }

  static inline PyMethodDef methods[] = {{"run", RunFromPython, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
};

}  // namespace replay::python
