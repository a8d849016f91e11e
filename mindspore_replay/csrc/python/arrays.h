// NumPy's arrays as kernels take them.
#ifndef MINDSPORE_REPLAY_PYTHON_ARRAYS_H_
#define MINDSPORE_REPLAY_PYTHON_ARRAYS_H_

#define PY_SSIZE_T_CLEAN
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <Python.h>
#include <numpy/arrayobject.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace replay::python {

// A reference that is given back when it goes.
class Held {
 public:
  explicit Held(PyObject *object = nullptr) : object_(object) {}
  Held(const Held &) = delete;
  Held &operator=(const Held &) = delete;
  ~Held() { Py_XDECREF(object_); }
  PyObject *get() const { return object_; }
  PyObject *Release() { return std::exchange(object_, nullptr); }

 private:
  PyObject *object_;
};

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

// The memory of one field of a row.
struct Place {
  char *memory;
  char kind;  // NumPy kind: b, i, u, f; 0 for bfloat16, whose bits are no numbers
  int64_t item_bytes;
  std::vector<npy_intp> shape;

  // True if a plain array has exactly this dtype, and this shape behind `lead` other axes.
  bool Fits(PyObject *object, int lead) const {
    if (!IsPlain(object)) return false;
    PyArrayObject *array = Array(object);
    const int ndim = static_cast<int>(shape.size());
    if (PyArray_DESCR(array)->kind != kind || PyArray_ITEMSIZE(array) != item_bytes ||
        PyArray_NDIM(array) != ndim + lead) {
      return false;
    }
    for (int axis = 0; axis < ndim; ++axis) {
      if (PyArray_DIM(array, axis + lead) != shape[axis]) return false;
    }
    return true;
  }
};

}  // namespace replay::python

#endif  // MINDSPORE_REPLAY_PYTHON_ARRAYS_H_
