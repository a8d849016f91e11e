// A kernel and its arguments, called from Python.
#ifndef MINDSPORE_REPLAY_PYTHON_CALL_H_
#define MINDSPORE_REPLAY_PYTHON_CALL_H_

#include "arrays.h"

namespace replay::python {

using Kernel = int (*)(int, void **, int *, int64_t **, const char **, void *, void *);

template <typename T>
T *At(PyObject *address) {
  return static_cast<T *>(PyLong_AsVoidPtr(address));
}

struct Call {
  PyObject_HEAD Kernel kernel;
  int size;
  void **params;
  int *ndims;
  int64_t **shapes;
  const char **dtypes;
  PyObject *owned;  // the memory of all of these
};

PyObject *NewCall(PyTypeObject *type, PyObject *args, PyObject *) {
  PyObject *kernel, *params, *ndims, *shapes, *dtypes, *owned;
  int size;
  if (!PyArg_ParseTuple(args, "O!iO!O!O!O!O", &PyLong_Type, &kernel, &size, &PyLong_Type, &params, &PyLong_Type, &ndims,
                        &PyLong_Type, &shapes, &PyLong_Type, &dtypes, &owned)) {
    return nullptr;
  }
  auto *self = reinterpret_cast<Call *>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->kernel = reinterpret_cast<Kernel>(PyLong_AsVoidPtr(kernel));
  self->size = size;
  self->params = At<void *>(params);
  self->ndims = At<int>(ndims);
  self->shapes = At<int64_t *>(shapes);
  self->dtypes = At<const char *>(dtypes);
  self->owned = Py_NewRef(owned);
  return reinterpret_cast<PyObject *>(self);
}

void FreeCall(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  Py_DECREF(reinterpret_cast<Call *>(object)->owned);
  type->tp_free(object);
  Py_DECREF(type);
}

// Returns the memory of a C-contiguous array; null with an exception set if there is none.
void *MemoryOf(PyObject *item) {
  if (IsPlain(item)) return PyArray_DATA(Array(item));
  Py_buffer view;
  if (PyObject_GetBuffer(item, &view, PyBUF_C_CONTIGUOUS) != 0) return nullptr;
  void *memory = view.buf;
  PyBuffer_Release(&view);
  return memory;
}

// locate(at, items): points arguments at, at + 1, ... to the memory of these arrays, a tuple or list.
PyObject *Locate(PyObject *object, PyObject *const *args, Py_ssize_t nargs) {
  auto *self = reinterpret_cast<Call *>(object);
  if (nargs != 2 || !(PyTuple_CheckExact(args[1]) || PyList_CheckExact(args[1]))) {
    PyErr_SetString(PyExc_TypeError, "locate(at, items) needs an int and a tuple or list");
    return nullptr;
  }
  const Py_ssize_t at = PyLong_AsSsize_t(args[0]);
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(args[1]);
  if (at == -1 && PyErr_Occurred()) return nullptr;
  if (at < 0 || at + count > self->size) {
    PyErr_Format(PyExc_IndexError, "arguments %zd to %zd of %d", at, at + count, self->size);
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    void *memory = MemoryOf(PySequence_Fast_GET_ITEM(args[1], i));
    if (memory == nullptr) return nullptr;
    self->params[at + i] = memory;
  }
  Py_RETURN_NONE;
}

int RunKernel(const Call *self) {
  int status;
  Py_BEGIN_ALLOW_THREADS  // a kernel waits for others on the same buffer
      status = self->kernel(self->size, self->params, self->ndims, self->shapes, self->dtypes, nullptr, nullptr);
  Py_END_ALLOW_THREADS return status;
}

// run() -> the kernel's status.
PyObject *Run(PyObject *object, PyObject *) { return PyLong_FromLong(RunKernel(reinterpret_cast<Call *>(object))); }

PyMethodDef call_methods[] = {
    {"locate", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(Locate)), METH_FASTCALL, nullptr},
    {"run", Run, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot call_slots[] = {
    {Py_tp_new, reinterpret_cast<void *>(NewCall)},
    {Py_tp_dealloc, reinterpret_cast<void *>(FreeCall)},
    {Py_tp_methods, call_methods},
    {0, nullptr},
};
PyType_Spec call_spec = {"mindspore_replay._calls.Call", sizeof(Call), 0, Py_TPFLAGS_DEFAULT, call_slots};

// Returns a new reference to an object that is a Call; null with an exception set if it is none.
Call *TakeCall(PyObject *object) {
  if (Py_TYPE(object)->tp_dealloc == FreeCall) return reinterpret_cast<Call *>(Py_NewRef(object));
  PyErr_SetString(PyExc_TypeError, "an argument must be a Call");
  return nullptr;
}

}  // namespace replay::python

#endif  // MINDSPORE_REPLAY_PYTHON_CALL_H_
