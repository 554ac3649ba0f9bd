// Each of torch's calls as calls of the communicator.
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "backend.h"

namespace ropewalk::pytorch {
namespace {

using c10d::OpType;

const at::Tensor& only(const Tensors& tensors, const Caller& caller) {
  if (tensors.size() != 1)
    caller.reject(c10::str("expects one tensor per rank, got ", tensors.size()));
  return tensors[0];
}

const Tensors& only(const std::vector<Tensors>& lists, const Caller& caller) {
  if (lists.size() != 1)
    caller.reject(c10::str("expects one list of tensors per rank, got ", lists.size()));
  return lists[0];
}

/// Where counts differ the call is one with a count per rank.
void set_counts(Call& call, std::vector<size_t> counts) {
  const bool are_equal = std::ranges::all_of(counts, [&](size_t c) { return c == counts[0]; });
  if (are_equal)
    call.count = counts[0];
  else
    call.counts = std::move(counts);
}

/// One tensor for a list of them: the memory itself where they lie one behind the other, else new.
class Flat {
 public:
  explicit Flat(const Tensors& parts) : parts_(parts) {
    int64_t elements = 0;
    const auto* next = static_cast<const std::byte*>(parts[0].data_ptr());
    for (const at::Tensor& part : parts) {
      in_place_ &= part.is_contiguous() && part.data_ptr() == next;
      next += part.nbytes();
      elements += part.numel();
    }
    tensor_ = in_place_ ? at::from_blob(parts[0].data_ptr(), {elements}, parts[0].options())
                        : at::empty({elements}, parts[0].options());
  }
  const at::Tensor& tensor() const { return tensor_; }
  void pack() const {
    visit([](const at::Tensor& part, const at::Tensor& flat) { flat.copy_(part); });
  }
  void unpack() const {
    visit([](const at::Tensor& part, const at::Tensor& flat) { part.copy_(flat); });
  }

 private:
  template <class Visit>
  void visit(const Visit& visit) const {
    if (in_place_) return;
    // Whatever mode the thread is in that sees the call end.
    const at::AutoDispatchBelowADInplaceOrView guard;
    int64_t begin = 0;
    for (const at::Tensor& part : parts_) {
      visit(part, tensor_.narrow(0, begin, part.numel()).view(part.sizes()));
      begin += part.numel();
    }
  }
  Tensors parts_;
  bool in_place_ = true;
  at::Tensor tensor_;
};

/// Counts of a tensor's elements as counts of what the call moves: types that only have bytes.
std::vector<size_t> scaled(std::vector<size_t> counts, const Elements& elements,
                           const at::Tensor& tensor) {
  const size_t factor = tensor.element_size() / size_of(elements.type);
  for (size_t& count : counts) count *= factor;
  return counts;
}

void require_numel(const at::Tensor& tensor, int64_t wanted, const Caller& caller,
                   const char* what) {
  if (tensor.numel() != wanted)
    caller.reject(
        c10::str(what, " has ", tensor.numel(), " elements where ", wanted, " are needed"));
}

void require_same_type(const at::Tensor& a, const at::Tensor& b, const Caller& caller) {
  if (a.scalar_type() != b.scalar_type())
    caller.reject(c10::str("input and output differ in type: ", a.scalar_type(), " and ",
                           b.scalar_type(), "; make the output of the input's type"));
}

/// all_to_all_single's splits count rows; the call's count elements.
std::vector<size_t> split_counts(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                                 int ranks, const Caller& caller) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const auto row = static_cast<size_t>(rows == 0 ? 0 : tensor.numel() / rows);
  std::vector<size_t> counts;
  if (splits.empty()) {
    if (rows % ranks != 0)
      caller.reject(c10::str("the tensor's first dimension, ", rows, ", is no multiple of the ",
                             ranks, " ranks; give split sizes"));
    counts.assign(static_cast<size_t>(ranks), static_cast<size_t>(rows / ranks) * row);
    return counts;
  }
  int64_t sum = 0;
  for (int64_t split : splits) {
    if (split < 0) caller.reject("a split size is negative; give 0 or more");
    sum += split;
    counts.push_back(static_cast<size_t>(split) * row);
  }
  if (splits.size() != static_cast<size_t>(ranks) || sum != rows)
    caller.reject(c10::str("the split sizes ", splits, " do not divide ", rows, " rows among ",
                           ranks, " ranks"));
  return counts;
}

Call gathering(const at::Tensor& output, const at::Tensor& input, int ranks, const Caller& caller) {
  require_same_type(input, output, caller);
  require_numel(output, input.numel() * ranks, caller, "the output");
  const Elements in = moved(input, caller), out = moved(output, caller);
  return movement(Collective::all_gather, in.data, out.data, in.count, in.type);
}

Call scattering(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op,
                int ranks, const Caller& caller) {
  require_same_type(input, output, caller);
  require_numel(input, output.numel() * ranks, caller, "the input");
  const Reduction in = reduced(input, op, caller), out = reduced(output, op, caller);
  Call call = movement(Collective::reduce_scatter, in.elements.data, out.elements.data,
                       out.elements.count, in.elements.type);
  call.op = in.op;
  return call;
}

Call reducing(Collective collective, const at::Tensor& tensor, const c10d::ReduceOp& op,
              const Caller& caller) {
  const Reduction what = reduced(tensor, op, caller);
  Call call = movement(collective, what.elements.data, what.elements.data, what.elements.count,
                       what.elements.type);
  call.op = what.op;
  return call;
}

}  // namespace

WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const Caller by = caller("broadcast");
  Request request{"ropewalk:broadcast", OpType::BROADCAST, {}, tensors, tensors, {}, {}};
  for (const at::Tensor& tensor : tensors) {
    const Elements e = moved(tensor, by);
    request.calls.push_back(movement(Collective::broadcast, e.data, e.data, e.count, e.type));
    request.calls.back().root = static_cast<int>(options.rootRank);
  }
  return submit(std::move(request), options);
}

WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].layout() == at::kSparse)
    return allreduce_sparse(tensors, options);
  Request request{"ropewalk:all_reduce", OpType::ALLREDUCE, {}, tensors, tensors, {}, {}};
  for (const at::Tensor& tensor : tensors)
    request.calls.push_back(
        reducing(Collective::all_reduce, tensor, options.reduceOp, caller("all_reduce")));
  return submit(std::move(request), options);
}

WorkPtr Backend::allreduce_coalesced(Tensors& tensors,
                                     const c10d::AllreduceCoalescedOptions& options) {
  return allreduce(tensors, options);
}

WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const Caller by = caller("reduce");
  Request request{"ropewalk:reduce", OpType::REDUCE, {}, tensors, tensors, {}, {}};
  Call call = reducing(Collective::reduce, only(tensors, by), options.reduceOp, by);
  call.root = static_cast<int>(options.rootRank);
  if (call.root != getRank()) call.out = nullptr;
  request.calls.push_back(call);
  return submit(std::move(request), options);
}

/// `outputs[i]` takes what every rank gives as `inputs[i]`.
WorkPtr Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                           const c10d::AllgatherOptions& options) {
  const Caller by = caller("all_gather");
  if (outputs.size() != inputs.size())
    by.reject(c10::str(outputs.size(), " lists of outputs for ", inputs.size(), " inputs"));
  Request request{"ropewalk:all_gather", OpType::ALLGATHER, {}, inputs, {}, {}, {}};
  std::vector<Flat> flats;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto counts = counts_of(outputs[i], getSize(), inputs[i], by);
    require_numel(inputs[i], static_cast<int64_t>(counts[static_cast<size_t>(getRank())]), by,
                  "the input");
    const Flat& flat = flats.emplace_back(outputs[i]);
    const Elements in = moved(inputs[i], by), out = moved(flat.tensor(), by);
    Call call = movement(Collective::all_gather, in.data, out.data, 0, in.type);
    set_counts(call, scaled(std::move(counts), in, inputs[i]));
    request.calls.push_back(call);
    request.temporaries.push_back(flat.tensor());
    std::ranges::copy(outputs[i], std::back_inserter(request.outputs));
  }
  request.finish = [flats = std::move(flats)] {
    for (const Flat& flat : flats) flat.unpack();
  };
  return submit(std::move(request), options);
}

