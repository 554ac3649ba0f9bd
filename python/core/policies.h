#pragma once

#include <nanobind/nanobind.h>

#include <span>
#include <vector>

#include "array.h"

namespace ropewalk::python {

void bind_policies(nanobind::module_& module);
void bind_async_policy(nanobind::module_& module);

/// The arrays of one call, of one type, to be written to.
std::vector<Array> view_list(const nb::sequence& list, const char* operation, const char* argument);

template <class T>
std::vector<std::span<T>> spans_of(const std::vector<Array>& arrays) {
  std::vector<std::span<T>> tensors;
  tensors.reserve(arrays.size());
  for (const Array& array : arrays) tensors.emplace_back(static_cast<T*>(array.data), array.count);
  return tensors;
}

}  // namespace ropewalk::python
