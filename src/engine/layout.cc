#include "engine/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

#include "reduce/reduce.h"
#include "schedule/collective.h"

namespace ropewalk {
namespace {

constexpr size_t kCacheLineBytes = 64;

size_t grain_of(DataType type) {
  return kCacheLineBytes / size_of(type);
}

size_t count_of(const std::vector<size_t>& counts, size_t count, int rank) {
  return counts.empty() ? count : counts[static_cast<size_t>(rank)];
}

size_t sum_of(const std::vector<size_t>& counts, size_t count, int ranks) {
  return counts.empty() ? count * static_cast<size_t>(ranks)
                        : std::accumulate(counts.begin(), counts.end(), size_t{0});
}

const std::byte* at(const void* base, size_t element, DataType type) {
  return base == nullptr ? nullptr : static_cast<const std::byte*>(base) + element * size_of(type);
}
std::byte* at(void* base, size_t element, DataType type) {
  return base == nullptr ? nullptr : static_cast<std::byte*>(base) + element * size_of(type);
}

/// all_reduce, broadcast, reduce, send, recv, barrier: parts of one vector.
std::vector<BlockMemory> lay_out_whole(const Call& call, const Schedule& schedule) {
  const CollectiveTraits traits = traits_of(call.collective);
  const bool is_root = schedule.rank == call.root;
  const bool has_in = is_root || !traits.reads_on_root;
  const bool has_out = is_root || !traits.writes_on_root;
  std::vector<BlockMemory> blocks(static_cast<size_t>(schedule.blocks));
  for (size_t b = 0; b < blocks.size(); ++b) {
    const size_t begin = part_begin(call.count, blocks.size(), b, grain_of(call.type));
    const size_t end = part_begin(call.count, blocks.size(), b + 1, grain_of(call.type));
    blocks[b] = {has_in ? at(call.in, begin, call.type) : nullptr,
                 has_out ? at(call.out, begin, call.type) : nullptr, end - begin};
  }
  return blocks;
}

/// reduce_scatter, all_gather, gather, scatter: a part per rank, each cut into equal pieces.
std::vector<BlockMemory> lay_out_parts(const Call& call, const Schedule& schedule) {
  const CollectiveTraits traits = traits_of(call.collective);
  const bool gathers = traits.in == Side::own;
  // The side with every rank's part exists on all ranks, or on the root alone.
  const bool has_whole = !traits.is_rooted() || schedule.rank == call.root;
  const auto pieces = static_cast<size_t>(schedule.blocks / schedule.ranks);
  std::vector<BlockMemory> blocks;
  size_t part = 0;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const size_t count = count_of(call.counts, call.count, rank);
    const bool own = rank == schedule.rank;
    for (size_t piece = 0; piece < pieces; ++piece) {
      const size_t begin = part_begin(count, pieces, piece, grain_of(call.type));
      const size_t end = part_begin(count, pieces, piece + 1, grain_of(call.type));
      BlockMemory block{nullptr, nullptr, end - begin};
      if (gathers) {
        if (own) block.in = at(call.in, begin, call.type);
        if (has_whole) block.out = at(call.out, part + begin, call.type);
      } else {
        if (has_whole) block.in = at(call.in, part + begin, call.type);
        if (own) block.out = at(call.out, begin, call.type);
      }
      blocks.push_back(block);
    }
    part += count;
  }
  return blocks;
}

std::vector<BlockMemory> lay_out_all_to_all(const Call& call, const Schedule& schedule) {
  std::vector<BlockMemory> blocks;
  size_t begin = 0;
  for (int to = 0; to < schedule.ranks; ++to) {
    const size_t count = count_of(call.counts, call.count, to);
    blocks.push_back({at(call.in, begin, call.type), nullptr, count});
    begin += count;
  }
  begin = 0;
  const auto& counts = call.recv_counts.empty() ? call.counts : call.recv_counts;
  for (int from = 0; from < schedule.ranks; ++from) {
    const size_t count = count_of(counts, call.count, from);
    blocks.push_back({nullptr, at(call.out, begin, call.type), count});
    begin += count;
  }
  return blocks;
}

[[noreturn]] void reject(const Call& call, std::string reason) {
  throw Error(ErrorCode::invalid_argument, std::string(name_of(call.collective)),
              std::move(reason));
}

/// Where the caller told how long its buffers are.
void check_lengths(const Call& call, const Extent& extent, int rank, int ranks) {
  const auto differ = [](size_t given, size_t needed) {
    return given != kUnknownCount && given != needed;
  };
  const CollectiveTraits traits = traits_of(call.collective);
  const bool is_root = rank == call.root;
  const bool is_cut = call.collective == Collective::all_to_all && call.counts.empty();
  if (is_cut && call.in_count != kUnknownCount && call.in_count % static_cast<size_t>(ranks) != 0)
    reject(call, fmt::format("the input has {} elements, of which {} ranks cannot get equal parts; "
                             "give counts (Call::all_to_all_v)",
                             call.in_count, ranks));
  if (traits.has_input(is_root) && differ(call.in_count, extent.in))
    reject(call, fmt::format("the input has {} elements where {} are needed on rank {} of {}",
                             call.in_count, extent.in, rank, ranks));
  if (traits.has_output(is_root) && differ(call.out_count, extent.out))
    reject(call, fmt::format("the output has {} elements where {} are needed on rank {} of {}",
                             call.out_count, extent.out, rank, ranks));
}

void check_overlap(const Call& call, const Extent& extent, int rank, int ranks) {
  const auto in = reinterpret_cast<uintptr_t>(call.in);
  const auto out = reinterpret_cast<uintptr_t>(call.out);
  const size_t in_bytes = extent.in * size_of(call.type);
  const size_t out_bytes = extent.out * size_of(call.type);
  if (in_bytes == 0 || out_bytes == 0 || in + in_bytes <= out || out + out_bytes <= in) return;
  size_t before = 0;
  for (int r = 0; r < rank; ++r) before += count_of(call.counts, call.count, r);
  before *= size_of(call.type);
  const CollectiveTraits traits = traits_of(call.collective);
  const bool fits = traits.in == Side::own    ? in == out + before
                    : traits.out == Side::own ? out == in + before
                                              : in == out;
  if (call.collective == Collective::all_to_all && !call.counts.empty() && ranks > 1)
    reject(call, "all_to_all with counts cannot run in place; give separate buffers");
  if (!fits)
    reject(call,
           "the input and output buffers overlap, but not as an in-place call has them "
           "(communicator.h, Call)");
}

}  // namespace

