// Stores rows that fit, in one call.
#pragma once

#include <numeric>

#include "guard.h"
#include "input.h"

namespace replay::python {

// Insert(guard, kernels, names, fields, priority, version, (end bits, final bits), num_envs, prioritized, kind, address_of,
// kinds, share): a guard or None; for insertions without versions, and with them, the kernel and the places of rows, ends,
// priorities, versions, lengths and the first handle, -1 if it has none; the names of the columns that are not late, or
// None; for each column an `Input`, or the bytes of a row that comes late, instead of which zeros are stored; an `Input`
// for priorities and for versions; the bits of flags; whether `now` takes priorities, which `store` always does; `Tensors`,
// or None; for each column the number of its kind of lengths, -1 for rows of one length; and a function that converts the
// array of handles, or None.
struct Insert {
  static constexpr char kName[] = "mindspore_replay._calls.Insert";
  static constexpr size_t kMostZeros = 1 << 20;  // bytes that are kept from one insertion to the next

  struct Kernel {
    Ref<Call> call;
    int rows_at = -1, ends_at = -1, priority_at = -1, version_at = -1, lengths_at = -1, first_at = -1;
    void *largest = nullptr;  // the priority of rows that come without one

    bool Init(PyObject *args) {
      PyObject *given;
      if (!PyArg_ParseTuple(args, "Oiiiiii", &given, &rows_at, &ends_at, &priority_at, &version_at, &lengths_at,
                            &first_at) ||
          !call.Take(given)) {
        return false;
      }
      for (const int at : {rows_at, ends_at, priority_at, version_at, lengths_at, first_at})
        if (at >= call->size) return call->Has(at);
      if (priority_at >= 0) largest = call->params[priority_at];
      return true;
    }
  };

  // A column: an input, or one whose rows come late.
  struct Field {
    Input input;
    npy_intp late_bytes = -1;     // of a row that comes late
    int kind = -1;                // of lengths
    std::vector<int32_t> rows{};  // lengths of the rows whose items were joined; empty for one row
  };

  Ref<Guard> guard;
  Kernel kernels[2];
  Held names, share;
  std::vector<Field> fields;
  Py_ssize_t present = 0;    // columns that are not late
  npy_intp widest_late = 0;  // bytes of a row of the widest late column; 0 if none is late
  std::vector<char> zeros;   // in place of rows that come late
  Input priority, version;
  uint8_t end_bits, final_bits;
  Py_ssize_t num_envs;
  int prioritized;
  Tensors tensors;
  std::vector<uint8_t> ends;
  std::vector<std::vector<int32_t>> lengths;  // of each kind; empty if no column of it was bound

  bool Init(PyObject *args) {
    PyObject *guarding, *of_kernels, *columns, *inputs, *of_priority, *of_version, *kind, *address_of, *of_lengths,
        *sharing;
    if (!PyArg_ParseTuple(args, "OO!OO!OO(bb)npOOO!O", &guarding, &PyTuple_Type, &of_kernels, &columns, &PyTuple_Type,
                          &inputs, &of_priority, &of_version, &end_bits, &final_bits, &num_envs, &prioritized, &kind,
                          &address_of, &PyTuple_Type, &of_lengths, &sharing) ||
        (guarding != Py_None && !guard.Take(guarding)) || !priority.Init(of_priority) || !version.Init(of_version)) {
      return false;
    }
    for (Py_ssize_t i = 0; i < std::min<Py_ssize_t>(PyTuple_Size(of_kernels), 2); ++i) {
      if (!kernels[i].Init(PyTuple_GetItem(of_kernels, i))) return false;
    }
    names = NewHeld(columns);
    share = NewHeld(sharing);
    tensors = {NewHeld(kind), NewHeld(address_of)};
    fields.resize(static_cast<size_t>(PyTuple_Size(inputs)));
    for (size_t i = 0; i < fields.size(); ++i) {
      Field &field = fields[i];
      PyObject *given = PyTuple_GetItem(inputs, static_cast<Py_ssize_t>(i));
      field.kind = static_cast<int>(PyLong_AsLong(PyTuple_GetItem(of_lengths, static_cast<Py_ssize_t>(i))));
      if (PyLong_CheckExact(given)) {
        field.late_bytes = PyLong_AsSsize_t(given);
        widest_late = std::max(widest_late, field.late_bytes);
        continue;
      }
      if (!field.input.Init(given)) return false;
      lengths.resize(std::max(lengths.size(), static_cast<size_t>(field.kind + 1)));
      ++present;
    }
    return !PyErr_Occurred();
  }

