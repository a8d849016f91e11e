// A batch from several kernels that sample, each of which writes its own rows of the same arrays.
#pragma once

#include <deque>

#include "invocation.h"

namespace replay::python {

// Mixture(guards, parts, share): the guards of all parts, in the order in which they are taken; for each part its
// `Invocation`, whose guard is one of these, the array that counts its rows to draw from, how many of them it needs, and
// whether its outputs begin with handles, and then with weights; and a function that converts an array, or None.
struct Mixture {
  static constexpr char kName[] = "mindspore_replay._calls.Mixture";
  static constexpr size_t kOthers = 3;  // the outputs that each part has follow these

  struct Part {
    Ref<Invocation> draw;
    Held counted;  // int32 or float64
    double needed;
    int has_handles, has_weights;
    npy_intp rows;

    bool Init(PyObject *args) {
      PyObject *given, *count;
      if (!PyArg_ParseTuple(args, "OOdpp", &given, &count, &needed, &has_handles, &has_weights) || !draw.Take(given))
        return false;
      counted = NewHeld(count);
      rows = draw->outputs.empty() ? 0 : draw->outputs[0].output->form.shape.at(0);
      return true;
    }
    bool HasRows() const {
      const void *data = PyArray_DATA(Array(counted.get()));
      return (PyArray_TYPE(Array(counted.get())) == NPY_DOUBLE ? *static_cast<const double *>(data)
                                                               : *static_cast<const int32_t *>(data)) >= needed;
    }
    // The number of its outputs that not each part has.
    size_t Own() const { return static_cast<size_t>(has_handles + has_weights); }
    // The place in the batch of its output i.
    size_t PlaceOf(size_t i) const {
      if (i >= Own()) return i - Own() + kOthers;
      return i == 0 && has_handles != 0 ? 1 : 2;
    }
  };

  std::vector<Ref<Guard>> guards;
  std::vector<Part> parts;
  std::vector<Output> outputs;  // of a batch: sources, handles, weights and the others
  Held share;
  npy_intp total = 0;