size_t part_begin(size_t count, size_t parts, size_t i, size_t grain) {
  if (i >= parts) return count;
  // floor(count * i / parts), without the product, which may overflow.
  const size_t begin = count / parts * i + count % parts * i / parts;
  return count / parts >= 4 * grain ? begin / grain * grain : begin;
}

std::vector<BlockMemory> lay_out(const Call& call, const Schedule& schedule) {
  if (call.collective == Collective::all_to_all) return lay_out_all_to_all(call, schedule);
  return traits_of(call.collective).has_parts() ? lay_out_parts(call, schedule)
                                                : lay_out_whole(call, schedule);
}

bool overwrites_input(const Call& call) {
  return call.collective == Collective::all_to_all && call.in == call.out && call.count > 0;
}

size_t saved_bytes(const Call& call, int rank, int ranks) {
  return overwrites_input(call) ? extent_of(call, rank, ranks).in * size_of(call.type) : 0;
}

Extent extent_of(const Call& call, int rank, int ranks) {
  const auto elements = [&](Side side, const std::vector<size_t>& counts) -> size_t {
    switch (side) {
      case Side::none:
        return 0;
      case Side::whole:
        return call.count;
      case Side::own:
        return count_of(counts, call.count, rank);
      default:
        return sum_of(counts, call.count, ranks);
    }
  };
  const CollectiveTraits traits = traits_of(call.collective);
  const bool is_root = rank == call.root;
  const auto& out_counts = call.recv_counts.empty() ? call.counts : call.recv_counts;
  return {traits.has_input(is_root) ? elements(traits.in, call.counts) : 0,
          traits.has_output(is_root) ? elements(traits.out, out_counts) : 0};
}

size_t total_bytes(const Call& call, int ranks) {
  const CollectiveTraits traits = traits_of(call.collective);
  const bool of_parts = traits.in == Side::all || traits.out == Side::all;
  return (of_parts ? sum_of(call.counts, call.count, ranks) : call.count) * size_of(call.type);
}

void check_call(const Call& call, int rank, int ranks) {
  const bool point_to_point = traits_of(call.collective).is_point_to_point();
  if (call.root < 0 || call.root >= ranks)
    reject(call, fmt::format("{} {} is out of range: the job has ranks 0 to {}",
                             point_to_point ? "peer" : "root", call.root, ranks - 1));
  if (point_to_point && call.root == rank)
    reject(call, "a rank cannot send to itself; copy the data instead");
  if (call.channel < 0 || call.channel >= kChannels)
    reject(call, fmt::format("channel {} is not in 0..{}", call.channel, kChannels - 1));
  if (!point_to_point && (call.channel != 0 || call.tag != 0))
    reject(call, "channel and tag go with send and recv only");
  for (const auto* counts : {&call.counts, &call.recv_counts})
    if (!counts->empty() && counts->size() != static_cast<size_t>(ranks))
      reject(call, fmt::format("{} counts were given for {} ranks", counts->size(), ranks));
  if (!call.recv_counts.empty() &&
      (call.collective != Collective::all_to_all || call.counts.empty()))
    reject(call, "recv_counts go with all_to_all and counts only");
  if (!call.recv_counts.empty() &&
      call.counts[static_cast<size_t>(rank)] != call.recv_counts[static_cast<size_t>(rank)])
    reject(call, fmt::format("counts and recv_counts differ for this rank itself: {} and {}",
                             call.counts[static_cast<size_t>(rank)],
                             call.recv_counts[static_cast<size_t>(rank)]));
  if (call.count == kUnknownCount) reject(call, "it was made for less than one rank");
  if (call.op.kind == ReduceKind::user && call.op.function == nullptr)
    reject(call, "the user-defined reduction is null; set ReduceOp::function");
  if (!is_reducible(call.type, call.op))
    reject(call, fmt::format("{} is not defined on {}", name_of(call.op.kind), name_of(call.type)));
  constexpr size_t kElementsMax = std::numeric_limits<size_t>::max() / 16;
  size_t count_max = call.count;
  for (const auto* counts : {&call.counts, &call.recv_counts})
    for (size_t count : *counts) count_max = std::max(count_max, count);
  if (count_max > kElementsMax / static_cast<size_t>(ranks)) reject(call, "count is too large");
  if (call.collective == Collective::barrier && call.count > 0 &&
      (call.in == nullptr || call.out == nullptr))
    reject(call, "it has no data; leave the count at 0, or call Communicator::barrier()");
  const Extent extent = extent_of(call, rank, ranks);
  if (extent.in > 0 && call.in == nullptr) reject(call, "the input buffer is null");
  if (extent.out > 0 && call.out == nullptr) reject(call, "the output buffer is null");
  check_lengths(call, extent, rank, ranks);
  check_overlap(call, extent, rank, ranks);
}

}  // namespace ropewalk
