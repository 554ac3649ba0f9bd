// What a tensor is to a collective: where its elements lie, how many, of which type.
#pragma once

#include <ATen/ATen.h>
#include <ropewalk/communicator.h>

#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace ropewalk::pytorch {

/// Who calls: for messages, "rank 1: all_reduce: ...".
struct Caller {
  int rank;
  const char* operation;

  /// Raises ValueError in Python.
  [[noreturn]] void reject(const std::string& reason) const;
};

struct Elements {
  void* data;
  size_t count;
  DataType type;
};

/// For calls that only move bytes: any element type. Rejects a tensor that is not a contiguous,
/// strided tensor of the CPU.
Elements moved(const at::Tensor& tensor, const Caller& caller);

Call movement(Collective collective, const void* in, void* out, size_t count, DataType type);

/// For calls that reduce. Complex numbers are pairs of real ones, booleans are bytes; rejects types
/// and pairs of type and op that have no meaning.
struct Reduction {
  Elements elements;
  ReduceOp op;
};
Reduction reduced(const at::Tensor& tensor, const c10d::ReduceOp& op, const Caller& caller);

/// Rejects a list that has not one tensor for each of `ranks`, or tensors of another type than
/// `alike`. Returns the number of elements of each.
std::vector<size_t> counts_of(const std::vector<at::Tensor>& tensors, int ranks,
                              const at::Tensor& alike, const Caller& caller);

}  // namespace ropewalk::pytorch
