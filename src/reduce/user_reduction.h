// ReduceKind::user: the caller's function, which reduces in place, over our several spans.
#pragma once

#include "reduce/kernels.h"
#include "ropewalk/types.h"

namespace ropewalk {

/// reduce() for an op of kind user. Calls op.function on blocks of at most kUserBlockBytes, so that
/// a block stays in cache while all sources are added and all destinations written.
inline constexpr size_t kUserBlockBytes = 8192;
void reduce_user(const ReduceArguments& arguments, DataType type, const ReduceOp& op);

}  // namespace ropewalk
