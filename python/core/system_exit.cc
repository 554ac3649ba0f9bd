// Python tells nobody that sys.exit, or `raise SystemExit`, ends the program: sys.excepthook is not
// called, and what is registered with atexit does not see the status. But when no Python code runs
// any more, and only then, the interpreter asks the exception for its `code`. So that attribute is
// replaced by one that behaves the same, and tells.
#include "system_exit.h"

#include <utility>

namespace ropewalk::python {
namespace {

namespace nb = nanobind;

PyObject* callback_ = nullptr;  // never freed

void tell(PyObject* exit) {
  PyObject* said = PyObject_CallFunctionObjArgs(callback_, exit, nullptr);
  if (said == nullptr) PyErr_WriteUnraisable(callback_);
  Py_XDECREF(said);
}

PyObject* get_code(PyObject* exit, void*) {
  if (PyEval_GetFrame() == nullptr) tell(exit);
  PyObject* code = reinterpret_cast<PySystemExitObject*>(exit)->code;
  if (code == nullptr) code = Py_None;
  Py_INCREF(code);
  return code;
}

int set_code(PyObject* exit, PyObject* code, void*) {
  Py_XINCREF(code);
  PyObject* before = std::exchange(reinterpret_cast<PySystemExitObject*>(exit)->code, code);
  Py_XDECREF(before);
  return 0;
}

PyGetSetDef attribute_ = {"code", get_code, set_code, "exception code", nullptr};

nb::dict attributes_of(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  return nb::steal<nb::dict>(PyType_GetDict(type));
#else
  return nb::borrow<nb::dict>(type->tp_dict);
#endif
}

}  // namespace

void on_system_exit(nb::callable callback) {
  callback_ = callback.release().ptr();
  auto* type = reinterpret_cast<PyTypeObject*>(PyExc_SystemExit);
  const auto attribute = nb::steal(PyDescr_NewGetSet(type, &attribute_));
  if (!attribute.is_valid()) throw nb::python_error();
  attributes_of(type)["code"] = attribute;
  PyType_Modified(type);
}

}  // namespace ropewalk::python
