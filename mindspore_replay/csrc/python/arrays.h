// NumPy's arrays as kernels take them.
#pragma once

#include "object.h"

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace replay::python {

inline PyArrayObject *Array(PyObject *object) { return reinterpret_cast<PyArrayObject *>(object); }

// True for a contiguous array in the machine's byte order.
inline bool IsPlain(PyObject *object) {
  return PyArray_CheckExact(object) && PyArray_IS_C_CONTIGUOUS(Array(object)) && PyArray_ISNOTSWAPPED(Array(object));
}

// True for a plain array of this type, [n].
inline bool IsVector(PyObject *object, int type, Py_ssize_t n) {
  return IsPlain(object) && PyArray_TYPE(Array(object)) == type && PyArray_NDIM(Array(object)) == 1 &&
         PyArray_DIM(Array(object), 0) == n;
}

// The shape and dtype of an array.
struct Form {
  Held descr;
  std::vector<npy_intp> shape;

  // Returns false with an exception set unless these are a tuple of ints and a dtype.
  bool Init(PyObject *axes, PyObject *dtype) {
    PyArray_Descr *found = nullptr;
    if (PyArray_DescrConverter(dtype, &found) == NPY_FAIL) return false;
    descr = Held(reinterpret_cast<PyObject *>(found));
    for (Py_ssize_t axis = 0; axis < PyTuple_Size(axes); ++axis) {
      shape.push_back(PyLong_AsSsize_t(PyTuple_GetItem(axes, axis)));
    }
    return !PyErr_Occurred();
  }

  PyArray_Descr *dtype() const { return reinterpret_cast<PyArray_Descr *>(descr.get()); }

  // Returns a new array with any contents, with `axes` leading axes in front; null with an exception set if there is no memory.
  PyObject *Make(int axes = 0, const npy_intp *lead = nullptr) const {
    npy_intp sizes[NPY_MAXDIMS];
    std::copy(shape.begin(), shape.end(), std::copy(lead, lead + axes, sizes));
    Py_INCREF(descr.get());  // the array takes it
    return PyArray_NewFromDescr(&PyArray_Type, dtype(), axes + static_cast<int>(shape.size()), sizes, nullptr, nullptr,
                                0, nullptr);
  }
};

}  // namespace replay::python
