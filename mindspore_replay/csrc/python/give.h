// Calls a kernel with new arrays for what it gives.
#ifndef MINDSPORE_REPLAY_PYTHON_GIVE_H_
#define MINDSPORE_REPLAY_PYTHON_GIVE_H_

#include "call.h"
#include "guard.h"
#include "output.h"

namespace replay::python {

struct Give {
  PyObject_HEAD Guard *guard;
  Call *call;
  PyObject *outputs;  // a tuple
  PyObject *share;
  int at;
};

// Returns a tuple of the kernel's outputs, without the first `skip`, or the status of a kernel that failed.
PyObject *Given(const Give *self, Py_ssize_t skip) {
  const Py_ssize_t count = PyTuple_GET_SIZE(self->outputs);
  const Held arrays(PyTuple_New(count));
  if (arrays.get() == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *made = MakeArray(reinterpret_cast<Output *>(PyTuple_GET_ITEM(self->outputs, i)));
    if (made == nullptr) return nullptr;
    PyTuple_SET_ITEM(arrays.get(), i, made);
    self->call->params[self->at + i] = PyArray_DATA(Array(made));
  }
  const int status = RunKernel(self->call);
  if (status != 0) return PyLong_FromLong(status);
  Held given(PyTuple_New(count - skip));
  if (given.get() == nullptr) return nullptr;
  for (Py_ssize_t i = skip; i < count; ++i) {
    PyObject *made = PyTuple_GET_ITEM(arrays.get(), i);
    PyObject *shared = self->share == Py_None ? Py_NewRef(made) : PyObject_CallOneArg(self->share, made);
    if (shared == nullptr) return nullptr;
    PyTuple_SET_ITEM(given.get(), i - skip, shared);
  }
  return given.Release();
}

// now(skip): runs the kernel and returns a tuple of its outputs without the first `skip`, converted by `share`. Returns
// the kernel's status if it failed, and -1 if the guard lets no call in.
PyObject *GiveNow(PyObject *object, PyObject *skip) {
  const auto *self = reinterpret_cast<const Give *>(object);
  const Py_ssize_t first = PyLong_AsSsize_t(skip);
  if (PyErr_Occurred()) return nullptr;
  if (first < 0 || first > PyTuple_GET_SIZE(self->outputs)) {
    return PyErr_Format(PyExc_IndexError, "there are fewer outputs than %zd", first);
  }
  const Inside inside(self->guard);
  if (inside.ok()) return Given(self, first);
  return PyErr_Occurred() ? nullptr : PyLong_FromLong(-1);
}

bool AreOutputs(const Give *self) {
  const Py_ssize_t count = PyTuple_GET_SIZE(self->outputs);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!IsOutput(PyTuple_GET_ITEM(self->outputs, i))) return false;
  }
  if (self->at >= 0 && self->at + count <= self->call->size) return true;
  PyErr_Format(PyExc_IndexError, "arguments %d to %zd of %d", self->at, self->at + count, self->call->size);
  return false;
}

void FreeGive(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  auto *self = reinterpret_cast<Give *>(object);
  Py_XDECREF(reinterpret_cast<PyObject *>(self->guard));
  Py_XDECREF(reinterpret_cast<PyObject *>(self->call));
  Py_XDECREF(self->share);
  Py_XDECREF(self->outputs);
  type->tp_free(object);
  Py_DECREF(type);
}

// Give(guard, call, at, outputs, share): a guard or None; the kernel; the place of its first output; a tuple of an
// Output for each; and a function that converts an array, or None.
PyObject *NewGive(PyTypeObject *type, PyObject *args, PyObject *) {
  PyObject *guard, *call, *outputs, *share;
  int at;
  if (!PyArg_ParseTuple(args, "OOiO!O", &guard, &call, &at, &PyTuple_Type, &outputs, &share)) return nullptr;
  const Held made(type->tp_alloc(type, 0));
  auto *self = reinterpret_cast<Give *>(made.get());
  if (self == nullptr || !TakeGuard(guard, &self->guard) || (self->call = TakeCall(call)) == nullptr) return nullptr;
  self->share = Py_NewRef(share);
  self->at = at;
  self->outputs = Py_NewRef(outputs);
  return AreOutputs(self) ? Py_NewRef(made.get()) : nullptr;
}

PyMethodDef give_methods[] = {
    {"now", GiveNow, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot give_slots[] = {
    {Py_tp_new, reinterpret_cast<void *>(NewGive)},
    {Py_tp_dealloc, reinterpret_cast<void *>(FreeGive)},
    {Py_tp_methods, give_methods},
    {0, nullptr},
};
PyType_Spec give_spec = {"mindspore_replay._calls.Give", sizeof(Give), 0, Py_TPFLAGS_DEFAULT, give_slots};

}  // namespace replay::python

#endif  // MINDSPORE_REPLAY_PYTHON_GIVE_H_
