// Arguments that come with each call of a kernel.
#pragma once

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

// Input(axes, or_one, bools, shape, dtype, is_bfloat16, dtype of Tensors): how many leading axes it has at most, whether
// one number does for all rows, whether bools are numbers, and what it holds.
class Input {
 public:
  // Returns false with an exception set unless these are such arguments.
  bool Init(PyObject *args) {
    PyObject *shape, *dtype, *of_tensors;
    int is_bfloat16;
    if (!PyArg_ParseTuple(args, "ippO!OpO", &axes_, &or_one_, &bools_, &PyTuple_Type, &shape, &dtype, &is_bfloat16,
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
  // that can be cast to it, as `store/base/casts.py` has it.
  bool Take(PyObject *value, const Tensors &tensors, Inside *inside) {
    if (PyArray_CheckExact(value) && HasDtype(Array(value)) && IsPlain(value)) return Hold(Py_NewRef(value));
    return TakeOther(value, tensors, inside);
  }

  // True for a plain array of the dtype with one leading axis, of less than 2^31.
  bool Fits(PyObject *value) const {
    if (!PyArray_CheckExact(value) || !HasDtype(Array(value)) || !IsPlain(value)) return false;
    const size_t axes = form_.shape.size();
    return PyArray_NDIM(Array(value)) == static_cast<int>(axes) + 1 && PyArray_DIM(Array(value), 0) <= INT32_MAX &&
           std::equal(form_.shape.begin(), form_.shape.end(), PyArray_DIMS(Array(value)) + 1);
  }

  // Returns the joined items of a list of arrays that fit; null with an exception set if there is no memory.
  PyObject *Joined(PyObject *arrays) const {
    npy_intp size = 0;
    for (Py_ssize_t i = 0; i < SizeOf(arrays); ++i) size += PyArray_DIM(Array(ItemOf(arrays, i)), 0);
    PyObject *made = form_.Make(1, &size);
    if (made == nullptr) return nullptr;
    char *end = PyArray_BYTES(Array(made));
    for (Py_ssize_t i = 0; i < SizeOf(arrays); ++i) {
      PyArrayObject *array = Array(ItemOf(arrays, i));
      std::memcpy(end, PyArray_DATA(array), static_cast<size_t>(PyArray_NBYTES(array)));
      end += PyArray_NBYTES(array);
    }
    return made;
  }

  // Points an argument of a call to the value. Returns false if its shape does not fit.
  bool Bind(const Call &call, int at, Lead *lead) const {
    const int axes = axes_found_ - static_cast<int>(form_.shape.size());
    if (axes < 0) return false;
    const npy_intp *size = sizes_ + axes;
    for (const npy_intp wanted : form_.shape) {
      if (*size++ != wanted) return false;
    }
    call.params[at] = memory_;
    if (axes_ == 0) return axes == 0;
    if (or_one_ != 0 && lead->axes >= 0 && (axes == 0 || (lead->axes == 0 && axes == 1 && sizes_[0] == 1))) {
      call.SetSize(at, 0, 1);
      return true;
    }
    if (lead->axes < 0 ? !SetLead(axes, lead) : !HasLead(axes, *lead)) return false;
    for (int axis = 0; axis < axes_; ++axis) call.SetSize(at, axis, lead->sizes[axis]);
    return true;
  }

  // Gives back what it holds.
  void Drop() { value_ = Held(); }

 private:
  bool HasDtype(PyArrayObject *array) const {
    return PyArray_TYPE(array) == form_.dtype()->type_num ||
           (PyArray_DESCR(array)->kind == place_.kind && PyArray_ITEMSIZE(array) == place_.item_bytes);
  }

  // Not inlined, so that taking an array costs little.
  __attribute__((noinline)) bool TakeOther(PyObject *value, const Tensors &tensors, Inside *inside) {
    place_.memory = reinterpret_cast<char *>(&number_);
    if (form_.shape.empty() && (bools_ != 0 || !IsBool(value)) && WriteNumber(value, place_)) {
      axes_found_ = 0;
      memory_ = &number_;
      return true;
    }
    const Held keeps = NewHeld(value);  // another thread might take it from its list
    if (tensors.Are(value)) return HoldTensor(value, tensors, inside);
    const bool is_array = PyArray_CheckExact(value);
    if (is_array && HasDtype(Array(value))) return Hold(Plain(value));
    if (is_array ? place_.kind == '\0' && PyArray_TYPE(Array(value)) == NPY_UINT16 : !AreNumbers(value)) return false;
    const Held numbers(Plain(value));
    return numbers.get() != nullptr && Hold(Cast(numbers.get()));
  }

  // Returns a plain array of these values; null, perhaps with an exception set, if there is none.
  static PyObject *Plain(PyObject *value) {
    PyObject *made = PyArray_FROM_OF(value, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED);
    if (made == nullptr && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
    return made;
  }

  // Returns numbers cast; null, perhaps with an exception set, if one does not fit.
  PyObject *Cast(PyObject *numbers) const {
    PyArrayObject *given = Array(numbers);
    const char kind = PyArray_DESCR(given)->kind;
    Held made(Form{NewHeld(form_.descr.get()), {}}.Make(PyArray_NDIM(given), PyArray_DIMS(given)));
    if (made.get() == nullptr) return nullptr;
    Place place = place_;
    place.memory = PyArray_BYTES(Array(made.get()));
    bool fits = false;
    if (kind == 'b') {
      fits = bools_ != 0 && WriteAll<npy_bool>(numbers, place, WriteBool);
    } else if (kind == 'i' || (kind == 'u' && PyArray_ITEMSIZE(given) < 8)) {
      const Held ints(PyArray_FROM_OTF(numbers, NPY_INT64, NPY_ARRAY_CARRAY_RO));
      fits = ints.get() != nullptr && WriteAll<int64_t>(ints.get(), place, WriteInt<int64_t>);
    } else if (kind == 'f' && PyArray_ITEMSIZE(given) <= 8) {
      const Held floats(PyArray_FROM_OTF(numbers, NPY_DOUBLE, NPY_ARRAY_CARRAY_RO));
      fits = floats.get() != nullptr && WriteAll<double>(floats.get(), place, WriteFloat<double>);
    }
    return fits ? made.Release() : nullptr;
  }

  static bool AttributeIs(PyObject *object, const char *name, PyObject *wanted) {
    return Held(PyObject_GetAttrString(object, name)).get() == wanted;
  }

  // Holds a plain array, which it takes over; false if it is null.
  bool Hold(PyObject *array) {
    if (array == nullptr) return false;
    value_ = Held(array);
    axes_found_ = PyArray_NDIM(Array(array));
    sizes_ = PyArray_DIMS(Array(array));
    memory_ = PyArray_DATA(Array(array));
    return true;
  }

  // Holds a Tensor. Returns false, perhaps with an exception set, unless a kernel can read it in place.
  bool HoldTensor(PyObject *tensor, const Tensors &tensors, Inside *inside) {
    value_ = NewHeld(tensor);
    if (!AttributeIs(tensor, "dtype", of_tensors_.get()) || !AttributeIs(tensor, "has_init", Py_False) ||
        Held(PyObject_CallMethod(tensor, "is_contiguous", nullptr)).get() != Py_True || !inside->Wait()) {
      return false;
    }
    const Held shape(PyObject_GetAttrString(tensor, "shape"));
    if (shape.get() == nullptr || !PyTuple_CheckExact(shape.get())) return false;
    axes_found_ = static_cast<int>(PyTuple_Size(shape.get()));
    of_tensor_.resize(static_cast<size_t>(axes_found_));
    for (int i = 0; i < axes_found_; ++i) of_tensor_[i] = PyLong_AsSsize_t(PyTuple_GetItem(shape.get(), i));
    sizes_ = of_tensor_.data();
    const Held address(CallWith(tensors.address_of.get(), tensor));
    memory_ = address.get() == nullptr ? nullptr : PyLong_AsVoidPtr(address.get());
    return memory_ != nullptr;
  }

  // Makes the leading axes those of the call. Returns false if they cannot be, or there is no row.
  bool SetLead(int axes, Lead *lead) const {
    if (axes != axes_ && (axes_ != 1 || axes != 0)) return false;
    lead->axes = axes;
    std::copy(sizes_, sizes_ + axes, lead->sizes);
    return lead->rows() > 0;
  }

  bool HasLead(int axes, const Lead &lead) const {
    return axes == lead.axes && (axes < 1 || sizes_[0] == lead.sizes[0]) && (axes < 2 || sizes_[1] == lead.sizes[1]);
  }

  int axes_ = 0, or_one_ = 0, bools_ = 0;
  Form form_;
  Place place_{};
  Held of_tensors_;
  // The value that it took: an array or Tensor, or the bytes of a number.
  Held value_;
  int64_t number_ = 0;
  int axes_found_ = 0;
  const npy_intp *sizes_ = nullptr;
  void *memory_ = nullptr;
  std::vector<npy_intp> of_tensor_;
};

}  // namespace replay::python
