// Python types whose objects hold a C++ value. All of this folder uses Python's stable ABI alone, so that one module serves
// all versions.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstring>
#include <new>
#include <utility>

namespace replay::python {

// A reference that is given back when it goes; it may be null.
class Held {
 public:
  explicit Held(PyObject *object = nullptr) : object_(object) {}
  Held(Held &&other) noexcept : object_(other.Release()) {}
  Held &operator=(Held &&other) noexcept {
    Py_XDECREF(std::exchange(object_, other.Release()));
    return *this;
  }
  ~Held() { Py_XDECREF(object_); }
  PyObject *get() const { return object_; }
  PyObject *Release() { return std::exchange(object_, nullptr); }

 private:
  PyObject *object_;
};

inline Held NewHeld(PyObject *object) { return Held(Py_XNewRef(object)); }

inline PyObject *CallWith(PyObject *function, PyObject *argument) {
  return PyObject_CallFunctionObjArgs(function, argument, nullptr);
}

inline bool IsListOrTuple(PyObject *object) { return PyList_CheckExact(object) || PyTuple_CheckExact(object); }

// The size and an item of a list or a tuple.
inline Py_ssize_t SizeOf(PyObject *items) {
  return PyList_CheckExact(items) ? PyList_Size(items) : PyTuple_Size(items);
}

inline PyObject *ItemOf(PyObject *items, Py_ssize_t i) {
  return PyList_CheckExact(items) ? PyList_GetItem(items, i) : PyTuple_GetItem(items, i);
}

// An object with a value of a class T, which has these members:
//   kName, kKind        the type's name, and "a ..." for errors
//   bool Init(args)     called once; false with an exception set if the arguments do not fit
//   methods             a table
template <typename T>
struct Object {
  PyObject_HEAD T value;
};

template <typename T>
T *ValueOf(PyObject *object) {
  return &reinterpret_cast<Object<T> *>(object)->value;
}

template <typename T>
void FreeObject(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  ValueOf<T>(object)->~T();
  PyObject_Free(object);
  Py_DECREF(type);
}

template <typename T>
PyObject *NewObject(PyTypeObject *type, PyObject *args, PyObject *) {
  Held made(PyType_GenericAlloc(type, 0));
  if (made.get() == nullptr) return nullptr;
  return (new (ValueOf<T>(made.get())) T)->Init(args) ? made.Release() : nullptr;
}

// The entry of a table for a method of T that takes positional arguments.
template <typename T, PyObject *(T::*method)(PyObject *const *args, Py_ssize_t nargs)>
PyMethodDef Method(const char *name) {
  PyObject *(*call)(PyObject *, PyObject *const *, Py_ssize_t) = [](PyObject *object, PyObject *const *args,
                                                                    Py_ssize_t nargs) {
    return (ValueOf<T>(object)->*method)(args, nargs);
  };
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(call)), METH_FASTCALL, nullptr};
}

// Adds the type of such objects to a module, with a further slot. False with an exception set if that failed.
template <typename T>
bool AddType(PyObject *module, PyType_Slot more = {0, nullptr}) {
  PyType_Slot slots[] = {
      {Py_tp_new, reinterpret_cast<void *>(NewObject<T>)},
      {Py_tp_dealloc, reinterpret_cast<void *>(FreeObject<T>)},
      {Py_tp_methods, T::methods},
      more,
      {0, nullptr},
  };
  PyType_Spec spec = {T::kName, sizeof(Object<T>), 0, Py_TPFLAGS_DEFAULT, slots};
  Held type(PyType_FromSpec(&spec));
  if (type.get() == nullptr || PyModule_AddObject(module, std::strrchr(T::kName, '.') + 1, type.get()) != 0)
    return false;
  type.Release();
  return true;
}

// A reference to such an object, or to none.
template <typename T>
class Ref {
 public:
  // Returns false with an exception set if an object is of another type.
  bool Take(PyObject *object) {
    if (PyType_GetSlot(Py_TYPE(object), Py_tp_dealloc) != reinterpret_cast<void *>(FreeObject<T>)) {
      PyErr_Format(PyExc_TypeError, "an argument must be %s", T::kKind);
      return false;
    }
    held_ = NewHeld(object);
    return true;
  }
  T *get() const { return held_.get() == nullptr ? nullptr : ValueOf<T>(held_.get()); }
  T *operator->() const { return ValueOf<T>(held_.get()); }
  T &operator*() const { return *ValueOf<T>(held_.get()); }

 private:
  Held held_;
};

}  // namespace replay::python
