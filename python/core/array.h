// An array of the caller's, seen in place: numpy, DLPack or buffer protocol, never copied.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <string>
#include <vector>

#include "ropewalk/types.h"

namespace ropewalk::python {

namespace nb = nanobind;

enum class Access { read, write };

/// All values of an enumeration that the library has names for.
template <class Enum>
std::vector<std::string> names(int count) {
  std::vector<std::string> words;
  for (int i = 0; i < count; ++i) words.emplace_back(name_of(static_cast<Enum>(i)));
  return words;
}

/// Keeps the caller's object, and its memory, alive and in place.
struct Array {
  nb::ndarray<nb::ro> holder;
  void* data = nullptr;
  size_t count = 0;
  DataType type = DataType::float32;
};

/// Nothing where DLPack knows no such elements.
std::optional<nb::dlpack::dtype> dlpack_type(DataType type);
bool numpy_has(nb::dlpack::dtype type);

/// Throws Error(invalid_argument) that names `argument` where `object` is no array, lies on another
/// device, has gaps or a type that Ropewalk does not move, or may not be written to and must be.
Array view_array(nb::handle object, const std::string& operation, const std::string& argument,
                 Access access);

}  // namespace ropewalk::python
