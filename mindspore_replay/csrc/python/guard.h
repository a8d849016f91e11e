// The lock of a call from Python, and the pending work of MindSpore that it waits for.
#pragma once

#include "object.h"

namespace replay::python {

// Guard(lock, wait, contexts, refuse): the buffer's lock; and, for one that MindSpore uses, a function that waits for its work
// in flight; the module whose `_jit_context` is None unless a function is being traced; and a function that raises if this
// thread traces it.
struct Guard {
  static constexpr char kName[] = "mindspore_replay._calls.Guard";
  static constexpr char kKind[] = "a Guard or None";

  Held acquire, release, wait, contexts, context, refuse;
  bool watched = false;  // true if operators of MindSpore may use the buffer's memory, so that calls wait for them
  bool closed = false;

  bool Init(PyObject *args) {
    PyObject *lock, *waiting = nullptr, *module = nullptr, *refusing = nullptr;
    if (!PyArg_ParseTuple(args, "O|OO!O", &lock, &waiting, &PyModule_Type, &module, &refusing)) return false;
    if (refusing != nullptr) {
      wait = NewHeld(waiting);
      refuse = NewHeld(refusing);
      contexts = NewHeld(PyModule_GetDict(module));
    }
    acquire = Held(PyObject_GetAttrString(lock, "acquire"));
    release = Held(PyObject_GetAttrString(lock, "release"));
    context = Held(PyUnicode_InternFromString("_jit_context"));
    return acquire.get() != nullptr && release.get() != nullptr && context.get() != nullptr;
  }

  // watch(): from now on calls wait for work in flight.
  static PyObject *Watch(PyObject *object, PyObject *) {
    ValueOf<Guard>(object)->watched = true;
    Py_RETURN_NONE;
  }

  // watched(): whether they do.
  static PyObject *IsWatched(PyObject *object, PyObject *) { return PyBool_FromLong(ValueOf<Guard>(object)->watched); }

  // close(): no call goes on from here. The caller holds the lock.
  static PyObject *Close(PyObject *object, PyObject *) {
    ValueOf<Guard>(object)->closed = true;
    Py_RETURN_NONE;
  }

  static inline PyMethodDef methods[] = {
      {"watch", Watch, METH_NOARGS, nullptr},
      {"watched", IsWatched, METH_NOARGS, nullptr},
      {"close", Close, METH_NOARGS, nullptr},
      {nullptr, nullptr, 0, nullptr},
  };
};

// Holds the lock of a guard, which may be absent, while MindSpore has no work in flight on the buffer's memory.
class Inside {
 public:
  explicit Inside(const Guard *guard) : guard_(guard) {
    if (guard == nullptr) {
      state_ = kIn;
      return;
    }
    PyObject *contexts = guard->contexts.get();
    if (contexts != nullptr && PyDict_GetItemWithError(contexts, guard->context.get()) != Py_None &&
        !Call(guard->refuse))
      return;
    if (!Call(guard->acquire)) return;
    state_ = kLocked;
    if (!guard->closed && (!guard->watched || Wait())) state_ = kIn;
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

  // False if the buffer was closed, or, with an exception set, if this thread traces a function or waiting failed.
  bool ok() const { return state_ == kIn; }

  // Waits for all work in flight, which may be about to write a Tensor. Returns false with an exception set if that failed.
  bool Wait() { return guard_ == nullptr || waited_ || (waited_ = Call(guard_->wait)); }

 private:
  static bool Call(const Held &function) { return Held(PyObject_CallNoArgs(function.get())).get() != nullptr; }

  const Guard *guard_;
  enum { kOut, kLocked, kIn } state_ = kOut;
  bool waited_ = false;
};

}  // namespace replay::python
