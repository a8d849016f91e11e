// Arguments that come with each call of a kernel.
#ifndef MINDSPORE_REPLAY_PYTHON_INPUT_H_
#define MINDSPORE_REPLAY_PYTHON_INPUT_H_

#include <algorithm>

#include "arrays.h"
#include "call.h"
#include "guard.h"
#include "numbers.h"

namespace replay::python {

// The Tensors of a framework, which kernels read in place: their class, and a function that returns the address of one.
struct Tensors {
  Held kind, address_of;

  bool Are(PyObject *object) const { return reinterpret_cast<PyObject *>(Py_TYPE(object)) == kind.get(); }
};

// The leading axes of a call, in front of those of a row. The first input sets them, and all others have the same.
struct Lead {
  int axes = -1;
  npy_intp sizes[2] = {1, 1};

  npy_intp rows() const { return sizes[0] * sizes[1]; }
};

// The shape and memory of an array or Tensor.
struct View {
  int axes = 0;
  npy_intp sizes[NPY_MAXDIMS];
  void *memory = nullptr;
};

// Input(axes, or_one, casts, shape, dtype, is_bfloat16, dtype of Tensors): how many leading axes it has at most, whether
// one number does for all rows, whether arrays of other numbers are cast, and what it holds.
class Input {
 public:
  // Returns false with an exception set unless these are such arguments.
  bool Init(PyObject *args) {
    PyObject *shape, *dtype, *of_tensors;
    int is_bfloat16;
    if (!PyArg_ParseTuple(args, "ippO!OpO", &axes_, &or_one_, &casts_, &PyTuple_Type, &shape, &dtype, &is_bfloat16,
                          &of_tensors) ||
        !form_.Init(shape, dtype)) {
      return false;
    }
    of_tensors_ = NewHeld(of_tensors);
    const Held like(form_.Make());
    if (like.get() == nullptr) return false;
    place_ = {nullptr, is_bfloat16 != 0 ? '\0' : form_.dtype()->kind, PyArray_ITEMSIZE(Array(like.get()))};
    return true;
  }

  // Takes a value. Returns false, perhaps with an exception set, unless it is an array or Tensor of the dtype, or numbers
  // that can be cast to it by value, as `Schema.to_array` does.
  bool Take(PyObject *value, const Tensors &tensors, Inside *inside) {
    value_ = Held();
    if (tensors.Are(value)) {
      value_ = NewHeld(value);
      return IsReadable(value) && inside->Wait();
    }
    if (PyArray_CheckExact(value) && HasDtype(Array(value))) {
      value_ = IsPlain(value) ? NewHeld(value) : Plain(value);
      return value_.get() != nullptr;
    }
    place_.memory = reinterpret_cast<char *>(&number_);
    if (form_.shape.empty() && !(casts_ && IsBool(value)) && WriteNumber(value, place_)) return true;
    if (PyArray_CheckExact(value) ? casts_ == 0 : !AreNumbers(value)) return false;
    value_ = Cast(Plain(value).get());
    return value_.get() != nullptr;
  }

  // Points an argument of a call to the value. Returns false, perhaps with an exception set, if its shape does not fit.
  bool Bind(const Call &call, int at, const Tensors &tensors, Lead *lead) {
    View view;
    if (!Find(tensors, &view)) return false;
    const int axes = view.axes - static_cast<int>(form_.shape.size());
    if (axes < 0 || !std::equal(form_.shape.begin(), form_.shape.end(), view.sizes + axes)) return false;
    const bool is_one =
        or_one_ != 0 && lead->axes >= 0 && (axes == 0 || (lead->axes == 0 && axes == 1 && view.sizes[0] == 1));
    if (axes_ == 0 ? axes != 0 : !is_one && !Agree(axes, view.sizes, lead)) return false;
    call.params[at] = view.memory;
    if (axes_ == 1) call.shapes[at][0] = is_one ? 1 : lead->rows();
    if (axes_ == 2) std::copy(lead->sizes, lead->sizes + 2, call.shapes[at]);
    return true;
  }

  // Gives back what it holds.
  void Drop() { value_ = Held(); }

 private:
  bool HasDtype(PyArrayObject *array) const {
    return PyArray_TYPE(array) == form_.dtype()->type_num ||
           (PyArray_DESCR(array)->kind == place_.kind && PyArray_ITEMSIZE(array) == place_.item_bytes);
  }

