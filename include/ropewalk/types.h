// Names of what a collective moves and how: element types, reductions, collectives, algorithms.
// Values are stable: they travel in message headers (docs/protocol.md).
#pragma once

#if __cplusplus < 202002L
#error "Ropewalk needs C++20: compile with -std=c++20, or a later standard"
#endif

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

namespace ropewalk {

/// Every element type: a value of DataType, and the name that commands and Python know it by; its
/// C++ type. FLOATING(name, type) or INTEGER(name, type). Only ever appended to: the numbers
/// travel.
#define ROPEWALK_DATA_TYPES(FLOATING, INTEGER) \
  FLOATING(float16, float16)                   \
  FLOATING(bfloat16, bfloat16)                 \
  FLOATING(float32, float)                     \
  FLOATING(float64, double)                    \
  INTEGER(int8, int8_t)                        \
  INTEGER(uint8, uint8_t)                      \
  INTEGER(int16, int16_t)                      \
  INTEGER(uint16, uint16_t)                    \
  INTEGER(int32, int32_t)                      \
  INTEGER(uint32, uint32_t)                    \
  INTEGER(int64, int64_t)                      \
  INTEGER(uint64, uint64_t)

#define ROPEWALK_ENUMERATOR(name, ...) name,
#define ROPEWALK_COUNT(...) +1
#define ROPEWALK_NOTHING(...)

enum class DataType : uint8_t { ROPEWALK_DATA_TYPES(ROPEWALK_ENUMERATOR, ROPEWALK_ENUMERATOR) };
inline constexpr int kDataTypes = ROPEWALK_DATA_TYPES(ROPEWALK_COUNT, ROPEWALK_COUNT);

#define ROPEWALK_REDUCE_KINDS(X)                                                              \
  X(sum)                                                                                      \
  X(prod)                                                                                     \
  X(min)        /* a NaN on any rank gives NaN */                                             \
  X(max)        /* a NaN on any rank gives NaN */                                             \
  X(avg)        /* sum, then divided by the number of ranks; integers truncate toward zero */ \
  X(scaled_sum) /* every rank's input is multiplied by its own `ReduceOp::scale` first; */    \
                /* floating types */                                                          \
  X(user)       /* `ReduceOp::function` */

enum class ReduceKind : uint8_t { ROPEWALK_REDUCE_KINDS(ROPEWALK_ENUMERATOR) };
inline constexpr int kReduceKinds = ROPEWALK_REDUCE_KINDS(ROPEWALK_COUNT);

#define ROPEWALK_COLLECTIVES(X) \
  X(all_reduce)                 \
  X(reduce_scatter)             \
  X(all_gather)                 \
  X(broadcast)                  \
  X(reduce)                     \
  X(gather)                     \
  X(scatter)                    \
  X(all_to_all)                 \
  X(barrier)                    \
  X(send)                       \
  X(recv)

enum class Collective : uint8_t { ROPEWALK_COLLECTIVES(ROPEWALK_ENUMERATOR) };
inline constexpr int kCollectives = ROPEWALK_COLLECTIVES(ROPEWALK_COUNT);

/// Every algorithm: a value of Algorithm, and the name that commands, ROPEWALK_ALGORITHM and Python
/// know it by. Only ever appended to: the numbers travel.
#define ROPEWALK_ALGORITHMS(X)                                                          \
  X(ring)               /* Patarasuk and Yuan 2009 */                                   \
  X(tree)               /* double binary tree: Sanders, Speck and Traeff 2009 */        \
  X(recursive_doubling) /* Thakur, Rabenseifner and Gropp 2005 */                       \
  X(halving_doubling)   /* on a circulant graph, any number of ranks: Traeff 2024 */    \
  X(direct)             /* every rank talks to every other, one round each way */       \
  X(two_level)          /* within a host, then between hosts */                         \
  X(one_shot)           /* every rank sends its whole vector to every other */          \
  X(scattered)          /* broadcast and reduce, a part of the vector owned by each */  \
  X(leaders)            /* one rank of each host adds for it and talks to the others */ \
  X(racks)              /* two levels: within racks, then between them */               \
  X(grid)               /* of one host: within groups of ranks, then between them */    \
  X(synthesized)        /* made for the network as described: Zhao and others 2024 */   \
  X(bruck)              /* all_to_all, by the digits of the distance: Bruck 1997 */     \
  X(binomial)           /* gather and scatter, along a binomial tree */

enum class Algorithm : uint8_t {
  automatic,  // "auto": let the planner choose
  ROPEWALK_ALGORITHMS(ROPEWALK_ENUMERATOR)
};
inline constexpr int kAlgorithms = 1 ROPEWALK_ALGORITHMS(ROPEWALK_COUNT);

/// Storage-only half types: no arithmetic. Collectives compute them in float32. `digits` are those
/// of the significand, as in std::numeric_limits; `from` rounds to nearest even, overflow to
/// infinity, NaN kept.
struct float16 {
  uint16_t bits;
  static constexpr int digits = 11;
  static float16 from(float value);
};
struct bfloat16 {
  uint16_t bits;
  static constexpr int digits = 8;
  static bfloat16 from(float value);
};
float to_float(float16 value);
float to_float(bfloat16 value);
inline float16 to_float16(float value) {
  return float16::from(value);
}
inline bfloat16 to_bfloat16(float value) {
  return bfloat16::from(value);
}

/// Adds `count` elements at `in` to `inout`, element by element. Must be commutative and
/// associative; called from whichever thread makes progress; must not throw.
using UserReduction = void (*)(void* inout, const void* in, size_t count, DataType type,
                               void* context);

struct ReduceOp {
  ReduceKind kind = ReduceKind::sum;
  double scale = 1.0;                // scaled_sum only
  UserReduction function = nullptr;  // user only; must be the same function on every rank
  void* context = nullptr;           // user only; handed to `function`

