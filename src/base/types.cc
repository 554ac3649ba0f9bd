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

#define ROPEWALK_DEFINE_NAMES(Enum, names, enum_named)    \
  std::string_view name_of(Enum value) {                  \
    return lookup(names, value);                          \
  }                                                       \
  std::optional<Enum> enum_named(std::string_view word) { \
    return find<Enum>(names, word);                       \
  }
ROPEWALK_DEFINE_NAMES(DataType, kDataTypeNames, data_type_named)
ROPEWALK_DEFINE_NAMES(ReduceKind, kReduceKindNames, reduce_kind_named)
ROPEWALK_DEFINE_NAMES(Collective, kCollectiveNames, collective_named)
ROPEWALK_DEFINE_NAMES(Algorithm, kAlgorithmNames, algorithm_named)
#undef ROPEWALK_DEFINE_NAMES

}  // namespace ropewalk
