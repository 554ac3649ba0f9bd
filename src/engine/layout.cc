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

/// Begin of part `i` of `parts` nearly equal parts of `count` elements; begins are multiples of a
/// cache line where parts are long enough.
size_t part_begin(size_t count, size_t parts, size_t i, DataType type) {
  if (i >= parts) return count;
  const size_t grain = kCacheLineBytes / size_of(type);
  // floor(count * i / parts), without the product, which may overflow.
  const size_t begin = count / parts * i + count % parts * i / parts;
  return count / parts >= 4 * grain ? begin / grain * grain : begin;
}

size_t count_of(const std::vector<size_t>& counts, size_t count, int rank) {
  return counts.empty() ? count : counts[static_cast<size_t>(rank)];
}

size_t sum_of(const std::vector<size_t>& counts, size_t count, int ranks) {
  return counts.empty() ? count * static_cast<size_t>(ranks)
                        : std::accumulate(counts.begin(), counts.end(), size_t{0});
}

/// Null where `base` is.
std::byte* at(const void* base, size_t element, DataType type) {
  if (base == nullptr) return nullptr;
  return static_cast<std::byte*>(const_cast<void*>(base)) + element * size_of(type);
}

std::vector<BlockMemory> lay_out_all_to_all(const Call& call, const Schedule& schedule) {
  std::vector<BlockMemory> blocks;
  const auto lay_out_side = [&](const void* in, void* out, const std::vector<size_t>& counts) {
    size_t begin = 0;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      const size_t count = count_of(counts, call.count, rank);
      blocks.push_back({at(in, begin, call.type), at(out, begin, call.type), count});
      begin += count;
    }
  };
  lay_out_side(call.in, nullptr, call.counts);
  lay_out_side(nullptr, call.out, call.recv_counts.empty() ? call.counts : call.recv_counts);
  return blocks;
}

[[noreturn]] void reject(const Call& call, std::string reason) {
  throw Error(ErrorCode::invalid_argument, std::string(name_of(call.collective)),
              std::move(reason));
}

/// Where the caller told how long its buffers are.
void check_lengths(const Call& call, const Extent& extent, int rank, int ranks) {
  const CollectiveTraits traits = traits_of(call.collective);
  const bool is_root = rank == call.root;
  const bool is_cut = call.collective == Collective::all_to_all && call.counts.empty();
  if (is_cut && call.in_count != kUnknownCount && call.in_count % static_cast<size_t>(ranks) != 0)
    reject(call, fmt::format("the input has {} elements, of which {} ranks cannot get equal parts; "
                             "give counts (Call::all_to_all_v)",
                             call.in_count, ranks));
  const auto check = [&](const char* side, bool is_there, size_t given, size_t needed) {
    if (is_there && given != kUnknownCount && given != needed)
      reject(call, fmt::format("the {} has {} elements where {} are needed on rank {} of {}", side,
                               given, needed, rank, ranks));
  };
  check("input", traits.has_input(is_root), call.in_count, extent.in);
  check("output", traits.has_output(is_root), call.out_count, extent.out);
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

/// One vector, or a part for each rank, cut into equal pieces.
std::vector<BlockMemory> lay_out(const Call& call, const Schedule& schedule) {
  if (call.collective == Collective::all_to_all) return lay_out_all_to_all(call, schedule);
  const CollectiveTraits traits = traits_of(call.collective);
  const bool is_root = schedule.rank == call.root;
  const int parts = traits.has_parts() ? schedule.ranks : 1;
  const auto pieces = static_cast<size_t>(schedule.blocks / parts);
  std::vector<BlockMemory> blocks;
  size_t before = 0;  // elements of earlier parts
  for (int part = 0; part < parts; ++part) {
    const size_t count = traits.has_parts() ? count_of(call.counts, call.count, part) : call.count;
    const auto place = [&](const void* base, Side side, bool on_root_only, size_t begin) {
      const bool is_here =
          (is_root || !on_root_only) && (side != Side::own || part == schedule.rank);
      return at(is_here ? base : nullptr, side == Side::all ? before + begin : begin, call.type);
    };
    for (size_t piece = 0; piece < pieces; ++piece) {
      const size_t begin = part_begin(count, pieces, piece, call.type);
      const size_t end = part_begin(count, pieces, piece + 1, call.type);
      blocks.push_back({place(call.in, traits.in, traits.reads_on_root, begin),
                        place(call.out, traits.out, traits.writes_on_root, begin), end - begin});
    }
    before += count;
  }
  return blocks;
}

bool overwrites_input(const Call& call) {
  return call.collective == Collective::all_to_all && call.in == call.out && call.count > 0;
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
