// The extension module mindspore_replay._calls: calls kernels from Python with little overhead. Its objects are not
// thread-safe; the buffer's lock guards them.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace {

using Kernel = int (*)(int, void **, int *, int64_t **, const char **, void *, void *);

template <typename T>
T *At(PyObject *address) {
  return static_cast<T *>(PyLong_AsVoidPtr(address));
}

// ---- Call: a kernel and its arguments. Their memory belongs to the Python object that made it.

struct Call {
  PyObject_HEAD
  Kernel kernel;
  int size;
  void **params;
  int *ndims;
  int64_t **shapes;
  const char **dtypes;
  PyObject *address_of;
};

PyObject *NewCall(PyTypeObject *type, PyObject *args, PyObject *) {
  PyObject *kernel, *params, *ndims, *shapes, *dtypes, *address_of;
  int size;
  if (!PyArg_ParseTuple(args, "O!iO!O!O!O!O", &PyLong_Type, &kernel, &size, &PyLong_Type, &params, &PyLong_Type, &ndims,
                        &PyLong_Type, &shapes, &PyLong_Type, &dtypes, &address_of)) {
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
  Py_INCREF(address_of);
  self->address_of = address_of;
  return reinterpret_cast<PyObject *>(self);
}

void FreeCall(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  Py_DECREF(reinterpret_cast<Call *>(object)->address_of);
  type->tp_free(object);
  Py_DECREF(type);
}

// Returns the memory of a C-contiguous array or of a Tensor; null with an exception set if there is none.
void *MemoryOf(const Call *self, PyObject *item) {
  if (PyObject_CheckBuffer(item)) {
    Py_buffer view;
    if (PyObject_GetBuffer(item, &view, PyBUF_C_CONTIGUOUS) != 0) return nullptr;
    void *memory = view.buf;
    PyBuffer_Release(&view);
    return memory;
  }
  PyObject *address = PyObject_CallOneArg(self->address_of, item);
  if (address == nullptr) return nullptr;
  void *memory = PyLong_AsVoidPtr(address);
  Py_DECREF(address);
  if (memory == nullptr && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a Tensor that has no memory yet");
  return memory;
}

// locate(at, items): points arguments at, at + 1, ... to the memory of these Tensors and arrays, a tuple or list.
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
    void *memory = MemoryOf(self, PySequence_Fast_GET_ITEM(args[1], i));
    if (memory == nullptr) return nullptr;
    self->params[at + i] = memory;
  }
  Py_RETURN_NONE;
}

int RunKernel(const Call *self) {
  int status;
  Py_BEGIN_ALLOW_THREADS  // a kernel waits for others on the same buffer
  status = self->kernel(self->size, self->params, self->ndims, self->shapes, self->dtypes, nullptr, nullptr);
  Py_END_ALLOW_THREADS
  return status;
}

// run() -> the kernel's status.
PyObject *Run(PyObject *object, PyObject *) { return PyLong_FromLong(RunKernel(reinterpret_cast<Call *>(object))); }

// give(at, makers, share): calls each of `makers`, a tuple, for the arguments from `at` on and runs the kernel. Returns
// a tuple of share(array) for each of them, or the kernel's status if it failed. `share` may be None.
PyObject *Give(PyObject *object, PyObject *const *args, Py_ssize_t nargs) {
  auto *self = reinterpret_cast<Call *>(object);
  if (nargs != 3 || !PyTuple_CheckExact(args[1])) {
    PyErr_SetString(PyExc_TypeError, "give(at, makers, share) needs an int, a tuple and a callable");
    return nullptr;
  }
  const Py_ssize_t at = PyLong_AsSsize_t(args[0]);
  const Py_ssize_t count = PyTuple_GET_SIZE(args[1]);
  if (at == -1 && PyErr_Occurred()) return nullptr;
  if (at < 0 || at + count > self->size) {
    PyErr_Format(PyExc_IndexError, "arguments %zd to %zd of %d", at, at + count, self->size);
    return nullptr;
  }
  PyObject *given = PyTuple_New(count);
  if (given == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *made = PyObject_CallNoArgs(PyTuple_GET_ITEM(args[1], i));
    if (made == nullptr) return Py_DECREF(given), nullptr;
    PyTuple_SET_ITEM(given, i, made);
    self->params[at + i] = MemoryOf(self, made);
    if (self->params[at + i] == nullptr) return Py_DECREF(given), nullptr;
  }
  const int status = RunKernel(self);
  if (status != 0) return Py_DECREF(given), PyLong_FromLong(status);
  for (Py_ssize_t i = 0; args[2] != Py_None && i < count; ++i) {
    PyObject *made = PyTuple_GET_ITEM(given, i);
    PyObject *shared = PyObject_CallOneArg(args[2], made);
    if (shared == nullptr) return Py_DECREF(given), nullptr;
    PyTuple_SET_ITEM(given, i, shared);
    Py_DECREF(made);
  }
  return given;
}

