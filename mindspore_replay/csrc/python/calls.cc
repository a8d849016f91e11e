// The extension module mindspore_replay._calls: calls kernels from Python with little overhead. Its objects are not
// thread-safe; the buffer's lock guards them, which a Guard takes.
#include "blocks.h"
#include "compressed.h"
#include "file.h"
#include "insert.h"
#include "invocation.h"
#include "items.h"
#include "mixture.h"

namespace {

namespace python = replay::python;

PyMethodDef functions[] = {
    {"compress", python::CompressRows, METH_VARARGS, nullptr},
    {"decompress", python::DecompressRows, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_calls", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__calls() {
  import_array();
  python::Held made(PyModule_Create(&module));
  PyObject *target = made.get();
  const bool added =
      target != nullptr && python::AddType<python::Call>(target) && python::AddType<python::Guard>(target) &&
      python::AddType<python::Insert>(target) && python::AddType<python::Invocation>(target) &&
      python::AddType<python::Items>(target) && python::AddType<python::Mixture>(target) &&
      python::AddType<python::Block>(target) && python::AddType<python::Locks>(target) &&
      python::AddType<python::Hold>(target) && python::AddType<python::Undo>(target) &&
#ifdef __linux__
      python::AddType<python::File>(target) &&
#endif
      python::AddType<python::Output>(target, {Py_tp_call, reinterpret_cast<void *>(python::Output::Call)});
  return added ? made.Release() : nullptr;
}
