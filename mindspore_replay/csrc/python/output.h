// Makes arrays for what a kernel gives.
#ifndef MINDSPORE_REPLAY_PYTHON_OUTPUT_H_
#define MINDSPORE_REPLAY_PYTHON_OUTPUT_H_

#include <algorithm>

#include "arrays.h"

namespace replay::python {

// An array is used again as soon as nothing else refers to its memory, neither a Tensor nor an array: a loop that draws
// batches uses the same few. The C library would get memory for large ones from the system at each allocation, which
// costs more than filling it, and for a batch of smaller ones it takes as long as drawing it.
constexpr size_t kMostKept = 4;  // one used by the learner, and some that were drawn ahead
// An array may be in use for ever. So each time that this many calls found all in use, the oldest makes room for a new one.
constexpr size_t kPatience = 64;

struct Output {
  PyObject_HEAD PyArray_Descr *dtype;
  std::vector<npy_intp> *shape;
  std::vector<PyObject *> *kept;
  size_t misses;
};

// True unless somebody has changed what an array is, for example its shape in place.
bool IsAsMade(const Output *self, PyObject *object) {
  PyArrayObject *array = Array(object);
  const std::vector<npy_intp> &shape = *self->shape;
  return PyArray_ISCARRAY(array) && PyArray_DESCR(array) == self->dtype &&
         PyArray_NDIM(array) == static_cast<int>(shape.size()) &&
         std::equal(shape.begin(), shape.end(), PyArray_DIMS(array));
}

// Returns an array with any contents; null with an exception set if there is no memory.
PyObject *MakeArray(Output *self) {
  std::vector<PyObject *> &kept = *self->kept;
  for (auto at = kept.begin(); at != kept.end();) {
    if (Py_REFCNT(*at) > 1) {
      ++at;
    } else if (IsAsMade(self, *at)) {
      return Py_NewRef(*at);
    } else {
      Py_DECREF(*at);
      at = kept.erase(at);
    }
  }
  Py_INCREF(self->dtype);  // the array takes it
  PyObject *made = PyArray_NewFromDescr(&PyArray_Type, self->dtype, static_cast<int>(self->shape->size()),
                                        self->shape->data(), nullptr, nullptr, 0, nullptr);
  if (made == nullptr) return nullptr;
  if (kept.size() == kMostKept) {
    if (++self->misses % kPatience != 0) return made;
    Py_DECREF(kept.front());
    kept.erase(kept.begin());
  }
  kept.push_back(Py_NewRef(made));
  return made;
}

PyObject *CallOutput(PyObject *object, PyObject *, PyObject *) { return MakeArray(reinterpret_cast<Output *>(object)); }

PyObject *CountKept(PyObject *object, void *) {
  return PyLong_FromSize_t(reinterpret_cast<const Output *>(object)->kept->size());
}

void FreeOutput(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  auto *self = reinterpret_cast<Output *>(object);
  Py_XDECREF(reinterpret_cast<PyObject *>(self->dtype));
  for (PyObject *array : *self->kept) Py_DECREF(array);
  delete self->shape;
  delete self->kept;
  type->tp_free(object);
  Py_DECREF(type);
}

// Output(shape, dtype): a function without arguments that makes such arrays; `kept` is the number that it keeps.
PyObject *NewOutput(PyTypeObject *type, PyObject *args, PyObject *) {
  PyObject *shape;
  PyArray_Descr *dtype;
  if (!PyArg_ParseTuple(args, "O!O&", &PyTuple_Type, &shape, PyArray_DescrConverter, &dtype)) return nullptr;
  auto *self = reinterpret_cast<Output *>(type->tp_alloc(type, 0));
  if (self == nullptr) {
    Py_DECREF(dtype);
    return nullptr;
  }
  self->dtype = dtype;
  self->shape = new std::vector<npy_intp>();
  self->kept = new std::vector<PyObject *>();
  for (Py_ssize_t axis = 0; axis < PyTuple_GET_SIZE(shape); ++axis) {
    self->shape->push_back(PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, axis)));
  }
  if (!PyErr_Occurred()) return reinterpret_cast<PyObject *>(self);
  Py_DECREF(reinterpret_cast<PyObject *>(self));
  return nullptr;
}

PyGetSetDef output_attributes[] = {
    {"kept", CountKept, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot output_slots[] = {
    {Py_tp_new, reinterpret_cast<void *>(NewOutput)},
    {Py_tp_dealloc, reinterpret_cast<void *>(FreeOutput)},
    {Py_tp_call, reinterpret_cast<void *>(CallOutput)},
    {Py_tp_getset, output_attributes},
    {0, nullptr},
};
PyType_Spec output_spec = {"mindspore_replay._calls.Output", sizeof(Output), 0, Py_TPFLAGS_DEFAULT, output_slots};

// False with an exception set unless an object is an Output.
bool IsOutput(PyObject *object) {
  if (Py_TYPE(object)->tp_dealloc == FreeOutput) return true;
  PyErr_SetString(PyExc_TypeError, "an argument must be an Output");
  return false;
}

}  // namespace replay::python

#endif  // MINDSPORE_REPLAY_PYTHON_OUTPUT_H_