/// The same with the lists turned: `outputs[rank]` has one tensor for each input.
WorkPtr Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& options) {
  const Caller by = caller("all_gather_coalesced");
  std::vector<Tensors> turned(inputs.size());
  for (const Tensors& of_rank : outputs) {
    if (of_rank.size() != inputs.size())
      by.reject(c10::str("a list has ", of_rank.size(), " outputs for ", inputs.size(), " inputs"));
    for (size_t i = 0; i < inputs.size(); ++i) turned[i].push_back(of_rank[i]);
  }
  return allgather(turned, inputs, options);
}

WorkPtr Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                 const c10d::AllgatherOptions& options) {
  Request request{"ropewalk:all_gather", OpType::_ALLGATHER_BASE, {}, {input}, {output}, {}, {}};
  request.calls.push_back(gathering(output, input, getSize(), caller("all_gather_into_tensor")));
  return submit(std::move(request), options);
}

WorkPtr Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& options) {
  const Caller by = caller("all_gather_into_tensor");
  if (outputs.size() != inputs.size())
    by.reject(c10::str(outputs.size(), " outputs for ", inputs.size(), " inputs"));
  Request request{
      "ropewalk:all_gather", OpType::ALLGATHER_INTO_TENSOR_COALESCED, {}, inputs, outputs, {}, {}};
  for (size_t i = 0; i < inputs.size(); ++i)
    request.calls.push_back(gathering(outputs[i], inputs[i], getSize(), by));
  return submit(std::move(request), options);
}

WorkPtr Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                        const c10d::GatherOptions& options) {
  const Caller by = caller("gather");
  const at::Tensor& input = only(inputs, by);
  const bool is_root = options.rootRank == getRank();
  const Elements in = moved(input, by);
  Request request{"ropewalk:gather", OpType::GATHER, {}, inputs, {}, {}, {}};
  Call call = movement(Collective::gather, in.data, nullptr, in.count, in.type);
  call.root = static_cast<int>(options.rootRank);
  if (is_root) {
    request.outputs = only(outputs, by);
    for (size_t count : counts_of(request.outputs, getSize(), input, by))
      if (count != static_cast<size_t>(input.numel()))
        by.reject("the outputs must be as long as the input");
    const Flat flat(request.outputs);
    call.out = flat.tensor().data_ptr();
    request.temporaries.push_back(flat.tensor());
    request.finish = [flat] { flat.unpack(); };
  } else if (!outputs.empty()) {
    by.reject("only the root gives outputs; give none here");
  }
  request.calls.push_back(call);
  return submit(std::move(request), options);
}

WorkPtr Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ScatterOptions& options) {
  const Caller by = caller("scatter");
  const at::Tensor& output = only(outputs, by);
  const Elements out = moved(output, by);
  Request request{"ropewalk:scatter", OpType::SCATTER, {}, {}, outputs, {}, {}};
  Call call = movement(Collective::scatter, nullptr, out.data, out.count, out.type);
  call.root = static_cast<int>(options.rootRank);
  if (options.rootRank == getRank()) {
    request.inputs = only(inputs, by);
    for (size_t count : counts_of(request.inputs, getSize(), output, by))
      if (count != static_cast<size_t>(output.numel()))
        by.reject("the inputs must be as long as the output");
    const Flat flat(request.inputs);
    flat.pack();
    call.in = flat.tensor().data_ptr();
    request.temporaries.push_back(flat.tensor());
  } else if (!inputs.empty()) {
    by.reject("only the root gives inputs; give none here");
  }
  request.calls.push_back(call);
  return submit(std::move(request), options);
}