  // Returns a plain array of these values; none if there is none.
  static Held Plain(PyObject *value) {
    Held made(PyArray_FROM_OF(value, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED));
    if (made.get() == nullptr && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
    return made;
  }

  // Returns numbers cast by value; none if one does not fit.
  Held Cast(PyObject *numbers) const {
    if (numbers == nullptr) return Held();
    PyArrayObject *given = Array(numbers);
    const char kind = PyArray_DESCR(given)->kind;
    Held made(Form{NewHeld(form_.descr.get()), {}}.Make(PyArray_NDIM(given), PyArray_DIMS(given)));
    if (made.get() == nullptr) return made;
    Place place = place_;
    place.memory = PyArray_BYTES(Array(made.get()));
    bool fits = false;
    if (kind == 'b') {
      fits = casts_ == 0 && WriteAll<npy_bool>(numbers, place, WriteBool);
    } else if (kind == 'i' || (kind == 'u' && PyArray_ITEMSIZE(given) < 8)) {
      const Held ints(PyArray_FROM_OTF(numbers, NPY_INT64, NPY_ARRAY_CARRAY_RO));
      fits = ints.get() != nullptr && WriteAll<int64_t>(ints.get(), place, WriteInt<int64_t>);
    } else if (kind == 'f' && PyArray_ITEMSIZE(given) <= 8) {
      const Held floats(PyArray_FROM_OTF(numbers, NPY_DOUBLE, NPY_ARRAY_CARRAY_RO));
      fits = floats.get() != nullptr && WriteAll<double>(floats.get(), place, WriteFloat<double>);
    }
    return fits ? std::move(made) : Held();
  }

  static bool AttributeIs(PyObject *object, const char *name, PyObject *wanted) {
    return Held(PyObject_GetAttrString(object, name)).get() == wanted;
  }

  // True for a Tensor of this dtype that a kernel can read in place.
  bool IsReadable(PyObject *tensor) const {
    return AttributeIs(tensor, "dtype", of_tensors_.get()) && AttributeIs(tensor, "has_init", Py_False) &&
           Held(PyObject_CallMethod(tensor, "is_contiguous", nullptr)).get() == Py_True;
  }

  // Finds the shape and memory of the value. Returns false, perhaps with an exception set, if it has none.
  bool Find(const Tensors &tensors, View *view) {
    PyObject *value = value_.get();
    if (value == nullptr) {
      view->memory = &number_;
      return true;
    }
    if (PyArray_CheckExact(value)) {
      view->axes = PyArray_NDIM(Array(value));
      std::copy(PyArray_DIMS(Array(value)), PyArray_DIMS(Array(value)) + view->axes, view->sizes);
      view->memory = PyArray_DATA(Array(value));
      return true;
    }
    const Held shape(PyObject_GetAttrString(value, "shape"));
    if (shape.get() == nullptr || !PyTuple_CheckExact(shape.get()) || PyTuple_GET_SIZE(shape.get()) > NPY_MAXDIMS)
      return false;
    for (; view->axes < PyTuple_GET_SIZE(shape.get()); ++view->axes) {
      view->sizes[view->axes] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape.get(), view->axes));
    }
    const Held address(PyObject_CallOneArg(tensors.address_of.get(), value));
    view->memory = address.get() == nullptr ? nullptr : PyLong_AsVoidPtr(address.get());
    return view->memory != nullptr;
  }

  // True if the leading axes are those of the call, which they may become; there is at least one row.
  bool Agree(int axes, const npy_intp *sizes, Lead *lead) const {
    if (lead->axes >= 0) return axes == lead->axes && std::equal(sizes, sizes + axes, lead->sizes);
    if (axes != axes_ && !(axes_ == 1 && axes == 0)) return false;
    lead->axes = axes;
    std::copy(sizes, sizes + axes, lead->sizes);
    return lead->rows() > 0;
  }

  int axes_ = 0, or_one_ = 0, casts_ = 0;
  Form form_;
  Place place_{};
  Held of_tensors_;
  Held value_;          // an array or Tensor; none for a number
  int64_t number_ = 0;  // the bytes of a number
};

}  // namespace replay::python

#endif  // MINDSPORE_REPLAY_PYTHON_INPUT_H_
