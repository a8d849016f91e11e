// Stores rows that obviously fit, in one call.
#ifndef MINDSPORE_REPLAY_PYTHON_INSERT_H_
#define MINDSPORE_REPLAY_PYTHON_INSERT_H_

#include "call.h"
#include "guard.h"
#include "numbers.h"

namespace replay::python {

struct Insert {
  PyObject_HEAD Guard *guard;
  Call *one, *many;                   // one row without a leading axis, which is staged, and rows with one
  PyObject *names;                    // of the columns, or None
  PyObject *staged;                   // the arrays of `places`
  int rows_at, ends_at, priority_at;  // -1 if the kernel has no such argument
  uint8_t end_bits, final_bits;
  Py_ssize_t num_envs;
  std::vector<Place> *places;
  std::vector<PyObject *> *fields;  // of the row that is being stored
  std::vector<uint8_t> *ends;
};

// Stages a field. Returns false unless it is an array of exactly the column's dtype and shape, or a number that fits.
inline bool StageField(PyObject *value, const Place &place) {
  if (!PyArray_CheckExact(value)) return place.shape.empty() && WriteNumber(value, place);
  if (!place.Fits(value, 0)) return false;
  std::memcpy(place.memory, PyArray_DATA(Array(value)), PyArray_NBYTES(Array(value)));
  return true;
}

// Finds the fields of a list, a tuple or a dict with exactly the columns' names.
bool FindFields(const Insert *self, PyObject *exp) {
  const auto width = static_cast<Py_ssize_t>(self->places->size());
  if (PyList_CheckExact(exp) || PyTuple_CheckExact(exp)) {
    if (PySequence_Fast_GET_SIZE(exp) != width) return false;
    for (Py_ssize_t i = 0; i < width; ++i) (*self->fields)[i] = PySequence_Fast_GET_ITEM(exp, i);
    return true;
  }
  if (!PyDict_CheckExact(exp) || self->names == Py_None || PyDict_GET_SIZE(exp) != width) return false;
  for (Py_ssize_t i = 0; i < width; ++i) {
    PyObject *field = PyDict_GetItemWithError(exp, PyTuple_GET_ITEM(self->names, i));
    if (field == nullptr) return false;  // with an exception set only if comparing keys failed
    (*self->fields)[i] = field;
  }
  return true;
}

bool StageRow(const Insert *self) {
  for (size_t i = 0; i < self->places->size(); ++i) {
    if (!StageField((*self->fields)[i], (*self->places)[i])) return false;
  }
  return true;
}

// Returns the number of rows in arrays of exactly the columns' dtypes and shapes, behind one leading axis, which it
// points the kernel to; 0 for anything else.
Py_ssize_t LocateBatch(const Insert *self) {
  const Call *call = self->many;
  Py_ssize_t rows = 0;
  for (size_t i = 0; i < self->places->size(); ++i) {
    PyObject *field = (*self->fields)[i];
    if (!(*self->places)[i].Fits(field, 1)) return 0;
    const Py_ssize_t here = PyArray_DIM(Array(field), 0);
    if (here == 0 || here % self->num_envs != 0 || (i > 0 && here != rows)) return 0;
    rows = here;
  }
  for (size_t i = 0; i < self->places->size(); ++i) {
    call->params[self->rows_at + i] = PyArray_DATA(Array((*self->fields)[i]));
    call->shapes[self->rows_at + i][0] = rows;
  }
  return rows;
}

// Adds the bits of a flag, one bool for the rows of one step or an array of them; false unless it is that exactly.
bool AddFlag(const Insert *self, PyObject *flag, uint8_t bits, Py_ssize_t rows) {
  if (flag == Py_False) return true;
  if (IsBool(flag) && rows == self->num_envs) {
    for (uint8_t &end : *self->ends) end |= IsTrue(flag) ? bits : 0;
    return true;
  }
  if (!IsVector(flag, NPY_BOOL, rows)) return false;
  const auto *flags = static_cast<const npy_bool *>(PyArray_DATA(Array(flag)));
  for (Py_ssize_t i = 0; i < rows; ++i) (*self->ends)[i] |= flags[i] != 0 ? bits : 0;
  return true;
}

// Points a vector argument of a call to other memory until it goes.
class Rebound {
 public:
  Rebound(const Call *call, int at) : call_(call), at_(at), memory_(call->params[at]), size_(call->shapes[at][0]) {}
  Rebound(const Rebound &) = delete;
  Rebound &operator=(const Rebound &) = delete;
  ~Rebound() { To(memory_, size_); }
  void To(void *memory, int64_t size) {
    call_->params[at_] = memory;
    call_->shapes[at_][0] = size;
  }

 private:
  const Call *call_;
  int at_;
  void *memory_;
  int64_t size_;
};

// Keeps the fields of a row alive, which another thread might take from their list while the kernel runs.
class Kept {
 public:
  explicit Kept(const std::vector<PyObject *> *fields) : fields_(fields) {
    for (PyObject *field : *fields_) Py_INCREF(field);
  }
  Kept(const Kept &) = delete;
  Kept &operator=(const Kept &) = delete;
  ~Kept() {
    for (PyObject *field : *fields_) Py_DECREF(field);
  }

