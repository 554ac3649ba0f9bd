#include "array.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <optional>
#include <string_view>

#include "invalid.h"

namespace ropewalk::python {
namespace {

struct Argument {
  const std::string& operation;
  const std::string& name;
  nb::handle object;

  [[noreturn]] void reject(std::string_view is, std::string advice) const {
    python::reject(operation, fmt::format("{} {}", name, is), std::move(advice));
  }
};

/// Why a producer of DLPack refuses, in its own words.
std::string refusal(nb::handle object) {
  if (!nb::hasattr(object, "__dlpack__")) return {};
  try {
    object.attr("__dlpack__")();
  } catch (nb::python_error& error) {
    return fmt::format(" ({})", nb::cast<std::string_view>(nb::str(error.value())));
  }
  return {};
}

/// True for buffers without strides (numpy's scalar dates), which nanobind would not survive.
bool lacks_strides(nb::handle object) {
  Py_buffer view;
  if (nb::hasattr(object, "__dlpack__")) return false;
  if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_RECORDS_RO) != 0) {
    PyErr_Clear();
    return false;
  }
  const bool lacks = view.ndim > 0 && view.strides == nullptr;
  PyBuffer_Release(&view);
  return lacks;
}

nb::ndarray<nb::ro> import_array(const Argument& argument, Access access) {
  const bool usable = !lacks_strides(argument.object);
  nb::ndarray<> writable;
  if (usable && access == Access::write && nb::try_cast(argument.object, writable, false))
    return nb::ndarray<nb::ro>(writable);
  nb::ndarray<nb::ro> readable;
  if (usable && nb::try_cast(argument.object, readable, false)) {
    if (access == Access::read) return readable;
    argument.reject("is read-only, and the result is to be written there",
                    "give an array that may be written to, or a separate out");
  }
  const auto type = nb::cast<std::string>(nb::type_name(argument.object.type()));
  argument.reject(
      fmt::format("is a {}, which cannot be taken as an array without a copy{}", type,
                  refusal(argument.object)),
      "give a numpy array of native numbers, a CPU tensor, or what else has DLPack or buffers");
}

std::string name_of(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  const char* kind = "unknown";
  switch (static_cast<Code>(type.code)) {
    case Code::Int:
      kind = "int";
      break;
    case Code::UInt:
      kind = "uint";
      break;
    case Code::Float:
      kind = "float";
      break;
    case Code::Bfloat:
      kind = "bfloat";
      break;
    case Code::Complex:
      kind = "complex";
      break;
    case Code::Bool:
      return "bool";
    default:
      break;
  }
  return fmt::format("{}{}{}", kind, type.bits,
                     type.lanes == 1 ? "" : fmt::format("x{}", type.lanes));
}

DataType type_of(const Argument& argument, const nb::ndarray<nb::ro>& array) {
  const std::string name = name_of(array.dtype());
  if (const auto type = data_type_named(name)) return *type;
  argument.reject(fmt::format("has dtype {}, which Ropewalk does not move", name),
                  name == "bool" ? "pass a view of it as uint8: x.view('uint8')"
                                 : "use float16, bfloat16, float32, float64 or an integer type");
}

void require_packed(const Argument& argument, const nb::ndarray<nb::ro>& array) {
  if (array.size() == 0) return;
  int64_t expected = 1;
  for (size_t i = array.ndim(); i-- > 0;) {
    const auto extent = static_cast<int64_t>(array.shape(i));
    if (extent != 1 && array.stride(i) != expected)
      argument.reject("is not contiguous",
                      "call numpy.ascontiguousarray (or tensor.contiguous) first");
    expected *= extent;
  }
}

}  // namespace

Array view_array(nb::handle object, const std::string& operation, const std::string& name,
                 Access access) {
  const Argument argument{operation, name, object};
  const nb::ndarray<nb::ro> holder = import_array(argument, access);
  if (holder.device_type() != nb::device::cpu::value)
    argument.reject(fmt::format("is on device {}:{} (numbers of DLPack), not in the CPU's memory",
                                holder.device_type(), holder.device_id()),
                    "copy it to the CPU first: tensor.cpu()");
  const DataType type = type_of(argument, holder);
  require_packed(argument, holder);
  return {holder, const_cast<void*>(holder.data()), holder.size(), type};
}

}  // namespace ropewalk::python