  bool Init(PyObject *args) {
    PyObject *held, *drawn, *shared;
    if (!PyArg_ParseTuple(args, "O!O!O", &PyTuple_Type, &held, &PyTuple_Type, &drawn, &shared)) return false;
    share = NewHeld(shared);
    guards.resize(static_cast<size_t>(PyTuple_Size(held)));
    parts.resize(static_cast<size_t>(PyTuple_Size(drawn)));
    for (size_t i = 0; i < guards.size(); ++i) {
      if (!guards[i].Take(PyTuple_GetItem(held, static_cast<Py_ssize_t>(i)))) return false;
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i].Init(PyTuple_GetItem(drawn, static_cast<Py_ssize_t>(i)))) return false;
      total += parts[i].rows;
    }
    for (const int type : {NPY_INT32, NPY_INT64, NPY_FLOAT32}) {
      AddOutput(Held(reinterpret_cast<PyObject *>(PyArray_DescrFromType(type))), {total});
    }
    for (size_t i = parts.empty() ? 0 : parts[0].Own(); !parts.empty() && i < parts[0].draw->outputs.size(); ++i) {
      const Form &form = parts[0].draw->outputs[i].output->form;
      AddOutput(NewHeld(form.descr.get()), form.shape);
      outputs.back().form.shape.at(0) = total;
    }
    if (!parts.empty() && std::all_of(parts.begin(), parts.end(), [&](const Part &part) { return Fits(part); })) {
      return true;
    }
    PyErr_SetString(PyExc_ValueError, "the outputs of a part do not fit");
    return false;
  }

  // now(with_indices): draws a batch, and returns its arrays, converted, without handles and weights unless they are wanted. An
  // int, and nothing was drawn, if a part has too few rows or its buffer was closed.
  PyObject *Now(PyObject *const *args, Py_ssize_t nargs) {
    const int with_indices = nargs == 1 ? PyObject_IsTrue(args[0]) : -1;
    if (with_indices < 0) return PyErr_Occurred() ? nullptr : PyErr_Format(PyExc_TypeError, "now(with_indices)");
    std::deque<Inside> held;
    for (const Ref<Guard> &guard : guards) {
      held.emplace_back(guard.get());
      if (!held.back().ok()) return PyErr_Occurred() ? nullptr : PyLong_FromLong(-1);
    }
    if (!std::all_of(parts.begin(), parts.end(), [](const Part &part) { return part.HasRows(); }))
      return PyLong_FromLong(-1);
    std::vector<Held> arrays;
    for (Output &output : outputs) {
      arrays.emplace_back(output.Make());
      if (arrays.back().get() == nullptr) return nullptr;
    }
    if (const int status = Draw(arrays)) return PyLong_FromLong(status);
    const size_t skipped = with_indices != 0 ? 0 : kOthers - 1;
    Held batch(PyTuple_New(static_cast<Py_ssize_t>(arrays.size() - skipped)));
    if (batch.get() == nullptr) return nullptr;
    Py_ssize_t at = 0;
    for (size_t i = 0; i < arrays.size(); i += i == 0 ? 1 + skipped : 1) {
      PyObject *shared = share.get() == Py_None ? arrays[i].Release() : CallWith(share.get(), arrays[i].get());
      if (shared == nullptr) return nullptr;
      PyTuple_SetItem(batch.get(), at++, shared);
    }
    return batch.Release();
  }

  static inline PyMethodDef methods[] = {Method<Mixture, &Mixture::Now>("now"), {nullptr, nullptr, 0, nullptr}};

 private:
  void AddOutput(Held descr, std::vector<npy_intp> shape) {
    outputs.emplace_back();
    outputs.back().form = {std::move(descr), std::move(shape)};
  }

  // True if the outputs of a part are rows of those of the batch, and nothing is missing.
  bool Fits(const Part &part) const {
    const std::vector<Invocation::Result> &own = part.draw->outputs;
    if (own.size() <= part.Own() || part.PlaceOf(own.size()) != outputs.size() || !PyArray_Check(part.counted.get()))
      return false;
    for (size_t i = 0; i < own.size(); ++i) {
      const Form &form = own[i].output->form, &whole = outputs[part.PlaceOf(i)].form;
      if (own[i].axes != 0 || form.shape.empty() || form.shape[0] != part.rows ||
          PyArray_EquivTypes(form.dtype(), whole.dtype()) == 0 ||
          !std::equal(form.shape.begin() + 1, form.shape.end(), whole.shape.begin() + 1, whole.shape.end())) {
        return false;
      }
    }
    return true;
  }

  // Fills the arrays. Returns the status of the kernel that failed, else 0.
  int Draw(const std::vector<Held> &arrays) {
    npy_intp first = 0;
    for (size_t k = 0; k < parts.size(); ++k) {
      const Part &part = parts[k];
      const auto at = [&](size_t i) {
        PyArrayObject *array = Array(arrays[i].get());
        return static_cast<char *>(PyArray_DATA(array)) + first * (PyArray_NBYTES(array) / total);
      };
      const std::vector<Invocation::Result> &own = part.draw->outputs;
      for (size_t i = 0; i < own.size(); ++i) part.draw->call->params[own[i].at] = at(part.PlaceOf(i));
      std::fill_n(reinterpret_cast<int32_t *>(at(0)), part.rows, static_cast<int32_t>(k));
      if (part.has_handles == 0) std::fill_n(reinterpret_cast<int64_t *>(at(1)), part.rows, -1);
      if (part.has_weights == 0) std::fill_n(reinterpret_cast<float *>(at(2)), part.rows, 1.0f);
      if (const int status = part.draw->call->Run()) return status;
      first += part.rows;
    }
    return 0;
  }
};

}  // namespace replay::python
