#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "array.h"

namespace ropewalk::python {

void bind_policies(nanobind::module_& module);
void bind_async_policy(nanobind::module_& module);
void bind_elastic_policy(nanobind::module_& module);
void bind_partial(nanobind::module_& module);

/// The arrays of one call, of one type, to be written to.
std::vector<Array> view_list(const nb::sequence& list, const char* operation, const char* argument);

/// What arrays a policy takes.
std::string floating_types_advice();

template <class Ignored, class... Alternatives>
struct VariantOf {
  using Type = std::variant<Alternatives...>;
};
#define ROPEWALK_ALTERNATIVE(name, type) , std::unique_ptr<Policy<type>>
/// `First`, or a policy of any of the types that policies average.
template <template <class> class Policy, class... First>
using PolicyVariant = typename VariantOf<void, First... ROPEWALK_DATA_TYPES(
                                                   ROPEWALK_ALTERNATIVE, ROPEWALK_NOTHING)>::Type;
#undef ROPEWALK_ALTERNATIVE

template <class T>
std::vector<std::span<T>> spans_of(const std::vector<Array>& arrays) {
  std::vector<std::span<T>> tensors;
  tensors.reserve(arrays.size());
  for (const Array& array : arrays) tensors.emplace_back(static_cast<T*>(array.data), array.count);
  return tensors;
}

}  // namespace ropewalk::python
