// From a schedule with owners to who works on what.
#include <algorithm>
#include <map>

#include "engine/passes.h"
#include "reduce/reduce.h"

namespace ropewalk {
namespace {

uint32_t slices_of(size_t bytes, size_t slice_bytes) {
  return static_cast<uint32_t>((bytes + slice_bytes - 1) / slice_bytes);
}

class Maker {
 public:
  Maker(const Call& call, const Schedule& schedule, const std::vector<BlockMemory>& blocks,
        size_t slice_bytes, const std::byte* saved)
      : call_(call), schedule_(schedule), blocks_(blocks), slice_bytes_(slice_bytes) {
    const bool reduces = is_reduction(call.collective);
    passes_.scales = reduces && call.op.kind == ReduceKind::scaled_sum;
    passes_.averages = reduces && call.op.kind == ReduceKind::avg;
    if (saved != nullptr) moved_ = saved - static_cast<const std::byte*>(call.in);
  }

  Passes run() {
    for (int b = 0; b < schedule_.blocks; ++b)
      if (is_own(b)) add_owned(b);
    for (const Step& step : schedule_.steps) is_own(step.block) ? serve(step) : visit(step);
    for (const PassPeer& peer : passes_.peers)
      if (peer.is_host && peer.out == nullptr) keep(peer);
    if (call_.collective == Collective::all_to_all) keep_own_part();
    return std::move(passes_);
  }

 private:
  bool is_own(int block) const {
    return schedule_.owners[static_cast<size_t>(block)] == schedule_.rank;
  }
  const BlockMemory& memory(int block) const { return blocks_[static_cast<size_t>(block)]; }
  size_t bytes_of(int block) const { return memory(block).elements * size_of(call_.type); }

  /// What this rank puts into a block: scaled, it lies in the output.
  const std::byte* input(int block) const {
    const BlockMemory& at = memory(block);
    if (passes_.scales) return at.out;
    return at.in == nullptr ? nullptr : at.in + moved_;
  }

  void add_owned(int block) {
    owned_index_[block] = static_cast<uint32_t>(passes_.owned.size());
    OwnedBlock owned;
    owned.number = block;
    owned.in = input(block);
    owned.out = memory(block).out;
    owned.bytes = bytes_of(block);
    owned.slices = slices_of(owned.bytes, slice_bytes_);
    passes_.owned.push_back(owned);
  }

  uint32_t peer_index(int rank) {
    const auto [it, is_new] =
        peer_index_.try_emplace(rank, static_cast<uint32_t>(passes_.peers.size()));
    if (is_new) {
      passes_.peers.emplace_back();
      passes_.peers.back().rank = rank;
    }
    return it->second;
  }

  void serve(const Step& step) {
    const uint32_t index = peer_index(step.peer);
    PassPeer& guest = passes_.peers[index];
    OwnedBlock& owned = passes_.owned[owned_index_.at(step.block)];
    (is_send(step.op) ? owned.targets : owned.sources).push_back(index);
    if (!guest.is_guest) owned.guests.push_back(index);
    (is_send(step.op) ? guest.takes : guest.gives) = true;
    guest.is_guest = true;
    guest.owned = owned_index_.at(step.block);
  }

  void visit(const Step& step) {
    PassPeer& peer = passes_.peers[peer_index(step.peer)];
    peer.is_host = true;
    peer.block = step.block;
    peer.bytes = bytes_of(step.block);
    peer.slices = slices_of(peer.bytes, slice_bytes_);
    if (is_send(step.op))
      peer.in = input(step.block);
    else
      peer.out = memory(step.block).out;
  }

  void keep(const PassPeer& host) {
    std::byte* out = memory(host.block).out;
    if (out != nullptr && host.in != nullptr && host.in != out)
      passes_.kept.push_back({host.in, out, host.bytes});
  }

  /// What this rank sends to itself is not in the schedule.
  void keep_own_part() {
    OwnedBlock& to = passes_.owned[owned_index_.at(schedule_.ranks + schedule_.rank)];
    to.in = input(schedule_.rank);
  }

  const Call& call_;
  const Schedule& schedule_;
  const std::vector<BlockMemory>& blocks_;
  const size_t slice_bytes_;
  ptrdiff_t moved_ = 0;  // from the input to where it was saved
  Passes passes_;
  std::map<int, uint32_t> owned_index_, peer_index_;
};

/// Shorter blocks are sent.
constexpr size_t kPassBytesMin = 128;

}  // namespace

bool can_pass(const Call& call, const Schedule& schedule, const std::vector<BlockMemory>& blocks) {
  if (schedule.owners.empty() || static_cast<size_t>(schedule.ranks) > kReduceFanMax) return false;
  const bool scales = is_reduction(call.collective) && call.op.kind == ReduceKind::scaled_sum;
  if (scales && call.collective != Collective::all_reduce) return false;
  // The ranks of an all_to_all_v know different lengths.
  if (call.collective == Collective::all_to_all && !call.counts.empty()) return true;
  return std::any_of(blocks.begin(), blocks.end(), [&](const BlockMemory& block) {
    return block.elements * size_of(call.type) >= kPassBytesMin;
  });
}

Passes make_passes(const Call& call, const Schedule& schedule,
                   const std::vector<BlockMemory>& blocks, size_t slice_bytes,
                   const std::byte* saved) {
  return Maker(call, schedule, blocks, slice_bytes, saved).run();
}

}  // namespace ropewalk