WorkPtr Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                const c10d::ReduceScatterOptions& options) {
  const Caller by = caller("reduce_scatter");
  const at::Tensor& output = only(outputs, by);
  Request request{
      "ropewalk:reduce_scatter", OpType::REDUCE_SCATTER, {}, only(inputs, by), outputs, {}, {}};
  auto counts = counts_of(request.inputs, getSize(), output, by);
  require_numel(output, static_cast<int64_t>(counts[static_cast<size_t>(getRank())]), by,
                "the output");
  const Flat flat(request.inputs);
  flat.pack();
  const Reduction in = reduced(flat.tensor(), options.reduceOp, by);
  const Reduction out = reduced(output, options.reduceOp, by);
  Call call = movement(Collective::reduce_scatter, in.elements.data, out.elements.data, 0,
                       in.elements.type);
  call.op = in.op;
  if (c10::isComplexType(output.scalar_type()))
    for (size_t& count : counts) count *= 2;
  set_counts(call, std::move(counts));
  request.calls.push_back(call);
  request.temporaries.push_back(flat.tensor());
  return submit(std::move(request), options);
}

WorkPtr Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                      const c10d::ReduceScatterOptions& options) {
  Request request{
      "ropewalk:reduce_scatter", OpType::_REDUCE_SCATTER_BASE, {}, {input}, {output}, {}, {}};
  request.calls.push_back(
      scattering(output, input, options.reduceOp, getSize(), caller("reduce_scatter_tensor")));
  return submit(std::move(request), options);
}

WorkPtr Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::ReduceScatterOptions& options) {
  const Caller by = caller("reduce_scatter_tensor");
  if (outputs.size() != inputs.size())
    by.reject(c10::str(outputs.size(), " outputs for ", inputs.size(), " inputs"));
  Request request{"ropewalk:reduce_scatter",
                  OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                  {},
                  inputs,
                  outputs,
                  {},
                  {}};
  for (size_t i = 0; i < inputs.size(); ++i)
    request.calls.push_back(scattering(outputs[i], inputs[i], options.reduceOp, getSize(), by));
  return submit(std::move(request), options);
}

WorkPtr Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                               std::vector<int64_t>& output_splits,
                               std::vector<int64_t>& input_splits,
                               const c10d::AllToAllOptions& options) {
  const Caller by = caller("all_to_all_single");
  require_same_type(input, output, by);
  const Elements in = moved(input, by), out = moved(output, by);
  Request request{"ropewalk:all_to_all", OpType::ALLTOALL_BASE, {}, {input}, {output}, {}, {}};
  Call call = movement(Collective::all_to_all, in.data, out.data, 0, in.type);
  call.counts = scaled(split_counts(input, input_splits, getSize(), by), in, input);
  call.recv_counts = scaled(split_counts(output, output_splits, getSize(), by), in, input);
  request.calls.push_back(call);
  return submit(std::move(request), options);
}

WorkPtr Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  const Caller by = caller("all_to_all");
  if (inputs.empty()) by.reject("the list of inputs is empty");
  auto counts = counts_of(inputs, getSize(), inputs[0], by);
  auto recv_counts = counts_of(outputs, getSize(), inputs[0], by);
  const Flat from(inputs), to(outputs);
  from.pack();
  const Elements in = moved(from.tensor(), by), out = moved(to.tensor(), by);
  Request request{"ropewalk:all_to_all", OpType::ALLTOALL, {}, inputs, outputs, {}, {}};
  Call call = movement(Collective::all_to_all, in.data, out.data, 0, in.type);
  call.counts = scaled(std::move(counts), in, inputs[0]);
  call.recv_counts = scaled(std::move(recv_counts), in, inputs[0]);
  request.calls.push_back(call);
  request.temporaries = {from.tensor(), to.tensor()};
  request.finish = [to] { to.unpack(); };
  return submit(std::move(request), options);
}

WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  Request request{"ropewalk:barrier", OpType::BARRIER, {}, {}, {}, {}, {}};
  std::byte* byte = &parts("barrier").group->barrier_byte;
  Call call = movement(Collective::barrier, byte, byte, 1, DataType::uint8);
  call.op = kMax;
  request.calls.push_back(call);
  return submit(std::move(request), options);
}

}  // namespace ropewalk::pytorch