PyMethodDef call_methods[] = {
    {"locate", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(Locate)), METH_FASTCALL, nullptr},
    {"run", Run, METH_NOARGS, nullptr},
    {"give", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(Give)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot call_slots[] = {
    {Py_tp_new, reinterpret_cast<void *>(NewCall)},
    {Py_tp_dealloc, reinterpret_cast<void *>(FreeCall)},
    {Py_tp_methods, call_methods},
    {0, nullptr},
};
PyType_Spec call_spec = {"mindspore_replay._calls.Call", sizeof(Call), 0, Py_TPFLAGS_DEFAULT, call_slots};

// ---- Row: copies a row to the memory that a kernel reads and runs the kernel, if the row fits exactly; recognizes
// such batches.

struct Place {
  char *memory;
  char kind;  // NumPy kind: b, i, u, f; V for bfloat16
  int64_t item_bytes;
  std::vector<Py_ssize_t> shape;
};

struct Row {
  PyObject_HEAD
  PyTypeObject *array_type;
  std::vector<Place> *places;
  Call *call;
};

// Returns the kind of a dtype with a one-character format in the buffer protocol, 0 for any other.
char KindOf(const char *format) {
  if (format == nullptr || format[0] == '\0' || format[1] != '\0') return 0;
  if (format[0] == '?') return 'b';
  if (std::strchr("bhilq", format[0]) != nullptr) return 'i';
  if (std::strchr("BHILQ", format[0]) != nullptr) return 'u';
  return std::strchr("efd", format[0]) != nullptr ? 'f' : 0;
}

template <typename T>
bool Store(T value, const Place &place) {
  std::memcpy(place.memory, &value, sizeof(T));
  return true;
}

bool StoreFloat(double value, const Place &place) {
  if (place.item_bytes == 4) return Store(static_cast<float>(value), place);
  return place.item_bytes == 8 && Store(value, place);
}

bool StoreSmall(int64_t value, const Place &place) {
  if (place.kind == 'f') return StoreFloat(static_cast<double>(value), place);
  switch (place.item_bytes) {
    case 1: return Store(static_cast<int8_t>(value), place);
    case 2: return Store(static_cast<int16_t>(value), place);
    case 4: return Store(static_cast<int32_t>(value), place);
    default: return Store(value, place);
  }
}

// Calls use(view) if an array is contiguous and has exactly the dtype and shape of a place, behind `lead` other axes.
template <typename Use>
bool UseArray(PyObject *array, const Place &place, size_t lead, const Use &use) {
  Py_buffer view;
  if (PyObject_GetBuffer(array, &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0) {
    PyErr_Clear();  // strides, or a dtype unknown to the protocol: the caller takes the general path
    return false;
  }
  const size_t ndim = place.shape.size();
  bool fits = KindOf(view.format) == place.kind && view.itemsize == place.item_bytes &&
              static_cast<size_t>(view.ndim) == ndim + lead;
  for (size_t axis = 0; fits && axis < ndim; ++axis) fits = view.shape[axis + lead] == place.shape[axis];
  if (fits) use(view);
  PyBuffer_Release(&view);
  return fits;
}

bool StoreArray(PyObject *array, const Place &place) {
  return UseArray(array, place, 0, [&](const Py_buffer &view) {
    std::memcpy(place.memory, view.buf, static_cast<size_t>(view.len));
  });
}

// Stores a field. Returns false unless it fits exactly: an array, or Python's own number of the column's kind, with
// ints in the range of every column dtype.
bool StoreField(const Row *self, PyObject *value, const Place &place) {
  if (Py_TYPE(value) == self->array_type) return StoreArray(value, place);
  if (!place.shape.empty()) return false;
  if (PyFloat_CheckExact(value)) return place.kind == 'f' && StoreFloat(PyFloat_AS_DOUBLE(value), place);
  if (PyBool_Check(value)) return place.kind == 'b' && Store(static_cast<uint8_t>(value == Py_True), place);
  if (!PyLong_CheckExact(value) || !(place.kind == 'i' || place.kind == 'u' || place.kind == 'f')) return false;
  int overflow;
  const long number = PyLong_AsLongAndOverflow(value, &overflow);
  return overflow == 0 && number >= 0 && number < 128 && StoreSmall(number, place);
}

// (exp) -> the status of the kernel that took the row, or -1 if the caller has to take the general path.
PyObject *TakeRow(PyObject *object, PyObject *args, PyObject *) {
  const auto *self = reinterpret_cast<Row *>(object);
  PyObject *exp = PyTuple_GET_SIZE(args) == 1 ? PyTuple_GET_ITEM(args, 0) : nullptr;
  if (exp == nullptr) {
    PyErr_SetString(PyExc_TypeError, "a row is one argument");
    return nullptr;
  }
  if (!(PyList_CheckExact(exp) || PyTuple_CheckExact(exp)) ||
      PySequence_Fast_GET_SIZE(exp) != static_cast<Py_ssize_t>(self->places->size())) {
    return PyLong_FromLong(-1);
  }
  for (size_t i = 0; i < self->places->size(); ++i) {
    if (!StoreField(self, PySequence_Fast_GET_ITEM(exp, static_cast<Py_ssize_t>(i)), (*self->places)[i])) {
      return PyLong_FromLong(-1);
    }
  }
  return PyLong_FromLong(RunKernel(self->call));
}

// batch(exp) -> the number of rows in arrays of exactly the places' dtypes and shapes, behind one leading axis; 0 if
// the caller has to take the general path.
PyObject *CountBatch(PyObject *object, PyObject *exp) {
  const auto *self = reinterpret_cast<Row *>(object);
  if (!(PyList_CheckExact(exp) || PyTuple_CheckExact(exp)) ||
      PySequence_Fast_GET_SIZE(exp) != static_cast<Py_ssize_t>(self->places->size())) {
    return PyLong_FromLong(0);
  }
  Py_ssize_t rows = -1;
  for (size_t i = 0; i < self->places->size(); ++i) {
    PyObject *value = PySequence_Fast_GET_ITEM(exp, static_cast<Py_ssize_t>(i));
    Py_ssize_t here = -1;
    if (Py_TYPE(value) != self->array_type ||
        !UseArray(value, (*self->places)[i], 1, [&](const Py_buffer &view) { here = view.shape[0]; }) ||
        (rows >= 0 && here != rows)) {
      return PyLong_FromLong(0);
    }
    rows = here;
  }
  return PyLong_FromSsize_t(rows);
}

PyMethodDef row_methods[] = {
    {"batch", CountBatch, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

// Row(array_type, places, call): each place is a tuple of address, kind, bytes of one item, and shape.
PyObject *NewRow(PyTypeObject *type, PyObject *args, PyObject *) {
  PyObject *array_type, *places, *call;
  if (!PyArg_ParseTuple(args, "O!O!O", &PyType_Type, &array_type, &PyTuple_Type, &places, &call)) return nullptr;
  if (Py_TYPE(call)->tp_dealloc != FreeCall) {
    PyErr_SetString(PyExc_TypeError, "Row(array_type, places, call) needs a Call");
    return nullptr;
  }
  std::vector<Place> made;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(places); ++i) {
    unsigned long long address;
    int kind;
    Py_ssize_t item_bytes;
    PyObject *shape;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(places, i), "KCnO!", &address, &kind, &item_bytes, &PyTuple_Type, &shape)) {
      return nullptr;
    }
    Place place{reinterpret_cast<char *>(address), static_cast<char>(kind), item_bytes, {}};
    for (Py_ssize_t axis = 0; axis < PyTuple_GET_SIZE(shape); ++axis) {
      place.shape.push_back(PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, axis)));
    }
    made.push_back(place);
  }
  if (PyErr_Occurred()) return nullptr;
  auto *self = reinterpret_cast<Row *>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  Py_INCREF(array_type);
  self->array_type = reinterpret_cast<PyTypeObject *>(array_type);
  self->places = new std::vector<Place>(std::move(made));
  Py_INCREF(call);
  self->call = reinterpret_cast<Call *>(call);
  return reinterpret_cast<PyObject *>(self);
}