 private:
  const std::vector<PyObject *> *fields_;
};

bool RunWithPriority(const Insert *self, const Call *call, PyObject *priority, Py_ssize_t rows) {
  if (priority == Py_None) return RunKernel(call) == 0;
  if (self->priority_at < 0) return false;
  Rebound argument(call, self->priority_at);
  float one;
  if (!IsBool(priority) && WriteNumber(priority, {reinterpret_cast<char *>(&one), 'f', sizeof(one), {}})) {
    argument.To(&one, 1);
  } else if (IsVector(priority, NPY_FLOAT32, rows)) {
    argument.To(PyArray_DATA(Array(priority)), rows);
  } else {
    return false;
  }
  return RunKernel(call) == 0;
}

bool StoreRows(const Insert *self, PyObject *exp, PyObject *priority, PyObject *end, PyObject *final) {
  if (!FindFields(self, exp)) return false;
  const Kept kept(self->fields);
  const bool single = self->num_envs == 1 && StageRow(self);
  const Py_ssize_t rows = single ? 1 : LocateBatch(self);
  if (rows == 0) return false;
  const Call *call = single ? self->one : self->many;
  if (end == Py_False && final == Py_False) return RunWithPriority(self, call, priority, rows);
  if (self->ends_at < 0) return false;
  self->ends->assign(rows, 0);
  if (!AddFlag(self, end, self->end_bits, rows) || !AddFlag(self, final, self->final_bits, rows)) return false;
  Rebound argument(call, self->ends_at);
  argument.To(self->ends->data(), rows);
  return RunWithPriority(self, call, priority, rows);
}

// now(exp, priority, end, final): stores one row or a batch. Returns False, and has stored nothing, if the caller has
// to take the general path, which converts the arguments or raises the error.
PyObject *InsertNow(PyObject *object, PyObject *const *args, Py_ssize_t nargs) {
  const auto *self = reinterpret_cast<const Insert *>(object);
  if (nargs != 4) {
    PyErr_SetString(PyExc_TypeError, "now(exp, priority, end, final) needs four arguments");
    return nullptr;
  }
  const Inside inside(self->guard);
  const bool stored = inside.ok() && StoreRows(self, args[0], args[1], args[2], args[3]);
  return PyErr_Occurred() ? nullptr : PyBool_FromLong(stored);
}

bool AddPlaces(Insert *self, PyObject *kinds) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->staged); ++i) {
    PyObject *array = PyTuple_GET_ITEM(self->staged, i);
    if (!IsPlain(array) || i >= PyUnicode_GET_LENGTH(kinds)) {
      PyErr_SetString(PyExc_TypeError, "Insert needs contiguous arrays, and a kind for each");
      return false;
    }
    const npy_intp *shape = PyArray_DIMS(Array(array));
    const auto kind = static_cast<char>(PyUnicode_ReadChar(kinds, i));
    self->places->push_back({PyArray_BYTES(Array(array)),
                             kind == '-' ? '\0' : kind,
                             PyArray_ITEMSIZE(Array(array)),
                             {shape, shape + PyArray_NDIM(Array(array))}});
  }
  self->fields->resize(self->places->size());
  return true;
}

void FreeInsert(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  auto *self = reinterpret_cast<Insert *>(object);
  Py_XDECREF(reinterpret_cast<PyObject *>(self->guard));
  Py_XDECREF(reinterpret_cast<PyObject *>(self->one));
  Py_XDECREF(reinterpret_cast<PyObject *>(self->many));
  Py_XDECREF(self->names);
  Py_XDECREF(self->staged);
  delete self->places;
  delete self->fields;
  delete self->ends;
  type->tp_free(object);
  Py_DECREF(type);
}

// Insert(guard, one, many, names, staged, kinds, (rows, ends, priority), (end bits, final bits), num_envs): the kernel
// for a staged row and for a batch, the columns' names or None, the staged arrays, a character for the kind of each,
// "-" for bits that are no numbers, the places of arguments, -1 if there is none, and the bits of flags.
PyObject *NewInsert(PyTypeObject *type, PyObject *args, PyObject *) {
  PyObject *guard, *one, *many, *names, *staged, *kinds;
  int rows_at, ends_at, priority_at;
  unsigned char end_bits, final_bits;
  Py_ssize_t num_envs;
  if (!PyArg_ParseTuple(args, "OOOOO!U(iii)(bb)n", &guard, &one, &many, &names, &PyTuple_Type, &staged, &kinds,
                        &rows_at, &ends_at, &priority_at, &end_bits, &final_bits, &num_envs)) {
    return nullptr;
  }
  const Held made(type->tp_alloc(type, 0));
  auto *self = reinterpret_cast<Insert *>(made.get());
  if (self == nullptr || !TakeGuard(guard, &self->guard)) return nullptr;
  if ((self->one = TakeCall(one)) == nullptr || (self->many = TakeCall(many)) == nullptr) return nullptr;
  self->names = Py_NewRef(names);
  self->staged = Py_NewRef(staged);
  self->rows_at = rows_at;
  self->ends_at = ends_at;
  self->priority_at = priority_at;
  self->end_bits = end_bits;
  self->final_bits = final_bits;
  self->num_envs = num_envs;
  self->places = new std::vector<Place>();
  self->fields = new std::vector<PyObject *>();
  self->ends = new std::vector<uint8_t>();
  return AddPlaces(self, kinds) ? Py_NewRef(made.get()) : nullptr;
}

PyMethodDef insert_methods[] = {
    {"now", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(InsertNow)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot insert_slots[] = {
    {Py_tp_new, reinterpret_cast<void *>(NewInsert)},
    {Py_tp_dealloc, reinterpret_cast<void *>(FreeInsert)},
    {Py_tp_methods, insert_methods},
    {0, nullptr},
};
PyType_Spec insert_spec = {"mindspore_replay._calls.Insert", sizeof(Insert), 0, Py_TPFLAGS_DEFAULT, insert_slots};

}  // namespace replay::python

#endif  // MINDSPORE_REPLAY_PYTHON_INSERT_H_
