// Stores rows that fit, in one call.
#pragma once

#include "guard.h"
#include "input.h"

namespace replay::python {

// Insert(guard, kernels, names, fields, priority, version, (end bits, final bits), num_envs, prioritized, kind, address_of, kinds): a
// guard or None; for insertions without versions, and with them, the kernel and the places of rows, ends, priorities,
// versions and lengths, -1 if it has none; the columns' names or None; an `Input` for each column, for priorities and for
// versions; the bits of flags; whether `now` takes priorities, which `store` always does; `Tensors`, or None; and for each
// column the number of its kind of lengths, -1 for rows of one length. If there is such a kind, `now` stores one row.
struct Insert {
  static constexpr char kName[] = "mindspore_replay._calls.Insert";

  struct Kernel {
    Ref<Call> call;
    int rows_at = -1, ends_at = -1, priority_at = -1, version_at = -1, lengths_at = -1;
    void *largest = nullptr;  // the priority of rows that come without one

    bool Init(PyObject *args) {
      PyObject *given;
      if (!PyArg_ParseTuple(args, "Oiiiii", &given, &rows_at, &ends_at, &priority_at, &version_at, &lengths_at) ||
          !call.Take(given)) {
        return false;
      }
      for (const int at : {rows_at, ends_at, priority_at, version_at, lengths_at}) {
        if (at >= call->size) return call->Has(at);
      }
      if (priority_at >= 0) largest = call->params[priority_at];
      return true;
    }
  };

  Ref<Guard> guard;
  Kernel kernels[2];
  Held names;
  std::vector<Input> fields;
  Input priority, version;
  uint8_t end_bits, final_bits;
  Py_ssize_t num_envs;
  int prioritized;
  Tensors tensors;
  std::vector<uint8_t> ends;
  std::vector<int> kinds;
  std::vector<int32_t> lengths;  // of each kind; -1 if no column of it was bound

  bool Init(PyObject *args) {
    PyObject *guarding, *of_kernels, *columns, *inputs, *of_priority, *of_version, *kind, *address_of, *of_lengths;
    if (!PyArg_ParseTuple(args, "OO!OO!OO(bb)npOOO!", &guarding, &PyTuple_Type, &of_kernels, &columns, &PyTuple_Type,
                          &inputs, &of_priority, &of_version, &end_bits, &final_bits, &num_envs, &prioritized, &kind,
                          &address_of, &PyTuple_Type, &of_lengths) ||
        (guarding != Py_None && !guard.Take(guarding)) || !priority.Init(of_priority) || !version.Init(of_version)) {
      return false;
    }
    for (Py_ssize_t i = 0; i < std::min<Py_ssize_t>(PyTuple_Size(of_kernels), 2); ++i) {
      if (!kernels[i].Init(PyTuple_GetItem(of_kernels, i))) return false;
    }
    names = NewHeld(columns);
    tensors = {NewHeld(kind), NewHeld(address_of)};
    fields.resize(static_cast<size_t>(PyTuple_Size(inputs)));
    for (size_t i = 0; i < fields.size(); ++i) {
      if (!fields[i].Init(PyTuple_GetItem(inputs, static_cast<Py_ssize_t>(i)))) return false;
      kinds.push_back(static_cast<int>(PyLong_AsLong(PyTuple_GetItem(of_lengths, static_cast<Py_ssize_t>(i)))));
      lengths.resize(std::max(lengths.size(), static_cast<size_t>(kinds.back() + 1)));
    }
    if (PyErr_Occurred()) return false;
    return true;
  }

  // now(exp, priority, end, final, version=None): stores one row or a batch. Returns False, and has stored nothing, if the
  // caller has to convert the arguments or to raise the error.
  PyObject *Now(PyObject *const *args, Py_ssize_t nargs) {
    const int status = StoreGiven(args, nargs, true);
    return PyErr_Occurred() ? nullptr : PyBool_FromLong(status == 0);
  }

  // rows(...): the number of rows that `now` would store with these arguments; -1 if they do not fit.
  PyObject *RowsOf(PyObject *const *args, Py_ssize_t nargs) {
    const int rows = StoreGiven(args, nargs, false);
    return PyErr_Occurred() ? nullptr : PyLong_FromLong(rows);
  }

  // store(fields, priority, ends, version): stores rows that were checked. Returns the status of the kernel.
  PyObject *StoreChecked(PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 4) return PyErr_Format(PyExc_TypeError, "store(fields, priority, ends, version) needs four arguments");
    const int status = Store(args[0], args[1], args[3], true, [&](const Kernel &kernel, Py_ssize_t rows) {
      if (args[2] == Py_None) return BindFlags(kernel, Py_False, Py_False, rows);
      if (!IsVector(args[2], NPY_UINT8, rows)) rows = 1;
      if (kernel.ends_at < 0 || !IsVector(args[2], NPY_UINT8, rows)) return false;
      kernel.call->Bind(kernel.ends_at, PyArray_DATA(Array(args[2])), rows);
      return true;
    });
    return PyErr_Occurred() ? nullptr : PyLong_FromLong(status);
  }

  static inline PyMethodDef methods[] = {
      Method<Insert, &Insert::Now>("now"),
      Method<Insert, &Insert::RowsOf>("rows"),
      Method<Insert, &Insert::StoreChecked>("store"),
      {nullptr, nullptr, 0, nullptr},
  };

