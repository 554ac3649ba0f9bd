#include "reduce/reduce.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "reduce/kernels.h"

namespace ropewalk {
namespace {

using KernelTable = std::array<Kernels, kDataTypes>;

KernelTable find_all_kernels() {
  KernelTable found;
  for (int t = 0; t < kDataTypes; ++t)
    found[t] = visit_type(static_cast<DataType>(t), []<class T>(std::type_identity<T>) {
      return find_kernels<family_of<T>>(data_type_of<T>());
    });
  return found;
}

/// Looking for the best instruction set takes as long as adding a short message.
KernelTable& kernel_table() {
  static KernelTable table = find_all_kernels();
  return table;
}

const Kernels& kernels_of(DataType type) {
  return kernel_table()[static_cast<size_t>(type)];
}

[[maybe_unused]] bool is_aligned(const std::byte* element, DataType type) {
  return reinterpret_cast<uintptr_t>(element) % size_of(type) == 0;
}

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (to != from) std::memcpy(to, from, bytes);
}

void copy_to_all(const ReduceArguments& a, size_t bytes) {
  if (a.destination_count == 1) return copy_bytes(a.destinations[0], a.sources[0], bytes);
  // A sum of one source is a copy that reads it once for all destinations.
  ReduceArguments as_bytes = a;
  as_bytes.count = bytes;
  kernels_of(DataType::uint8).reduce[static_cast<size_t>(ReduceKind::sum)](as_bytes);
}

/// A destination in which the user's function may accumulate: one that is none of the further
/// sources, which must still be read. Null where there is none.
std::byte* find_accumulator(const ReduceArguments& a) {
  const auto further_begin = a.sources + 1, further_end = a.sources + a.source_count;
  for (size_t k = 0; k < a.destination_count; ++k)
    if (std::find(further_begin, further_end, a.destinations[k]) == further_end)
      return a.destinations[k];
  return nullptr;
}

/// By the caller's function, which reduces one span in place.
void reduce_user(const ReduceArguments& a, DataType type, const ReduceOp& op) {
  alignas(64) std::byte block[kUserBlockBytes];
  std::byte* const accumulator = find_accumulator(a);
  const size_t element_bytes = size_of(type);
  const size_t total = a.count * element_bytes;
  for (size_t offset = 0; offset < total; offset += kUserBlockBytes) {
    const size_t bytes = std::min(kUserBlockBytes, total - offset);
    std::byte* const sum = accumulator != nullptr ? accumulator + offset : block;
    copy_bytes(sum, a.sources[0] + offset, bytes);
    for (size_t s = 1; s < a.source_count; ++s)
      op.function(sum, a.sources[s] + offset, bytes / element_bytes, type, op.context);
    for (size_t k = 0; k < a.destination_count; ++k)
      copy_bytes(a.destinations[k] + offset, sum, bytes);
  }
}

/// Not vectorized: averages of integers are rare, and small where they occur.
template <class T>
void divide_integers(std::byte* data, size_t count, int divisor) {
  using Wide = std::common_type_t<T, int>;
  T* values = reinterpret_cast<T*>(data);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<T>(static_cast<Wide>(values[i]) / static_cast<Wide>(divisor));
}

}  // namespace

bool is_reducible(DataType type, const ReduceOp& op) {
  if (static_cast<int>(type) >= kDataTypes) return false;
  if (static_cast<int>(op.kind) >= kReduceKinds) return false;
  if (op.kind == ReduceKind::scaled_sum) return is_floating(type);
  return op.kind != ReduceKind::user || op.function != nullptr;
}

void reduce(std::span<std::byte* const> destinations, std::span<const std::byte* const> sources,
            size_t count, DataType type, const ReduceOp& op) {
  assert(!destinations.empty() && destinations.size() <= kReduceFanMax);
  assert(!sources.empty() && sources.size() <= kReduceFanMax);
  assert(is_reducible(type, op));
  assert(std::ranges::all_of(sources, [&](auto* source) { return is_aligned(source, type); }));
  assert(std::ranges::all_of(destinations, [&](auto* one) { return is_aligned(one, type); }));
  if (count == 0) return;
  const ReduceArguments arguments{destinations.data(), destinations.size(), sources.data(),
                                  sources.size(), count};
  if (sources.size() == 1) {
    copy_to_all(arguments, count * size_of(type));
  } else if (op.kind == ReduceKind::user) {
    reduce_user(arguments, type, op);
  } else {
    kernels_of(type).reduce[static_cast<size_t>(op.kind)](arguments);
  }
}

void scale(std::byte* destination, const std::byte* source, size_t count, DataType type,
           double factor) {
  assert(is_floating(type));
  assert(is_aligned(source, type) && is_aligned(destination, type));
  kernels_of(type).multiply(destination, source, count, factor);
}

void divide(std::byte* data, size_t count, DataType type, int divisor) {
  assert(divisor >= 1);
  assert(is_aligned(data, type));
  visit_type(type, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T>)
      divide_integers<T>(data, count, divisor);
    else
      kernels_of(type).divide(data, data, count, divisor);
  });
}

const char* reduce_target_name() {
  return kernels_of(DataType::float32).target;
}

void choose_kernels_again() {
  kernel_table() = find_all_kernels();
}

}  // namespace ropewalk