void FreeRow(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  auto *self = reinterpret_cast<Row *>(object);
  Py_DECREF(self->array_type);
  Py_DECREF(self->call);
  delete self->places;
  type->tp_free(object);
  Py_DECREF(type);
}

PyType_Slot row_slots[] = {
    {Py_tp_new, reinterpret_cast<void *>(NewRow)},
    {Py_tp_dealloc, reinterpret_cast<void *>(FreeRow)},
    {Py_tp_call, reinterpret_cast<void *>(TakeRow)},
    {Py_tp_methods, row_methods},
    {0, nullptr},
};
PyType_Spec row_spec = {"mindspore_replay._calls.Row", sizeof(Row), 0, Py_TPFLAGS_DEFAULT, row_slots};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_calls", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

bool Add(PyObject *target, const char *name, PyType_Spec *spec) {
  PyObject *type = PyType_FromSpec(spec);
  if (type == nullptr) return false;
  if (PyModule_AddObject(target, name, type) == 0) return true;
  Py_DECREF(type);
  return false;
}

}  // namespace

PyMODINIT_FUNC PyInit__calls() {
  PyObject *made = PyModule_Create(&module);
  if (made == nullptr) return nullptr;
  if (Add(made, "Call", &call_spec) && Add(made, "Row", &row_spec)) return made;
  Py_DECREF(made);
  return nullptr;
}