  // now(exp, priority, end, final, version=None, with_indices=False): stores one row or a batch, and returns True, or the
  // rows' handles, [] or [n]. Returns False, and has stored nothing, if the caller has to convert the arguments or to raise
  // the error.
  PyObject *Now(PyObject *const *args, Py_ssize_t nargs) {
    Held handles;
    const bool is_asked = nargs == 6 && args[5] != Py_False;
    const int status = is_asked && args[5] != Py_True ? -1 : StoreGiven(args, nargs, is_asked ? &handles : nullptr);
    if (PyErr_Occurred()) return nullptr;
    return status == 0 && is_asked ? handles.Release() : PyBool_FromLong(status == 0);
  }

  // store(fields, priority, ends, version): stores rows that were checked. Returns the status of the kernel.
  PyObject *StoreChecked(PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 4) return PyErr_Format(PyExc_TypeError, "store(fields, priority, ends, version) needs four arguments");
    const int status = Store(args[0], args[1], args[3], nullptr, [&](const Kernel &kernel, Py_ssize_t rows) {
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
      Method<Insert, &Insert::StoreChecked>("store"),
      {nullptr, nullptr, 0, nullptr},
  };

 private:
  int StoreGiven(PyObject *const *args, Py_ssize_t nargs, Held *handles) {
    if (nargs < 4 || nargs > 6) {
      PyErr_SetString(PyExc_TypeError,
                      "now(exp, priority, end, final, version, with_indices) needs four to six arguments");
      return -1;
    }
    if (args[1] != Py_None && prioritized == 0) return -1;
    return Store(args[0], args[1], nargs > 4 ? args[4] : Py_None, handles,
                 [&](const Kernel &kernel, Py_ssize_t rows) { return BindFlags(kernel, args[2], args[3], rows); });
  }

  // Returns the status of the kernel; -1 if the arguments do not fit. Makes the handles unless these are null.
  template <typename BindEnds>
  int Store(PyObject *exp, PyObject *priority_given, PyObject *version_given, Held *handles,
            const BindEnds &bind_ends) {
    Inside inside(guard.get());
    if (!inside.ok()) return -1;
    Lead lead;
    const Kernel &kernel = kernels[version_given != Py_None];
    const bool fits = TakeFields(exp, &inside) && BindFields(kernel, &lead) &&
                      BindOptional(kernel, kernel.priority_at, priority_given, &inside, &priority, &lead) &&
                      BindOptional(kernel, kernel.version_at, version_given, &inside, &version, &lead) &&
                      bind_ends(kernel, lead.rows());
    const int result = fits ? Run(kernel, lead, handles) : -1;
    for (Field &field : fields) field.input.Drop();
    priority.Drop();
    version.Drop();
    if (zeros.size() > kMostZeros) zeros = {};
    return result;
  }

  int Run(const Kernel &kernel, const Lead &lead, Held *handles) {
    if (handles == nullptr) return kernel.call->Run();
    if (kernel.first_at < 0) return -1;
    *handles = Held(PyArray_SimpleNew(lead.axes, lead.sizes, NPY_INT64));
    if (handles->get() == nullptr) return -1;
    Held shared(share.get() == Py_None ? NewHeld(handles->get()) : Held(CallWith(share.get(), handles->get())));
    if (shared.get() == nullptr) return -1;
    const int status = kernel.call->Run();
    const auto first = *static_cast<const int64_t *>(kernel.call->params[kernel.first_at]);
    auto *numbers = static_cast<int64_t *>(PyArray_DATA(Array(handles->get())));
    std::iota(numbers, numbers + lead.rows(), first);
    *handles = std::move(shared);
    return status;
  }

  // Takes the fields of a list, a tuple or a dict with exactly the columns' names. Returns false, perhaps with an exception
  // set, for anything else.
  bool TakeFields(PyObject *exp, Inside *inside) {
    PyObject *(*item)(PyObject *, Py_ssize_t) = PyList_CheckExact(exp)    ? PyList_GetItem
                                                : PyTuple_CheckExact(exp) ? PyTuple_GetItem
                                                                          : nullptr;
    if (item != nullptr ? SizeOf(exp) != present
                        : !PyDict_CheckExact(exp) || names.get() == Py_None || PyDict_Size(exp) != present) {
      return false;
    }
    Py_ssize_t i = 0;
    for (Field &field : fields) {
      if (field.late_bytes >= 0) continue;
      PyObject *given = item != nullptr ? item(exp, i) : PyDict_GetItemWithError(exp, PyTuple_GetItem(names.get(), i));
      if (given == nullptr || !Take(given, inside, &field)) return false;
      ++i;
    }
    return true;
  }

  bool Take(PyObject *given, Inside *inside, Field *field) {
    field->rows.clear();
    if (field->kind < 0 || !IsListOrTuple(given) || SizeOf(given) == 0) {
      return field->input.Take(given, tensors, inside);
    }
    for (Py_ssize_t i = 0; i < SizeOf(given); ++i) {
      PyObject *row = ItemOf(given, i);
      if (!field->input.Fits(row))
        return i == 0 && !PyArray_CheckExact(row) && field->input.Take(given, tensors, inside);
      field->rows.push_back(static_cast<int32_t>(PyArray_DIM(Array(row), 0)));
    }
    const Held items(field->input.Joined(given));
    return items.get() != nullptr && field->input.Take(items.get(), tensors, inside);
  }

  bool BindFields(const Kernel &kernel, Lead *lead) {
    if (kernel.call.get() == nullptr) return false;
    for (std::vector<int32_t> &of_kind : lengths) of_kind.clear();
    if (!lengths.empty()) {
      lead->axes = 0;
      for (const Field &field : fields) {
        if (!field.rows.empty()) *lead = {1, {static_cast<npy_intp>(field.rows.size()), 1}};
      }
    }
    for (size_t i = 0; i < fields.size(); ++i) {
      const int at = kernel.rows_at + static_cast<int>(i);
      if (fields[i].late_bytes >= 0) continue;
      if (fields[i].kind < 0 ? !fields[i].input.Bind(*kernel.call, at, lead) : !BindItems(kernel, at, fields[i], *lead))
        return false;
    }
    if (widest_late > 0) BindZeros(kernel, *lead);
    return lead->axes == 0 ? num_envs == 1 : lead->sizes[0] % num_envs == 0;
  }

  void BindZeros(const Kernel &kernel, const Lead &lead) {
    const auto bytes = static_cast<size_t>(widest_late * lead.rows());
    if (zeros.size() < bytes) zeros.resize(bytes);
    for (size_t i = 0; i < fields.size(); ++i) {
      if (fields[i].late_bytes >= 0)
        kernel.call->Bind(kernel.rows_at + static_cast<int>(i), zeros.data(), lead.sizes[0]);
    }
  }

  // Binds the items of one row or of several, which have the lengths that other columns of their kind have.
  bool BindItems(const Kernel &kernel, int at, const Field &field, const Lead &lead) {
    Lead items;
    if (!field.input.Bind(*kernel.call, at, &items) || items.axes != 1 || items.sizes[0] > INT32_MAX) return false;
    std::vector<int32_t> own = field.rows;
    if (lead.axes == 0) own.assign(1, static_cast<int32_t>(items.sizes[0]));
    std::vector<int32_t> &length = lengths[static_cast<size_t>(field.kind)];
    if (static_cast<npy_intp>(own.size()) != lead.sizes[0] || (!length.empty() && length != own)) return false;
    length = std::move(own);
    kernel.call->Bind(kernel.lengths_at + field.kind, length.data(), lead.sizes[0]);
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
