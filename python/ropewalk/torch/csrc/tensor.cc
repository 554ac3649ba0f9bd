#include "tensor.h"

#include <c10/util/Exception.h>

#include <optional>

namespace ropewalk::pytorch {
namespace {

/// What PyTorch calls a C++ element type.
template <class T>
struct InPytorch {
  using Type = T;
};
template <>
struct InPytorch<float16> {
  using Type = at::Half;
};
template <>
struct InPytorch<bfloat16> {
  using Type = at::BFloat16;
};

std::optional<DataType> type_of(at::ScalarType type) {
  if (type == at::kBool) return DataType::uint8;
  for (int number = 0; number < kDataTypes; ++number) {
    const auto known = static_cast<DataType>(number);
    const bool same = visit_type(known, [type]<class T>(std::type_identity<T>) {
      using Scalar = c10::CppTypeToScalarType<typename InPytorch<T>::Type>;
      if constexpr (requires { Scalar::value; }) return Scalar::value == type;
      return false;
    });
    if (same) return known;
  }
  return {};
}

void check(const at::Tensor& tensor, const Caller& caller) {
  if (!tensor.defined()) caller.reject("a tensor is undefined");
  if (!tensor.device().is_cpu())
    caller.reject(c10::str("a tensor is on ", tensor.device(),
                           "; this backend moves CPU tensors: call .cpu() first"));
  if (tensor.layout() != at::kStrided)
    caller.reject(c10::str("a tensor is ", tensor.layout(), "; call .to_dense() first"));
  if (!tensor.is_contiguous())
    caller.reject(c10::str("a tensor of shape ", tensor.sizes(), " and strides ", tensor.strides(),
                           " is not contiguous; call .contiguous() first"));
}

/// Bits have no carry, so the element type does not matter.
template <class Combine>
void combine_bytes(void* inout, const void* in, size_t bytes, Combine combine) {
  auto* to = static_cast<unsigned char*>(inout);
  const auto* from = static_cast<const unsigned char*>(in);
  for (size_t i = 0; i < bytes; ++i) to[i] = combine(to[i], from[i]);
}

void bitwise_and(void* inout, const void* in, size_t count, DataType type, void*) {
  combine_bytes(inout, in, count * size_of(type),
                [](unsigned char a, unsigned char b) { return a & b; });
}
void bitwise_or(void* inout, const void* in, size_t count, DataType type, void*) {
  combine_bytes(inout, in, count * size_of(type),
                [](unsigned char a, unsigned char b) { return a | b; });
}
void bitwise_xor(void* inout, const void* in, size_t count, DataType type, void*) {
  combine_bytes(inout, in, count * size_of(type),
                [](unsigned char a, unsigned char b) { return a ^ b; });
}

ReduceOp bitwise(UserReduction function) {
  ReduceOp op;
  op.kind = ReduceKind::user;
  op.function = function;
  return op;
}

/// _make_nccl_premul_sum: every rank's tensor times its own factor.
ReduceOp scaled_sum(const c10d::ReduceOp& op, const Caller& caller) {
  const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (factor == nullptr) caller.reject("PREMUL_SUM came without a factor");
  ReduceOp scaled;
  scaled.kind = ReduceKind::scaled_sum;
  scaled.scale = factor->tensor_factor.defined() ? factor->tensor_factor.item<double>()
                                                 : factor->double_factor;
  return scaled;
}

ReduceOp op_of(const c10d::ReduceOp& op, at::ScalarType type, const Caller& caller) {
  const bool is_bool = type == at::kBool;
  const bool is_integral = c10::isIntegralType(type, true);
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return is_bool ? kMax : kSum;  // "or", as NCCL has it
    case c10d::ReduceOp::PRODUCT:
      return is_bool ? kMin : kProd;
    case c10d::ReduceOp::MIN:
      return kMin;
    case c10d::ReduceOp::MAX:
      return kMax;
    case c10d::ReduceOp::AVG:
      if (is_bool) caller.reject("booleans have no average; convert them to numbers first");
      return kAvg;
    case c10d::ReduceOp::PREMUL_SUM:
      if (is_integral)
        caller.reject(c10::str("PREMUL_SUM is not defined on ", type,
                               "; convert the tensor to a floating type first"));
      return scaled_sum(op, caller);
    case c10d::ReduceOp::BAND:
    case c10d::ReduceOp::BOR:
    case c10d::ReduceOp::BXOR:
      if (!is_integral)
        caller.reject(c10::str("bitwise operations are not defined on ", type,
                               "; they take integers and booleans"));
      return bitwise(op.op_ == c10d::ReduceOp::BAND  ? bitwise_and
                     : op.op_ == c10d::ReduceOp::BOR ? bitwise_or
                                                     : bitwise_xor);
    default:
      caller.reject("the reduce op is unknown; take one of torch.distributed.ReduceOp");
  }
}

bool is_linear(const c10d::ReduceOp& op) {
  return op.op_ == c10d::ReduceOp::SUM || op.op_ == c10d::ReduceOp::AVG ||
         op.op_ == c10d::ReduceOp::PREMUL_SUM;
}

}  // namespace

void Caller::reject(const std::string& reason) const {
  C10_THROW_ERROR(ValueError, c10::str("rank ", rank, ": ", operation, ": ", reason));
}

Elements moved(const at::Tensor& tensor, const Caller& caller) {
  check(tensor, caller);
  if (const auto type = type_of(tensor.scalar_type()))
    return {tensor.data_ptr(), static_cast<size_t>(tensor.numel()), *type};
  return {tensor.data_ptr(), tensor.nbytes(), DataType::uint8};
}

Call movement(Collective collective, const void* in, void* out, size_t count, DataType type) {
  Call call;
  call.collective = collective;
  call.in = in;
  call.out = out;
  call.count = count;
  call.type = type;
  return call;
}

Reduction reduced(const at::Tensor& tensor, const c10d::ReduceOp& op, const Caller& caller) {
  check(tensor, caller);
  at::ScalarType type = tensor.scalar_type();
  size_t count = static_cast<size_t>(tensor.numel());
  if (type == at::kComplexFloat || type == at::kComplexDouble) {
    if (!is_linear(op))
      caller.reject(
          "complex numbers have sums and averages only; torch.view_as_real gives their parts");
    type = c10::toRealValueType(type);
    count *= 2;
  }
  const auto known = type_of(type);
  if (!known)
    caller.reject(c10::str("elements of type ", type, " cannot be reduced; convert them first"));
  return {{tensor.data_ptr(), count, *known}, op_of(op, type, caller)};
}

std::vector<size_t> counts_of(const std::vector<at::Tensor>& tensors, int ranks,
                              const at::Tensor& alike, const Caller& caller) {
  if (tensors.size() != static_cast<size_t>(ranks))
    caller.reject(c10::str("a list has ", tensors.size(), " tensors; the group has ", ranks,
                           " ranks: give one tensor for each"));
  std::vector<size_t> counts;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) caller.reject("a tensor is undefined");
    if (tensor.scalar_type() != alike.scalar_type())
      caller.reject(c10::str("tensors of types ", tensor.scalar_type(), " and ",
                             alike.scalar_type(), " in one call; convert them to one type first"));
    counts.push_back(static_cast<size_t>(tensor.numel()));
  }
  return counts;
}

}  // namespace ropewalk::pytorch