 private:
  int StoreGiven(PyObject *const *args, Py_ssize_t nargs, bool runs) {
    if (nargs != 4 && nargs != 5) {
      PyErr_SetString(PyExc_TypeError, "now(exp, priority, end, final, version=None) needs four or five arguments");
      return -1;
    }
    if (args[1] != Py_None && prioritized == 0) return -1;
    return Store(args[0], args[1], nargs == 5 ? args[4] : Py_None, runs,
                 [&](const Kernel &kernel, Py_ssize_t rows) { return BindFlags(kernel, args[2], args[3], rows); });
  }

  // Returns the status of the kernel, or the number of rows unless it `runs`; -1 if the arguments do not fit.
  template <typename BindEnds>
  int Store(PyObject *exp, PyObject *priority_given, PyObject *version_given, bool runs, const BindEnds &bind_ends) {
    Inside inside(guard.get());
    if (!inside.ok()) return -1;
    Lead lead;
    const Kernel &kernel = kernels[version_given != Py_None];
    const bool fits = TakeFields(exp, &inside) && BindFields(kernel, &lead) &&
                      BindOptional(kernel, kernel.priority_at, priority_given, &inside, &priority, &lead) &&
                      BindOptional(kernel, kernel.version_at, version_given, &inside, &version, &lead) &&
                      bind_ends(kernel, lead.rows());
    const int result = !fits ? -1 : runs ? kernel.call->Run() : static_cast<int>(lead.rows());
    for (Input &field : fields) field.Drop();
    priority.Drop();
    version.Drop();
    return result;
  }

  // Takes the fields of a list, a tuple or a dict with exactly the columns' names. Returns false, perhaps with an exception
  // set, for anything else.
  bool TakeFields(PyObject *exp, Inside *inside) {
    const auto width = static_cast<Py_ssize_t>(fields.size());
    PyObject *(*item)(PyObject *, Py_ssize_t) = PyList_CheckExact(exp)    ? PyList_GetItem
                                                : PyTuple_CheckExact(exp) ? PyTuple_GetItem
                                                                          : nullptr;
    if (item != nullptr ? SizeOf(exp) != width
                        : !PyDict_CheckExact(exp) || names.get() == Py_None || PyDict_Size(exp) != width) {
      return false;
    }
    for (Py_ssize_t i = 0; i < width; ++i) {
      PyObject *field = item != nullptr ? item(exp, i) : PyDict_GetItemWithError(exp, PyTuple_GetItem(names.get(), i));
      if (field == nullptr) return false;
      if (!fields[static_cast<size_t>(i)].Take(field, tensors, inside)) return false;
    }
    return true;
  }

  bool BindFields(const Kernel &kernel, Lead *lead) {
    if (kernel.call.get() == nullptr) return false;
    if (!lengths.empty()) lead->axes = 0;
    std::fill(lengths.begin(), lengths.end(), -1);
    for (size_t i = 0; i < fields.size(); ++i) {
      const int at = kernel.rows_at + static_cast<int>(i);
      if (kinds[i] < 0 ? !fields[i].Bind(*kernel.call, at, lead) : !BindItems(kernel, at, i)) return false;
    }
    return lead->axes == 0 ? num_envs == 1 : lead->sizes[0] % num_envs == 0;
  }

  // Binds the items of one row, which has the length that other columns of its kind have.
  bool BindItems(const Kernel &kernel, int at, size_t field) {
    Lead items;
    if (!fields[field].Bind(*kernel.call, at, &items) || items.axes != 1 || items.sizes[0] > INT32_MAX) return false;
    int32_t &length = lengths[static_cast<size_t>(kinds[field])];
    if (length >= 0 && length != items.sizes[0]) return false;
    length = static_cast<int32_t>(items.sizes[0]);
    kernel.call->Bind(kernel.lengths_at + kinds[field], &length, 1);
    return true;
  }

  bool BindOptional(const Kernel &kernel, int at, PyObject *value, Inside *inside, Input *input, Lead *lead) {
    if (value != Py_None) {
      return at >= 0 && input->Take(value, tensors, inside) && input->Bind(*kernel.call, at, lead);
    }
    if (at >= 0) kernel.call->Bind(at, kernel.largest, 1);
    return true;
  }

  bool BindFlags(const Kernel &kernel, PyObject *end, PyObject *final, Py_ssize_t rows) {
    if (kernel.ends_at < 0) return end == Py_False && final == Py_False;
    if (end == Py_False && final == Py_False) rows = 1;
    ends.assign(static_cast<size_t>(rows), 0);
    kernel.call->Bind(kernel.ends_at, ends.data(), rows);
    return AddFlag(end, end_bits, rows) && AddFlag(final, final_bits, rows);
  }

  // Adds the bits of a flag, one bool for the rows of one step or an array of them; false unless it is that exactly.
  bool AddFlag(PyObject *flag, uint8_t bits, Py_ssize_t rows) {
    if (flag == Py_False) return true;
    if (IsBool(flag) && rows == num_envs) {
      for (uint8_t &end : ends) end |= IsTrue(flag) ? bits : 0;
      return true;
    }
    if (!IsVector(flag, NPY_BOOL, rows)) return false;
    const auto *flags = static_cast<const npy_bool *>(PyArray_DATA(Array(flag)));
    for (Py_ssize_t i = 0; i < rows; ++i) ends[i] |= flags[i] != 0 ? bits : 0;
    return true;
  }
};

}  // namespace replay::python
