// Calls a kernel that changes rows by their handles and counts them.
#ifndef MINDSPORE_REPLAY_PYTHON_CHANGE_H_
#define MINDSPORE_REPLAY_PYTHON_CHANGE_H_

#include "call.h"
#include "guard.h"

namespace replay::python {

struct Change {
  // A vector [n] that the kernel takes.
  struct Input {
    int at;           // its place in the call
    int type;         // NumPy's number of an array's dtype
    PyObject *dtype;  // that of a Tensor
  };

  PyObject_HEAD Guard *guard;
  Call *call;
  PyArrayObject *count;  // to which the kernel writes its number
  PyObject *owned;       // keeps the dtypes
  PyObject *kind;        // the class of Tensors, or None
  PyObject *address_of;
  std::vector<Input> *inputs;
};

bool AttributeIs(PyObject *object, const char *name, PyObject *wanted) {
  return Held(PyObject_GetAttrString(object, name)).get() == wanted;
}

// Returns n of a Tensor [n] of this dtype that a kernel can read in place; 0 or less, perhaps with an exception set, for
// any other.
Py_ssize_t TensorRows(PyObject *tensor, PyObject *dtype) {
  if (!AttributeIs(tensor, "dtype", dtype) || !AttributeIs(tensor, "has_init", Py_False)) return 0;
  if (Held(PyObject_CallMethod(tensor, "is_contiguous", nullptr)).get() != Py_True) return 0;
  const Held shape(PyObject_GetAttrString(tensor, "shape"));
  if (shape.get() == nullptr || !PyTuple_CheckExact(shape.get()) || PyTuple_GET_SIZE(shape.get()) != 1) return 0;
  return PyLong_AsSsize_t(PyTuple_GET_ITEM(shape.get(), 0));
}

bool IsTensor(const Change *self, PyObject *object) {
  return reinterpret_cast<PyObject *>(Py_TYPE(object)) == self->kind;
}

// Returns n of an array or Tensor [n], as `TensorRows` does.
Py_ssize_t RowsOf(const Change *self, const Change::Input &input, PyObject *vector) {
  if (IsTensor(self, vector)) return TensorRows(vector, input.dtype);
  if (!IsPlain(vector) || PyArray_TYPE(Array(vector)) != input.type || PyArray_NDIM(Array(vector)) != 1) return 0;
  return PyArray_DIM(Array(vector), 0);
}

// Returns the memory of an array or Tensor; null, perhaps with an exception set, if it has none.
void *VectorMemory(const Change *self, PyObject *vector) {
  if (!IsTensor(self, vector)) return PyArray_DATA(Array(vector));
  const Held address(PyObject_CallOneArg(self->address_of, vector));
  return address.get() == nullptr ? nullptr : PyLong_AsVoidPtr(address.get());
}

// Points the kernel to vectors of one length. Returns false, perhaps with an exception set, unless they are that.
bool Bind(const Change *self, PyObject *const *vectors) {
  Py_ssize_t rows = 0;
  for (const Change::Input &input : *self->inputs) {
    PyObject *vector = *vectors++;
    const Py_ssize_t here = RowsOf(self, input, vector);
    if (here <= 0 || (rows != 0 && here != rows)) return false;
    rows = here;
    void *memory = VectorMemory(self, vector);
    if (memory == nullptr) return false;
    self->call->params[input.at] = memory;
    self->call->shapes[input.at][0] = rows;
  }
  return true;
}

// now(*vectors): runs the kernel and returns its number, an array []. Returns an int if the caller has to take the
// general path, which converts the vectors or raises the error: the status of the kernel, which has changed nothing, or
// -1 if it did not run.
PyObject *ChangeNow(PyObject *object, PyObject *const *args, Py_ssize_t nargs) {
  const auto *self = reinterpret_cast<const Change *>(object);
  if (nargs != static_cast<Py_ssize_t>(self->inputs->size())) {
    return PyErr_Format(PyExc_TypeError, "now(*vectors) needs %zd of them", self->inputs->size());
  }
  bool waits = false;  // an operator may be about to write a Tensor
  for (Py_ssize_t i = 0; i < nargs; ++i) waits |= IsTensor(self, args[i]);
  const Inside inside(self->guard, waits);
  const int status = inside.ok() && Bind(self, args) ? RunKernel(self->call) : -1;
  if (PyErr_Occurred()) return nullptr;
  return status == 0 ? PyArray_NewCopy(self->count, NPY_CORDER) : PyLong_FromLong(status);
}

bool AddInputs(Change *self, PyObject *inputs) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); ++i) {
    Change::Input input{};
    PyArray_Descr *type;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(inputs, i), "iO&O", &input.at, PyArray_DescrConverter, &type,
                          &input.dtype)) {
      return false;
    }
    input.type = type->type_num;
    Py_DECREF(type);
    if (input.at < 0 || input.at >= self->call->size) {
      PyErr_Format(PyExc_IndexError, "argument %d of %d", input.at, self->call->size);
      return false;
    }
    self->inputs->push_back(input);
  }
  if (!self->inputs->empty()) return true;
  PyErr_SetString(PyExc_ValueError, "Change needs an input");
  return false;
}

void FreeChange(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  auto *self = reinterpret_cast<Change *>(object);
  Py_XDECREF(reinterpret_cast<PyObject *>(self->guard));
  Py_XDECREF(reinterpret_cast<PyObject *>(self->call));
  Py_XDECREF(reinterpret_cast<PyObject *>(self->count));
  Py_XDECREF(self->kind);
  Py_XDECREF(self->owned);
  Py_XDECREF(self->address_of);
  delete self->inputs;
  type->tp_free(object);
  Py_DECREF(type);
}

// Change(guard, call, count, inputs, kind, address_of): a guard or None; the kernel; the array that it writes its number
// to; for each vector its place, an array's dtype and a Tensor's; the class of Tensors or None; and a function that
// returns the address of one.
PyObject *NewChange(PyTypeObject *type, PyObject *args, PyObject *) {
  PyObject *guard, *call, *count, *inputs, *kind, *address_of;
  if (!PyArg_ParseTuple(args, "OOO!O!OO", &guard, &call, &PyArray_Type, &count, &PyTuple_Type, &inputs, &kind,
                        &address_of)) {
    return nullptr;
  }
  const Held made(type->tp_alloc(type, 0));
  auto *self = reinterpret_cast<Change *>(made.get());
  if (self == nullptr || !TakeGuard(guard, &self->guard) || (self->call = TakeCall(call)) == nullptr) return nullptr;
  self->count = Array(Py_NewRef(count));
  self->owned = Py_NewRef(inputs);
  self->kind = Py_NewRef(kind);
  self->address_of = Py_NewRef(address_of);
  self->inputs = new std::vector<Change::Input>();
  return AddInputs(self, inputs) ? Py_NewRef(made.get()) : nullptr;
}

PyMethodDef change_methods[] = {
    {"now", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(ChangeNow)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot change_slots[] = {
    {Py_tp_new, reinterpret_cast<void *>(NewChange)},
    {Py_tp_dealloc, reinterpret_cast<void *>(FreeChange)},
    {Py_tp_methods, change_methods},
    {0, nullptr},
};
PyType_Spec change_spec = {"mindspore_replay._calls.Change", sizeof(Change), 0, Py_TPFLAGS_DEFAULT, change_slots};

}  // namespace replay::python

#endif  // MINDSPORE_REPLAY_PYTHON_CHANGE_H_
