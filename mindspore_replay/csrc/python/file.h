// A file that is open as long as an object of Python.
#pragma once

#ifdef __linux__
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "object.h"

namespace replay::python {

// File(path, flags): opens a file; the path is bytes. It is closed once, with the object at the latest.
struct File {
  static constexpr char kName[] = "mindspore_replay._calls.File";

  int descriptor = -1;

  File() = default;
  File(const File &) = delete;
  File &operator=(const File &) = delete;
  ~File() { Close(); }

  bool Init(PyObject *args) {
    PyObject *path;
    int flags;
    if (!PyArg_ParseTuple(args, "O!i", &PyBytes_Type, &path, &flags)) return false;
    while ((descriptor = open(PyBytes_AsString(path), flags | O_CLOEXEC, 0600)) < 0) {
      if (errno == EINTR && PyErr_CheckSignals() == 0) continue;
      if (!PyErr_Occurred()) {
        Held text(PyUnicode_DecodeFSDefault(PyBytes_AsString(path)));
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, text.get());
      }
      return false;
    }
    return true;
  }

  void Close() {
    if (descriptor >= 0) close(std::exchange(descriptor, -1));
  }

  // close(): closes the file now, if it is open.
  static PyObject *CloseNow(PyObject *object, PyObject *) {
    ValueOf<File>(object)->Close();
    Py_RETURN_NONE;
  }

  // fileno(): the descriptor, -1 if the file is closed.
  static PyObject *Number(PyObject *object, PyObject *) { return PyLong_FromLong(ValueOf<File>(object)->descriptor); }

  static inline PyMethodDef methods[] = {{"close", CloseNow, METH_NOARGS, nullptr},
                                         {"fileno", Number, METH_NOARGS, nullptr},
                                         {nullptr, nullptr, 0, nullptr}};
};

}  // namespace replay::python
#endif
