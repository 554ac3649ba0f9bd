// all_reduce of sparse tensors: gradients of embeddings.
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>

#include "backend.h"

namespace ropewalk::pytorch {
namespace {

/// One row per place: every rank's rows, one behind the other. `rows` is their number by rank.
at::Tensor gather_rows(Communicator& comm, const at::Tensor& own, const std::vector<int64_t>& rows,
                       std::chrono::milliseconds timeout, const Caller& caller) {
  auto shape = own.sizes().vec();
  shape[0] = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  at::Tensor all = at::empty(shape, own.options());
  const Elements in = moved(own, caller), out = moved(all, caller);
  const size_t elements_of_row = all.numel() == 0 ? 0 : out.count / static_cast<size_t>(shape[0]);
  Call call = movement(Collective::all_gather, in.data, out.data, 0, in.type);
  for (int64_t count : rows) call.counts.push_back(static_cast<size_t>(count) * elements_of_row);
  comm.run(call, timeout);
  return all;
}

}  // namespace

/// Ranks have different numbers of places, so each tells the others its own first.
WorkPtr Backend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const Caller by = caller("all_reduce of a sparse tensor");
  if (tensors.size() != 1 || !tensors[0].device().is_cpu()) by.reject("expects one CPU tensor");
  if (options.reduceOp != c10d::ReduceOp::SUM) by.reject("sparse tensors have sums only");
  if (collected_) by.reject("sparse tensors cannot be coalesced");
  const auto timeout = options.timeout == c10d::kUnsetTimeout ? options_->timeout : options.timeout;
  const auto both = parts(by.operation);
  const at::Tensor own = tensors[0].coalesce();
  const WorkInfo info{getRank(), c10d::OpType::_ALLREDUCE_SPARSE, "ropewalk:all_reduce",
                      sequence_++, timeout};
  return run_now(info, both, tensors, tensors, [&] {
    Communicator& comm = *both.group->comm;
    const int64_t mine = own._nnz();
    std::vector<int64_t> rows(static_cast<size_t>(getSize()));
    comm.run(movement(Collective::all_gather, &mine, rows.data(), 1, DataType::int64), timeout);
    const at::Tensor places = gather_rows(comm, own.indices().t().contiguous(), rows, timeout, by);
    const at::Tensor values = gather_rows(comm, own.values().contiguous(), rows, timeout, by);
    tensors[0].copy_(at::sparse_coo_tensor(places.t(), values, own.sizes()).coalesce());
  });
}

}  // namespace ropewalk::pytorch