  bool operator==(const ReduceOp&) const = default;
};
inline constexpr ReduceOp kSum{ReduceKind::sum}, kProd{ReduceKind::prod}, kMin{ReduceKind::min},
    kMax{ReduceKind::max}, kAvg{ReduceKind::avg};

/// What `visit` gives for `std::type_identity<T>()`, where T is the C++ type of `type`.
template <class Visit>
constexpr decltype(auto) visit_type(DataType type, Visit&& visit) {
#define ROPEWALK_CASE(name, cpp_type) \
  case DataType::name:                \
    return visit(std::type_identity<cpp_type>());
  switch (type) { ROPEWALK_DATA_TYPES(ROPEWALK_CASE, ROPEWALK_CASE) }
#undef ROPEWALK_CASE
  __builtin_unreachable();  // no value of DataType
}

/// Bytes of one element.
constexpr size_t size_of(DataType type) {
  return visit_type(type, []<class T>(std::type_identity<T>) { return sizeof(T); });
}

/// Whether a type has fractions: the halves do.
constexpr bool is_floating(DataType type) {
  return visit_type(type, []<class T>(std::type_identity<T>) { return !std::is_integral_v<T>; });
}

std::string_view name_of(DataType type);
std::string_view name_of(ReduceKind kind);
std::string_view name_of(Collective collective);
std::string_view name_of(Algorithm algorithm);
/// The inverse of `name_of`; nothing where the word is unknown.
std::optional<DataType> data_type_named(std::string_view word);
std::optional<ReduceKind> reduce_kind_named(std::string_view word);
std::optional<Collective> collective_named(std::string_view word);
std::optional<Algorithm> algorithm_named(std::string_view word);

/// The DataType of a C++ type, where it has one. Integers that are none of those listed, as
/// `long long`, are what has their size and sign.
template <class T>
constexpr std::optional<DataType> find_data_type() {
#define ROPEWALK_SAME(name, cpp_type) \
  if (std::is_same_v<T, cpp_type>) return DataType::name;
#define ROPEWALK_ALIKE(name, cpp_type)                                                      \
  if (std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) == sizeof(cpp_type) && \
      std::is_signed_v<T> == std::is_signed_v<cpp_type>)                                    \
    return DataType::name;
  ROPEWALK_DATA_TYPES(ROPEWALK_SAME, ROPEWALK_SAME)
  ROPEWALK_DATA_TYPES(ROPEWALK_NOTHING, ROPEWALK_ALIKE)
#undef ROPEWALK_SAME
#undef ROPEWALK_ALIKE
  return {};
}
template <class T>
inline constexpr bool is_element = find_data_type<T>().has_value();

/// The DataType of a C++ element type.
template <class T>
constexpr DataType data_type_of() {
  static_assert(is_element<std::remove_cv_t<T>>, "not a type Ropewalk reduces");
  return *find_data_type<std::remove_cv_t<T>>();
}

}  // namespace ropewalk
