// A kernel with what comes with each call and what it gives.
#pragma once

#include "guard.h"
#include "input.h"
#include "output.h"

namespace replay::python {

// Invocation(guard, call, inputs, outputs, alone, share, kind, address_of): a guard or None; the kernel; for each input its
// place in the call and its `Input`; for each output its place, its number of leading axes, with none of which its memory
// is used again, and its Output; whether the only output is given without a tuple; a function that converts an array, or
// None; and `Tensors`, or None.
struct Invocation {
  static constexpr char kName[] = "mindspore_replay._calls.Invocation";
  static constexpr char kKind[] = "an Invocation";

  struct Argument {
    int at;
    Input input;
  };
  struct Result {
    int at, axes;
    Ref<Output> output;
  };

  Ref<Guard> guard;
  Ref<Call> call;
  std::vector<Argument> inputs;
  std::vector<Result> outputs;
  int alone = 0;
  Held share;
  Tensors tensors;

  bool Init(PyObject *args) {
    PyObject *guard_given, *call_given, *inputs_given, *outputs_given, *share_given, *kind, *address_of;
    if (!PyArg_ParseTuple(args, "OOO!O!pOOO", &guard_given, &call_given, &PyTuple_Type, &inputs_given, &PyTuple_Type,
                          &outputs_given, &alone, &share_given, &kind, &address_of) ||
        (guard_given != Py_None && !guard.Take(guard_given)) || !call.Take(call_given)) {
      return false;
    }
    share = NewHeld(share_given);
    tensors = {NewHeld(kind), NewHeld(address_of)};
    inputs.resize(static_cast<size_t>(PyTuple_Size(inputs_given)));
    for (size_t i = 0; i < inputs.size(); ++i) {
      PyObject *input;
      if (!PyArg_ParseTuple(PyTuple_GetItem(inputs_given, i), "iO", &inputs[i].at, &input) ||
          !call->Has(inputs[i].at) || !inputs[i].input.Init(input)) {
        return false;
      }
    }
    outputs.resize(static_cast<size_t>(PyTuple_Size(outputs_given)));
    for (size_t i = 0; i < outputs.size(); ++i) {
      PyObject *output;
      if (!PyArg_ParseTuple(PyTuple_GetItem(outputs_given, i), "iiO", &outputs[i].at, &outputs[i].axes, &output) ||
          !call->Has(outputs[i].at) || !outputs[i].output.Take(output)) {
        return false;
      }
    }
    return true;
  }

  // now(*inputs, skip=0): runs the kernel and returns a tuple of its outputs without the first `skip`, or the only one,
  // converted by `share`. Returns an int, and nothing has changed, if the caller has to convert the inputs first, or to
  // raise the error: the status of the kernel, or -1 if it did not run.
  PyObject *Now(PyObject *const *args, Py_ssize_t nargs) {
    const auto count = static_cast<Py_ssize_t>(inputs.size());
    if (nargs != count && nargs != count + 1)
      return PyErr_Format(PyExc_TypeError, "now(*inputs) needs %zd of them", count);
    const Py_ssize_t skip = nargs == count ? 0 : PyLong_AsSsize_t(args[count]);
    if (PyErr_Occurred()) return nullptr;
    if (skip < 0 || skip > static_cast<Py_ssize_t>(outputs.size())) {
      return PyErr_Format(PyExc_IndexError, "there are fewer outputs than %zd", skip);
    }
    Inside inside(guard.get());
    PyObject *given = nullptr;
    if (inside.ok()) {
      Lead lead;
      if (Bind(args, &inside, &lead)) given = Run(static_cast<size_t>(skip), lead);
      for (Argument &argument : inputs) argument.input.Drop();
    }
    return given != nullptr || PyErr_Occurred() ? given : PyLong_FromLong(-1);
  }

  static inline PyMethodDef methods[] = {Method<Invocation, &Invocation::Now>("now"), {nullptr, nullptr, 0, nullptr}};

 private:
  bool Bind(PyObject *const *args, Inside *inside, Lead *lead) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].input.Take(args[i], tensors, inside)) return false;
    }
    return std::all_of(inputs.begin(), inputs.end(),
                       [&](Argument &argument) { return argument.input.Bind(*call, argument.at, lead); });
  }

  PyObject *Run(size_t skip, const Lead &lead) {
    const size_t count = outputs.size();
    Held arrays(PyTuple_New(static_cast<Py_ssize_t>(count)));
    if (arrays.get() == nullptr) return nullptr;
    for (size_t i = 0; i < count; ++i) {
      const Result &result = outputs[i];
      PyObject *made = result.axes == 0 ? result.output->Make() : result.output->form.Make(lead.axes, lead.sizes);
      if (made == nullptr) return nullptr;
      PyTuple_SetItem(arrays.get(), static_cast<Py_ssize_t>(i), made);
      call->params[result.at] = PyArray_DATA(Array(made));
      if (result.axes == 1) call->SetSize(result.at, 0, lead.rows());
      for (int axis = 0; result.axes == 2 && axis < 2; ++axis) call->SetSize(result.at, axis, lead.sizes[axis]);
    }
    const int status = call->Run();
    if (status != 0) return PyLong_FromLong(status);
    if (alone != 0) return Shared(arrays.get(), 0);
    Held given(PyTuple_New(static_cast<Py_ssize_t>(count - skip)));
    if (given.get() == nullptr) return nullptr;
    for (size_t i = skip; i < count; ++i) {
      PyObject *shared = Shared(arrays.get(), i);
      if (shared == nullptr) return nullptr;
      PyTuple_SetItem(given.get(), static_cast<Py_ssize_t>(i - skip), shared);
    }
    return given.Release();
  }

  PyObject *Shared(PyObject *arrays, size_t i) const {
    PyObject *array = PyTuple_GetItem(arrays, static_cast<Py_ssize_t>(i));
    return share.get() == Py_None ? Py_NewRef(array) : CallWith(share.get(), array);
  }
};

}  // namespace replay::python
