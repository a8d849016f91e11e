// What a call from Python holds and waits for.
#ifndef MINDSPORE_REPLAY_PYTHON_GUARD_H_
#define MINDSPORE_REPLAY_PYTHON_GUARD_H_

#include "arrays.h"

namespace replay::python {

struct Guard {
  PyObject_HEAD PyObject *acquire, *release, *wait, *contexts, *context;
  bool watched;  // true if operators of MindSpore may use the buffer's memory, so that calls wait for them
  bool closed;
};

// Guard(lock, wait, contexts): the buffer's lock; a function that waits for MindSpore's work in flight; and the module
// whose `_jit_context` is None unless a function is being traced.
PyObject *NewGuard(PyTypeObject *type, PyObject *args, PyObject *) {
  PyObject *lock, *wait, *contexts;
  if (!PyArg_ParseTuple(args, "OOO", &lock, &wait, &contexts)) return nullptr;
  auto *self = reinterpret_cast<Guard *>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->wait = Py_NewRef(wait);
  self->contexts = Py_NewRef(contexts);
  self->acquire = PyObject_GetAttrString(lock, "acquire");
  self->release = PyObject_GetAttrString(lock, "release");
  self->context = PyUnicode_InternFromString("_jit_context");
  if (self->acquire != nullptr && self->release != nullptr && self->context != nullptr) {
    return reinterpret_cast<PyObject *>(self);
  }
  Py_DECREF(self);
  return nullptr;
}

void FreeGuard(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  auto *self = reinterpret_cast<Guard *>(object);
  for (PyObject *part : {self->acquire, self->release, self->wait, self->contexts, self->context}) Py_XDECREF(part);
  type->tp_free(object);
  Py_DECREF(type);
}

// watch(): from now on calls wait for work in flight.
PyObject *WatchGuard(PyObject *object, PyObject *) {
  reinterpret_cast<Guard *>(object)->watched = true;
  Py_RETURN_NONE;
}

PyObject *IsWatched(PyObject *object, void *) { return PyBool_FromLong(reinterpret_cast<Guard *>(object)->watched); }

// close(): no call goes on from here. The caller holds the lock.
PyObject *CloseGuard(PyObject *object, PyObject *) {
  reinterpret_cast<Guard *>(object)->closed = true;
  Py_RETURN_NONE;
}

PyMethodDef guard_methods[] = {
    {"watch", WatchGuard, METH_NOARGS, nullptr},
    {"close", CloseGuard, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef guard_attributes[] = {
    {"watched", IsWatched, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot guard_slots[] = {
    {Py_tp_new, reinterpret_cast<void *>(NewGuard)},
    {Py_tp_dealloc, reinterpret_cast<void *>(FreeGuard)},
    {Py_tp_methods, guard_methods},
    {Py_tp_getset, guard_attributes},
    {0, nullptr},
};
PyType_Spec guard_spec = {"mindspore_replay._calls.Guard", sizeof(Guard), 0, Py_TPFLAGS_DEFAULT, guard_slots};

// Holds the lock of a guard, which may be absent, while MindSpore has no work in flight on the buffer's memory, or on any
// if it `waits`.
class Inside {
 public:
  explicit Inside(const Guard *guard, bool waits = false) : guard_(guard) {
    if (guard == nullptr) {
      state_ = kIn;
      return;
    }
    const Held context(PyObject_GetAttr(guard->contexts, guard->context));
    if (context.get() == nullptr || context.get() != Py_None) return;
    if (!Call(guard->acquire)) return;
    state_ = kLocked;
    if (!guard->closed && (!(guard->watched || waits) || Call(guard->wait))) state_ = kIn;
  }
  Inside(const Inside &) = delete;
  Inside &operator=(const Inside &) = delete;
  ~Inside() {
    if (guard_ == nullptr || state_ == kOut) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Call(guard_->release);
    PyErr_Restore(type, value, trace);
  }

  // False if a function is being traced or the buffer was closed, or, with an exception set, if waiting failed.
  bool ok() const { return state_ == kIn; }

 private:
  static bool Call(PyObject *function) { return Held(PyObject_CallNoArgs(function)).get() != nullptr; }

  const Guard *guard_;
  enum { kOut, kLocked, kIn } state_ = kOut;
};

// Sets *guard, which is null, to a new reference to a Guard, and leaves it for None; false with an exception set for anything else.
bool TakeGuard(PyObject *object, Guard **guard) {
  if (object == Py_None) return true;
  if (Py_TYPE(object)->tp_dealloc == FreeGuard) {
    *guard = reinterpret_cast<Guard *>(Py_NewRef(object));
    return true;
  }
  PyErr_SetString(PyExc_TypeError, "an argument must be a Guard or None");
  return false;
}

}  // namespace replay::python

#endif  // MINDSPORE_REPLAY_PYTHON_GUARD_H_
