// The extension module mindspore_replay._calls: calls kernels from Python with little overhead. Its objects are not
// thread-safe; the buffer's lock guards them, which a Guard takes.
#include "change.h"
#include "compressed.h"
#include "give.h"
#include "insert.h"

namespace {

using replay::python::call_spec;
using replay::python::change_spec;
using replay::python::give_spec;
using replay::python::guard_spec;
using replay::python::insert_spec;
using replay::python::output_spec;

PyMethodDef functions[] = {
    {"compress", replay::python::CompressRows, METH_VARARGS, nullptr},
    {"decompress", replay::python::DecompressRows, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_calls", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

bool Add(PyObject *target, const char *name, PyType_Spec *spec) {
  PyObject *type = PyType_FromSpec(spec);
  if (type == nullptr) return false;
  if (PyModule_AddObject(target, name, type) == 0) return true;
  Py_DECREF(type);
  return false;
}

}  // namespace

PyMODINIT_FUNC PyInit__calls() {
  import_array();
  PyObject *made = PyModule_Create(&module);
  if (made == nullptr) return nullptr;
  if (Add(made, "Call", &call_spec) && Add(made, "Guard", &guard_spec) && Add(made, "Insert", &insert_spec) &&
      Add(made, "Output", &output_spec) && Add(made, "Give", &give_spec) && Add(made, "Change", &change_spec)) {
    return made;
  }
  Py_DECREF(made);
  return nullptr;
}
