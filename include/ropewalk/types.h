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

enum class DataType : uint8_t {
  float16,
  bfloat16,
  float32,
  float64,
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
};
inline constexpr int kDataTypes = 12;

enum class ReduceKind : uint8_t {
  sum,
  prod,
  min,         // a NaN on any rank gives NaN
  max,         // a NaN on any rank gives NaN
  avg,         // sum, then divided by the number of ranks; integers truncate toward zero
  scaled_sum,  // every rank's input is multiplied by its own `ReduceOp::scale` first; floating
               // types
  user,        // `ReduceOp::function`
};
inline constexpr int kReduceKinds = 7;

enum class Collective : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  barrier,
  send,
  recv,
};
inline constexpr int kCollectives = 11;

/// Every algorithm: a value of Algorithm, and the name that commands, ROPEWALK_ALGORITHM and Python
/// know it by. Only ever appended to: the numbers travel.
#define ROPEWALK_ALGORITHMS(X)                                                       \
  X(ring)               /* Patarasuk and Yuan 2009 */                                \
  X(tree)               /* double binary tree: Sanders, Speck and Traeff 2009 */     \
  X(recursive_doubling) /* Thakur, Rabenseifner and Gropp 2005 */                    \
  X(halving_doubling)   /* on a circulant graph, any number of ranks: Traeff 2024 */ \
  X(direct)             /* every rank talks to every other, one round each way */    \
  X(two_level)          /* within a host, then between hosts */                      \
  X(one_shot)           /* every rank sends its whole vector to every other */       \
  X(scattered)          /* broadcast and reduce with a part of the vector owned by each rank */

enum class Algorithm : uint8_t {
  automatic,  // "auto": let the planner choose
#define ROPEWALK_ENUMERATOR(name) name,
  ROPEWALK_ALGORITHMS(ROPEWALK_ENUMERATOR)
#undef ROPEWALK_ENUMERATOR
};
#define ROPEWALK_COUNT(name) +1
inline constexpr int kAlgorithms = 1 ROPEWALK_ALGORITHMS(ROPEWALK_COUNT);
#undef ROPEWALK_COUNT

/// Storage-only half types: two bytes, no arithmetic. Collectives compute them in float32.
struct float16 {
  uint16_t bits;
};
struct bfloat16 {
  uint16_t bits;
};
float to_float(float16 value);
float to_float(bfloat16 value);
float16 to_float16(float value);    // to nearest even, overflow to infinity, NaN kept
bfloat16 to_bfloat16(float value);  // likewise

/// Adds `count` elements at `in` to `inout`, element by element. Must be commutative and
/// associative; called from whichever thread makes progress; must not throw.
using UserReduction = void (*)(void* inout, const void* in, size_t count, DataType type,
                               void* context);

struct ReduceOp {
  ReduceKind kind = ReduceKind::sum;
  double scale = 1.0;                // scaled_sum only
  UserReduction function = nullptr;  // user only; must be the same function on every rank
  void* context = nullptr;           // user only; handed to `function`
};
inline constexpr ReduceOp kSum{ReduceKind::sum}, kProd{ReduceKind::prod}, kMin{ReduceKind::min},
    kMax{ReduceKind::max}, kAvg{ReduceKind::avg};

/// Bytes of one element.
constexpr size_t size_of(DataType type) {
  switch (type) {
    case DataType::int8:
    case DataType::uint8:
      return 1;
    case DataType::float16:
    case DataType::bfloat16:
    case DataType::int16:
    case DataType::uint16:
      return 2;
    case DataType::float32:
    case DataType::int32:
    case DataType::uint32:
      return 4;
    default:
      return 8;
  }
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

/// Whether a C++ type has a DataType.
template <class T>
inline constexpr bool is_element = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16> ||
                                   std::is_same_v<T, float> || std::is_same_v<T, double> ||
                                   (std::is_integral_v<T> && !std::is_same_v<T, bool>);

/// The DataType of a C++ element type.
template <class T>
constexpr DataType data_type_of() {
  using U = std::remove_cv_t<T>;
  static_assert(is_element<U>, "not a type Ropewalk reduces");
  if constexpr (std::is_same_v<U, float16>)
    return DataType::float16;
  else if constexpr (std::is_same_v<U, bfloat16>)
    return DataType::bfloat16;
  else if constexpr (std::is_same_v<U, float>)
    return DataType::float32;
  else if constexpr (std::is_same_v<U, double>)
    return DataType::float64;
  else {
    constexpr bool is_signed = std::is_signed_v<U>;
    if constexpr (sizeof(U) == 1)
      return is_signed ? DataType::int8 : DataType::uint8;
    else if constexpr (sizeof(U) == 2)
      return is_signed ? DataType::int16 : DataType::uint16;
    else if constexpr (sizeof(U) == 4)
      return is_signed ? DataType::int32 : DataType::uint32;
    else
      return is_signed ? DataType::int64 : DataType::uint64;
  }
}

}  // namespace ropewalk
