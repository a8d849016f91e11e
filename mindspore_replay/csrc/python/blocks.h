// What `with` statements hold. Python runs the handlers of signals between bytecodes, so none of them can come between
// what these do and the statement's own note of it.
#pragma once

#include "object.h"

namespace replay::python {

// An exception, or none, that is set aside and set again.
class Failure {
 public:
  explicit operator bool() const { return type_.get() != nullptr; }
  PyObject *type() const { return type_.get() == nullptr ? Py_None : type_.get(); }

  // Keeps the exception that is set, if it is the first.
  void Keep() {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Held kept[] = {Held(type), Held(value), Held(trace)};
    if (*this) return;
    type_ = std::move(kept[0]), value_ = std::move(kept[1]), trace_ = std::move(kept[2]);
  }

  // Sets it. Returns false if there is one.
  bool Set() {
    if (!*this) return true;
    PyErr_Restore(type_.Release(), value_.Release(), trace_.Release());
    return false;
  }

 private:
  Held type_, value_, trace_;
};

// The methods of a type T for `with`, which has these members:
//   PyObject *Enter()           null with an exception set if the block cannot begin; then nothing is held
//   bool Exit(PyObject *type)   ends it, with the type of the exception that ends the block or None
template <typename T>
struct With {
  static PyObject *Enter(PyObject *object, PyObject *) { return ValueOf<T>(object)->Enter(); }
  static PyObject *Exit(PyObject *object, PyObject *args) {
    PyObject *type, *value, *trace;
    if (!PyArg_ParseTuple(args, "OOO", &type, &value, &trace) || !ValueOf<T>(object)->Exit(type)) return nullptr;
    return Py_NewRef(Py_False);
  }
  static inline PyMethodDef methods[] = {{"__enter__", Enter, METH_NOARGS, nullptr},
                                         {"__exit__", Exit, METH_VARARGS, nullptr},
                                         {nullptr, nullptr, 0, nullptr}};
};

// Block(begin, end): calls begin(), and after the block end(whether it succeeded), also if `begin` raises. A signal may
// interrupt `end`, which is then called again, so it must be able to begin anew.
struct Block : With<Block> {
  static constexpr char kName[] = "mindspore_replay._calls.Block";
  static constexpr int kTimes = 16;

  Held begin, end;

  bool Init(PyObject *args) {
    PyObject *first, *last;
    if (!PyArg_ParseTuple(args, "OO", &first, &last)) return false;
    begin = NewHeld(first), end = NewHeld(last);
    return true;
  }

  PyObject *Enter() {
    Held made(PyObject_CallNoArgs(begin.get()));
    if (made.get() != nullptr) return made.Release();
    Failure failure;
    failure.Keep();
    End(Py_False, &failure);
    failure.Set();
    return nullptr;
  }

  bool Exit(PyObject *type) {
    Failure failure;
    End(type == Py_None ? Py_True : Py_False, &failure);
    return failure.Set();
  }

 private:
  void End(PyObject *succeeded, Failure *failure) const {
    for (int i = 0; i < kTimes; ++i) {
      if (Held(CallWith(end.get(), succeeded)).get() != nullptr) return;
      failure->Keep();
    }
  }
};

// Locks(*parts): holds all of its parts, locks and objects of this file, and gives the block what the last part gives.
// Threads may share it.
struct Locks : With<Locks> {
  static constexpr char kName[] = "mindspore_replay._calls.Locks";

  Held held;  // a tuple

  bool Init(PyObject *args) {
    held = NewHeld(args);
    return true;
  }

  // parts(): a tuple of them.
  static PyObject *Parts(PyObject *object, PyObject *) { return Py_NewRef(ValueOf<Locks>(object)->held.get()); }

  static inline PyMethodDef methods[] = {{"__enter__", With::Enter, METH_NOARGS, nullptr},
                                         {"__exit__", With::Exit, METH_VARARGS, nullptr},
                                         {"parts", Parts, METH_NOARGS, nullptr},
                                         {nullptr, nullptr, 0, nullptr}};

  PyObject *Enter() {
    const Py_ssize_t size = PyTuple_Size(held.get());
    Held given = NewHeld(Py_None);
    for (Py_ssize_t i = 0; i < size; ++i) {
      given = Held(PyObject_CallMethod(PyTuple_GetItem(held.get(), i), "__enter__", nullptr));
      if (given.get() != nullptr) continue;
      Failure failure;
      failure.Keep();
      Exit(i, failure.type(), &failure);
      failure.Set();
      return nullptr;
    }
    return given.Release();
  }

  bool Exit(PyObject *type) {
    Failure failure;
    Exit(PyTuple_Size(held.get()), type, &failure);
    return failure.Set();
  }

 private:
  // Exits the first parts, the last of them first.
  void Exit(Py_ssize_t size, PyObject *type, Failure *failure) const {
    Held error = NewHeld(type);
    while (size-- > 0) {
      PyObject *part = PyTuple_GetItem(held.get(), size);
      if (Held(PyObject_CallMethod(part, "__exit__", "OOO", error.get(), Py_None, Py_None)).get() != nullptr) continue;
      failure->Keep();
      error = NewHeld(failure->type());
    }
  }
};

// Hold(hold, let_go, head, failed): keeps others out of the arrays of a buffer, by functions of the kernel library at these
// addresses. `failed` raises the error for their status. Threads may share it.
struct Hold : With<Hold> {
  static constexpr char kName[] = "mindspore_replay._calls.Hold";
  using Function = int (*)(const void *);

  Function hold, let_go;
  const void *head;
  Held failed;

  bool Init(PyObject *args) {
    PyObject *addresses[3], *failing;
    if (!PyArg_ParseTuple(args, "O!O!O!O", &PyLong_Type, &addresses[0], &PyLong_Type, &addresses[1], &PyLong_Type,
                          &addresses[2], &failing)) {
      return false;
    }
    hold = reinterpret_cast<Function>(PyLong_AsVoidPtr(addresses[0]));
    let_go = reinterpret_cast<Function>(PyLong_AsVoidPtr(addresses[1]));
    head = PyLong_AsVoidPtr(addresses[2]);
    failed = NewHeld(failing);
    return true;
  }

  PyObject *Enter() {
    int status;
    Py_BEGIN_ALLOW_THREADS  // others may hold it
        status = hold(head);
    Py_END_ALLOW_THREADS return status == 0 || Fail(status) ? Py_NewRef(Py_None) : nullptr;
  }

  bool Exit(PyObject *) {
    const int status = let_go(head);
    return status == 0 || Fail(status);
  }

 private:
  bool Fail(int status) const { return Held(PyObject_CallFunction(failed.get(), "i", status)).get() != nullptr; }
};

// Undo(function, argument, kept): calls a function of the kernel library once, when the object goes. Until then it keeps
// another.
struct Undo {
  static constexpr char kName[] = "mindspore_replay._calls.Undo";

  void (*function)(const void *) = nullptr;
  const void *argument;
  Held kept;

  ~Undo() {
    if (function != nullptr) function(argument);
  }

  bool Init(PyObject *args) {
    PyObject *addresses[2], *other;
    if (!PyArg_ParseTuple(args, "O!O!O", &PyLong_Type, &addresses[0], &PyLong_Type, &addresses[1], &other))
      return false;
    argument = PyLong_AsVoidPtr(addresses[1]);
    kept = NewHeld(other);
    function = reinterpret_cast<void (*)(const void *)>(PyLong_AsVoidPtr(addresses[0]));
    return true;
  }

  static inline PyMethodDef methods[] = {{nullptr, nullptr, 0, nullptr}};
};

}  // namespace replay::python
