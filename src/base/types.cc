#include "ropewalk/types.h"

#include <array>

namespace ropewalk {
namespace {

#define ROPEWALK_NAME(name, ...) #name,
constexpr std::array<std::string_view, kDataTypes> kDataTypeNames = {
    ROPEWALK_DATA_TYPES(ROPEWALK_NAME, ROPEWALK_NAME)};
constexpr std::array<std::string_view, kReduceKinds> kReduceKindNames = {
    ROPEWALK_REDUCE_KINDS(ROPEWALK_NAME)};
constexpr std::array<std::string_view, kCollectives> kCollectiveNames = {
    ROPEWALK_COLLECTIVES(ROPEWALK_NAME)};
constexpr std::array<std::string_view, kAlgorithms> kAlgorithmNames = {
    "auto", ROPEWALK_ALGORITHMS(ROPEWALK_NAME)};

#define ROPEWALK_CHECK_SIZE(name, type) static_assert(64 % sizeof(type) == 0 && sizeof(type) <= 8);
ROPEWALK_DATA_TYPES(ROPEWALK_CHECK_SIZE, ROPEWALK_CHECK_SIZE)

template <class Enum, size_t N>
std::string_view lookup(const std::array<std::string_view, N>& names, Enum value) {
  const auto i = static_cast<size_t>(value);
  return i < N ? names[i] : "unknown";
}

template <class Enum, size_t N>
std::optional<Enum> find(const std::array<std::string_view, N>& names, std::string_view word) {
  for (size_t i = 0; i < N; ++i)
    if (names[i] == word) return static_cast<Enum>(i);
  return {};
}

}  // namespace

std::string_view name_of(DataType type) {
  return lookup(kDataTypeNames, type);
}
std::string_view name_of(ReduceKind kind) {
  return lookup(kReduceKindNames, kind);
}
std::string_view name_of(Collective collective) {
  return lookup(kCollectiveNames, collective);
}
std::string_view name_of(Algorithm algorithm) {
  return lookup(kAlgorithmNames, algorithm);
}

std::optional<DataType> data_type_named(std::string_view word) {
  return find<DataType>(kDataTypeNames, word);
}
std::optional<ReduceKind> reduce_kind_named(std::string_view word) {
  return find<ReduceKind>(kReduceKindNames, word);
}
std::optional<Collective> collective_named(std::string_view word) {
  return find<Collective>(kCollectiveNames, word);
}
std::optional<Algorithm> algorithm_named(std::string_view word) {
  return find<Algorithm>(kAlgorithmNames, word);
}

}  // namespace ropewalk
