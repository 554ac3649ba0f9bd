// One collective call as a value: what Communicator::run, start, plan and start_group take.
//
//   comm->run(Call::all_reduce(gradients, kAvg));           // now
//   Work work = comm->start(Call::all_gather(in, out));     // in the background
//   Plan plan = comm->plan(Call::broadcast(weights, 0));    // prepared once, run many times
//
// These functions take any contiguous range of elements and note its length: a buffer that is too
// short or too long is an error before anything moves. They do not own the memory, which must live
// until the call has ended.
#pragma once

#include "ropewalk/types.h"

// types.h comes first: it refuses compilers that do not speak C++20.
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace ropewalk {

/// A contiguous range of elements that have a DataType: a named vector, array or Buffer, or a span.
template <class Range>
concept Elements = std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
    std::ranges::borrowed_range<Range> && is_element<std::ranges::range_value_t<Range>>;
/// One that can be written.
template <class Range>
concept MutableElements = Elements<Range> &&
    !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<Range>>>;
/// One that can be written and has the element type of `Other`.
template <class Range, class Other>
concept MutableElementsLike = MutableElements<Range> &&
    std::same_as<std::ranges::range_value_t<Range>, std::ranges::range_value_t<Other>>;

/// Sequences of messages between a pair of ranks, per direction: see Call::channel.
inline constexpr int kChannels = 2;
/// Call::in_count and out_count, where only the caller knows.
inline constexpr size_t kUnknownCount = std::numeric_limits<size_t>::max();

/// `count` is in elements and means, per collective: all_reduce, broadcast, reduce, send, recv: the
/// whole buffer; reduce_scatter, scatter: each rank's part of `out`; all_gather, gather: each
/// rank's part of `in`; all_to_all: the part for each rank. `counts` (size() entries), where not
/// empty, replaces `count` with a part per rank (all_gather_v, reduce_scatter_v, gather_v,
/// scatter_v); for all_to_all_v it is the parts sent and `recv_counts` the parts received. Parts
/// lie one behind the other in rank order.
/// In place: in == out (all_reduce, broadcast, reduce); for reduce_scatter and scatter `out` may be
/// this rank's part of `in`; for all_gather and gather `in` may be this rank's part of `out`.
struct Call {
  Collective collective = Collective::all_reduce;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  std::vector<size_t> counts, recv_counts;
  DataType type = DataType::float32;
  ReduceOp op = {};
  int root = 0;  // broadcast, reduce, gather, scatter; the peer of send and recv
  /// send and recv: which of the kChannels sequences of messages between the pair. Messages of one
  /// channel arrive in order; those of another neither wait for them nor hold them up.
  int channel = 0;
  uint32_t tag = 0;  // send and recv: must be equal on both sides, else the call is a mismatch
  Algorithm algorithm = Algorithm::automatic;
  /// Elements that lie at `in` and at `out`. A call that needs another number there on this rank is
  /// refused.
  size_t in_count = kUnknownCount, out_count = kUnknownCount;

  // The usual calls; in place where only one range is given. Those that end in _v have parts of
  // different lengths: counts[r] elements for rank r.
  static Call all_reduce(MutableElements auto&& inout, ReduceOp op = kSum) {
    return make(Collective::all_reduce, inout, inout, std::ranges::size(inout), 0, op);
  }
  template <Elements In, MutableElementsLike<In> Out>
  static Call all_reduce(In&& in, Out&& out, ReduceOp op = kSum) {
    return make(Collective::all_reduce, in, out, std::ranges::size(in), 0, op);
  }
  /// `in` is a part for each rank, each as long as `out`.
  template <Elements In, MutableElementsLike<In> Out>
  static Call reduce_scatter(In&& in, Out&& out, ReduceOp op = kSum) {
    return make(Collective::reduce_scatter, in, out, std::ranges::size(out), 0, op);
  }
  template <Elements In, MutableElementsLike<In> Out>
  static Call reduce_scatter_v(In&& in, Out&& out, std::vector<size_t> counts, ReduceOp op = kSum) {
    return make(Collective::reduce_scatter, in, out, 0, 0, op, std::move(counts));
  }
  /// `out` is a part for each rank, each as long as `in`.
  template <Elements In, MutableElementsLike<In> Out>
  static Call all_gather(In&& in, Out&& out) {
    return make(Collective::all_gather, in, out, std::ranges::size(in));
  }
  template <Elements In, MutableElementsLike<In> Out>
  static Call all_gather_v(In&& in, Out&& out, std::vector<size_t> counts) {
    return make(Collective::all_gather, in, out, 0, 0, {}, std::move(counts));
  }
  static Call broadcast(MutableElements auto&& inout, int root = 0) {
    return make(Collective::broadcast, inout, inout, std::ranges::size(inout), root);
  }
  /// `out` is written on `root` only and may be empty elsewhere; gather likewise.
  template <Elements In, MutableElementsLike<In> Out>
  static Call reduce(In&& in, Out&& out, int root = 0, ReduceOp op = kSum) {
    return make(Collective::reduce, in, out, std::ranges::size(in), root, op);
  }
  template <Elements In, MutableElementsLike<In> Out>
  static Call gather(In&& in, Out&& out, int root = 0) {
    return make(Collective::gather, in, out, std::ranges::size(in), root);
  }
  template <Elements In, MutableElementsLike<In> Out>
  static Call gather_v(In&& in, Out&& out, std::vector<size_t> counts, int root = 0) {
    return make(Collective::gather, in, out, 0, root, {}, std::move(counts));
  }
  /// `in` is read on `root` only and may be empty elsewhere.
  template <Elements In, MutableElementsLike<In> Out>
  static Call scatter(In&& in, Out&& out, int root = 0) {
    return make(Collective::scatter, in, out, std::ranges::size(out), root);
  }
  template <Elements In, MutableElementsLike<In> Out>
  static Call scatter_v(In&& in, Out&& out, std::vector<size_t> counts, int root = 0) {
    return make(Collective::scatter, in, out, 0, root, {}, std::move(counts));
  }
  /// `in` and `out` are equal parts for each of the `ranks` (Communicator::size()).
  template <Elements In, MutableElementsLike<In> Out>
  static Call all_to_all(In&& in, Out&& out, int ranks) {
    return make(Collective::all_to_all, in, out,
                ranks < 1 ? kUnknownCount : std::ranges::size(in) / static_cast<size_t>(ranks));
  }
  template <Elements In, MutableElementsLike<In> Out>
  static Call all_to_all_v(In&& in, std::vector<size_t> send_counts, Out&& out,
                           std::vector<size_t> recv_counts) {
    Call call = make(Collective::all_to_all, in, out, 0, 0, {}, std::move(send_counts));
    call.recv_counts = std::move(recv_counts);
    return call;
  }
  static Call send(Elements auto&& in, int to, int channel = 0) {
    Call call = make(Collective::send, in, span_like(in), std::ranges::size(in), to);
    call.channel = channel;
    return call;
  }
  static Call recv(MutableElements auto&& out, int from, int channel = 0) {
    Call call = make(Collective::recv, span_like(out), out, std::ranges::size(out), from);
    call.channel = channel;
    return call;
  }

  bool operator==(const Call&) const = default;

 private:
  /// An empty span of elements of the same type.
  template <class Range>
  static std::span<std::ranges::range_value_t<Range>> span_like(const Range&) {
    return {};
  }
  template <class In, class Out>
  static Call make(Collective collective, In&& in, Out&& out, size_t count, int root = 0,
                   ReduceOp op = {}, std::vector<size_t> counts = {}) {
    Call call;
    call.collective = collective;
    call.in = std::ranges::data(in);
    call.out = std::ranges::data(out);
    call.count = count;
    call.counts = std::move(counts);
    call.type = data_type_of<std::ranges::range_value_t<In>>();
    call.op = op;
    call.root = root;
    call.in_count = std::ranges::size(in);
    call.out_count = std::ranges::size(out);
    return call;
  }
};

/// Elements that `call` reads at `in` and writes at `out` on `rank` of `ranks`.
struct Extent {
  size_t in = 0, out = 0;
};
Extent extent_of(const Call& call, int rank, int ranks);

}  // namespace ropewalk
