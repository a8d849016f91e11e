// A kernel and its arguments, called from Python.
#pragma once

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

  bool Init(PyObject *args) {
    PyObject *addresses[5], *owner;
    if (!PyArg_ParseTuple(args, "O!iO!O!O!O!O", &PyLong_Type, &addresses[0], &size, &PyLong_Type, &addresses[1],
                          &PyLong_Type, &addresses[2], &PyLong_Type, &addresses[3], &PyLong_Type, &addresses[4],
                          &owner)) {
      return false;
    }
    kernel = reinterpret_cast<Kernel>(PyLong_AsVoidPtr(addresses[0]));
    params = static_cast<void **>(PyLong_AsVoidPtr(addresses[1]));
    ndims = static_cast<int *>(PyLong_AsVoidPtr(addresses[2]));
    shapes = static_cast<int64_t **>(PyLong_AsVoidPtr(addresses[3]));
    dtypes = static_cast<const char **>(PyLong_AsVoidPtr(addresses[4]));
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
    shapes[at][0] = n;
  }

  // Returns the kernel's status.
  int Run() const {
    int status;
    Py_BEGIN_ALLOW_THREADS  // a kernel waits for others on the same buffer
        status = kernel(size, params, ndims, shapes, dtypes, nullptr, nullptr);
    Py_END_ALLOW_THREADS return status;
  }

  static PyObject *RunFromPython(PyObject *object, PyObject *) { return PyLong_FromLong(ValueOf<Call>(object)->Run()); }

  static inline PyMethodDef methods[] = {{"run", RunFromPython, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
};

}  // namespace replay::python
