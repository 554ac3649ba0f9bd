#include "array.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <string_view>
#include <utility>

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

using Code = nb::dlpack::dtype_code;
/// What DLPack's codes are called, before the number of bits. numpy has the first three.
constexpr std::pair<Code, const char*> kCodes[] = {{Code::Int, "int"},
                                                   {Code::UInt, "uint"},
                                                   {Code::Float, "float"},
                                                   {Code::Bfloat, "bfloat"},
                                                   {Code::Complex, "complex"}};

std::string name_of(nb::dlpack::dtype type) {
  const auto is_code = [&](const auto& known) { return known.first == Code(type.code); };
  if (Code(type.code) == Code::Bool) return "bool";
  const auto* known = std::ranges::find_if(kCodes, is_code);
  return fmt::format("{}{}{}", known == std::end(kCodes) ? "unknown" : known->second, type.bits,
                     type.lanes == 1 ? "" : fmt::format("x{}", type.lanes));
}

DataType type_of(const Argument& argument, const nb::ndarray<nb::ro>& array) {
  const std::string name = name_of(array.dtype());
  if (const auto type = data_type_named(name)) return *type;
  argument.reject(fmt::format("has dtype {}, which Ropewalk does not move", name),
                  name == "bool"
                      ? "pass a view of it as uint8: x.view('uint8')"
                      : fmt::format("use one of {}", fmt::join(names<DataType>(kDataTypes), ", ")));
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

std::optional<nb::dlpack::dtype> dlpack_type(DataType type) {
  nb::dlpack::dtype dtype{0, static_cast<uint8_t>(size_of(type) * 8), 1};
  for (const auto& [code, word] : kCodes) {
    dtype.code = static_cast<uint8_t>(code);
    if (name_of(dtype) == ropewalk::name_of(type)) return dtype;
  }
  return {};
}

bool numpy_has(nb::dlpack::dtype type) {
  return Code(type.code) <= Code::Float;
}

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
