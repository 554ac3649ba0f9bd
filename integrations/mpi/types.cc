#include "types.h"

#include <algorithm>
#include <vector>

namespace ropewalk::mpi {
namespace {

enum class OpClass : uint8_t { arithmetic, logical, bitwise };

struct Op {
  MPI_Op handle;
  OpClass op_class;
  ReduceKind kind;  // `user`: by `function`
  UserReduction function = nullptr;
};

std::vector<Type> types;
std::vector<Op> ops;

/// A reduction of integers that Ropewalk has not of its own.
template <class Combine>
void reduce_integers(void* inout, const void* in, size_t count, DataType type, void*) {
  visit_type(type, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T>) {
      T* const to = static_cast<T*>(inout);
      const T* const from = static_cast<const T*>(in);
      for (size_t i = 0; i < count; ++i) to[i] = static_cast<T>(Combine()(to[i], from[i]));
    }
  });
}

struct LogicalXor {
  bool operator()(auto a, auto b) const { return (a != 0) != (b != 0); }
};

template <class T>
void add_type(MPI_Datatype handle, TypeClass type_class, size_t elements = 1) {
  if (handle != MPI_DATATYPE_NULL)
    types.push_back({handle, data_type_of<T>(), elements, type_class});
}

/// A type of Fortran: how long it is the MPI's build has decided.
template <class Short, class Long>
void add_fortran_type(MPI_Datatype handle, TypeClass type_class, size_t elements = 1) {
  int bytes = 0;
  if (handle == MPI_DATATYPE_NULL || pmpi.Type_size(handle, &bytes) != MPI_SUCCESS) return;
  const size_t length = static_cast<size_t>(bytes) / elements;
  if (length == sizeof(Short))
    add_type<Short>(handle, type_class, elements);
  else if (length == sizeof(Long))
    add_type<Long>(handle, type_class, elements);
}

void find_integer_types() {
  const auto add = []<class T>(std::type_identity<T>, auto... handles) {
    (add_type<T>(handles, TypeClass::integer), ...);
  };
  add(std::type_identity<int>(), MPI_INT, MPI_INT32_T);
  add(std::type_identity<long>(), MPI_LONG, MPI_INT64_T, MPI_AINT, MPI_OFFSET, MPI_COUNT);
  add(std::type_identity<long long>(), MPI_LONG_LONG);
  add(std::type_identity<unsigned>(), MPI_UNSIGNED, MPI_UINT32_T);
  add(std::type_identity<unsigned long>(), MPI_UNSIGNED_LONG, MPI_UINT64_T);
  add(std::type_identity<unsigned long long>(), MPI_UNSIGNED_LONG_LONG);
  add(std::type_identity<int16_t>(), MPI_SHORT, MPI_INT16_T);
  add(std::type_identity<uint16_t>(), MPI_UNSIGNED_SHORT, MPI_UINT16_T);
  add(std::type_identity<int8_t>(), MPI_SIGNED_CHAR, MPI_INT8_T);
  add(std::type_identity<uint8_t>(), MPI_UNSIGNED_CHAR, MPI_UINT8_T);
}

/// Their handles are there in any MPI; which of them are types its build has decided.
void find_fortran_types() {
  add_fortran_type<int32_t, int64_t>(MPI_INTEGER, TypeClass::integer);
  add_fortran_type<int8_t, int8_t>(MPI_INTEGER1, TypeClass::integer);
  add_fortran_type<int16_t, int16_t>(MPI_INTEGER2, TypeClass::integer);
  add_fortran_type<int32_t, int32_t>(MPI_INTEGER4, TypeClass::integer);
  add_fortran_type<int64_t, int64_t>(MPI_INTEGER8, TypeClass::integer);
  add_fortran_type<int32_t, int64_t>(MPI_LOGICAL, TypeClass::logical);
  add_fortran_type<uint8_t, uint8_t>(MPI_CHARACTER, TypeClass::none);
  for (const MPI_Datatype type : {MPI_REAL, MPI_DOUBLE_PRECISION, MPI_REAL4, MPI_REAL8})
    add_fortran_type<float, double>(type, TypeClass::floating);
  for (const MPI_Datatype type : {MPI_COMPLEX, MPI_DOUBLE_COMPLEX, MPI_COMPLEX8, MPI_COMPLEX16})
    add_fortran_type<float, double>(type, TypeClass::complex, 2);
}

void find_ops() {
  ops = {{MPI_SUM, OpClass::arithmetic, ReduceKind::sum},
         {MPI_PROD, OpClass::arithmetic, ReduceKind::prod},
         {MPI_MIN, OpClass::arithmetic, ReduceKind::min},
         {MPI_MAX, OpClass::arithmetic, ReduceKind::max},
         {MPI_LAND, OpClass::logical, ReduceKind::user, reduce_integers<std::logical_and<>>},
         {MPI_LOR, OpClass::logical, ReduceKind::user, reduce_integers<std::logical_or<>>},
         {MPI_LXOR, OpClass::logical, ReduceKind::user, reduce_integers<LogicalXor>},
         {MPI_BAND, OpClass::bitwise, ReduceKind::user, reduce_integers<std::bit_and<>>},
         {MPI_BOR, OpClass::bitwise, ReduceKind::user, reduce_integers<std::bit_or<>>},
         {MPI_BXOR, OpClass::bitwise, ReduceKind::user, reduce_integers<std::bit_xor<>>}};
}

}  // namespace

void find_types() {
  add_type<double>(MPI_DOUBLE, TypeClass::floating);
  add_type<float>(MPI_FLOAT, TypeClass::floating);
  find_integer_types();
  add_type<uint8_t>(MPI_BYTE, TypeClass::bytes);
  add_type<uint8_t>(MPI_CHAR, TypeClass::none);
  add_type<int32_t>(MPI_WCHAR, TypeClass::none);
  add_type<uint8_t>(MPI_C_BOOL, TypeClass::logical);
  add_type<float>(MPI_C_FLOAT_COMPLEX, TypeClass::complex, 2);
  add_type<double>(MPI_C_DOUBLE_COMPLEX, TypeClass::complex, 2);
  find_fortran_types();
  find_ops();
}

const Type* find_type(MPI_Datatype type) {
  const auto found = std::ranges::find(types, type, &Type::handle);
  return found == types.end() ? nullptr : &*found;
}

bool is_user_op(MPI_Op op) {
  return std::ranges::find(ops, op, &Op::handle) == ops.end();
}

std::optional<ReduceOp> find_op(MPI_Op op, const Type& type) {
  const auto found = std::ranges::find(ops, op, &Op::handle);
  if (found == ops.end()) return {};
  bool defined = false;
  switch (type.type_class) {
    case TypeClass::integer:
      defined = true;
      break;
    case TypeClass::floating:
      defined = found->op_class == OpClass::arithmetic;
      break;
    case TypeClass::complex:
      defined = found->kind == ReduceKind::sum;
      break;
    case TypeClass::logical:
      defined = found->op_class == OpClass::logical;
      break;
    case TypeClass::bytes:
      defined = found->op_class == OpClass::bitwise;
      break;
    case TypeClass::none:
      break;
  }
  if (!defined) return {};
  return ReduceOp{found->kind, 1.0, found->function, nullptr};
}

}  // namespace ropewalk::mpi
