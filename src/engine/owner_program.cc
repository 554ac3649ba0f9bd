#include "engine/owner_program.h"

#include <algorithm>
#include <map>

#include "reduce/reduce.h"

namespace ropewalk {
namespace {

class OwnerProgramBuilder {
 public:
  OwnerProgramBuilder(const Call& call, const Schedule& schedule,
                      const std::vector<BlockMemory>& blocks, size_t slice_bytes,
                      const std::byte* saved)
      : call_(call), schedule_(schedule), blocks_(blocks), slice_bytes_(slice_bytes) {
    program_.type = call.type;
    program_.op = call.op;
    program_.ranks = schedule.ranks;
    program_.slice_bytes = slice_bytes;
    program_.scales = scales(call);
    program_.averages = averages(call);
    if (saved != nullptr) moved_ = saved - static_cast<const std::byte*>(call.in);
  }

  OwnerProgram run() {
    for (int b = 0; b < schedule_.blocks; ++b)
      if (is_own(b)) add_owned(b);
    for (const Step& step : schedule_.steps)
      is_own(step.block) ? add_contributor(step) : add_owner(step);
    for (const OwnerPeer& peer : program_.peers)
      if (peer.is_owner && peer.out == nullptr) keep(peer);
    if (call_.collective == Collective::all_to_all)  // what this rank sends to itself
      program_.owned[owned_index_.at(schedule_.ranks + schedule_.rank)].in = input(schedule_.rank);
    return std::move(program_);
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
    if (program_.scales) return at.out;
    return at.in == nullptr ? nullptr : at.in + moved_;
  }

  void add_owned(int block) {
    owned_index_[block] = static_cast<uint32_t>(program_.owned.size());
    const size_t bytes = bytes_of(block);
    program_.owned.push_back({block,
                              input(block),
                              memory(block).out,
                              bytes,
                              slices_of(bytes, slice_bytes_),
                              {},
                              {},
                              {}});
  }

  uint32_t peer_index(int rank) {
    const auto [it, is_new] =
        peer_index_.try_emplace(rank, static_cast<uint32_t>(program_.peers.size()));
    if (is_new) program_.peers.emplace_back().rank = rank;
    return it->second;
  }

  void add_contributor(const Step& step) {
    const uint32_t index = peer_index(step.peer);
    OwnerPeer& contributor = program_.peers[index];
    OwnedBlock& owned = program_.owned[owned_index_.at(step.block)];
    (is_send(step.op) ? owned.targets : owned.sources).push_back(index);
    if (!contributor.is_contributor) owned.contributors.push_back(index);
    (is_send(step.op) ? contributor.takes : contributor.gives) = true;
    contributor.is_contributor = true;
    contributor.owned = owned_index_.at(step.block);
  }

  void add_owner(const Step& step) {
    OwnerPeer& peer = program_.peers[peer_index(step.peer)];
    peer.is_owner = true;
    peer.block = step.block;
    peer.bytes = bytes_of(step.block);
    peer.slices = slices_of(peer.bytes, slice_bytes_);
    if (is_send(step.op))
      peer.in = input(step.block);
    else
      peer.out = memory(step.block).out;
  }

  void keep(const OwnerPeer& owner) {
    std::byte* out = memory(owner.block).out;
    if (out != nullptr && owner.in != nullptr && owner.in != out)
      program_.kept.push_back({owner.in, out, owner.bytes});
  }

  const Call& call_;
  const Schedule& schedule_;
  const std::vector<BlockMemory>& blocks_;
  const size_t slice_bytes_;
  ptrdiff_t moved_ = 0;  // from the input to where it was saved
  OwnerProgram program_;
  std::map<int, uint32_t> owned_index_, peer_index_;
};

/// Shorter blocks are sent.
constexpr size_t kOwnerBytesMin = 128;

}  // namespace

bool can_run_owner(const Call& call, const Schedule& schedule,
                   const std::vector<BlockMemory>& blocks, bool all_mapped) {
  if (!all_mapped || schedule.owners.empty()) return false;
  if (static_cast<size_t>(schedule.ranks) > kReduceFanMax) return false;
  if (scales(call) && call.collective != Collective::all_reduce) return false;
  // The ranks of an all_to_all_v know different lengths.
  if (call.collective == Collective::all_to_all && !call.counts.empty()) return true;
  return std::ranges::any_of(blocks, [&](const BlockMemory& block) {
    return block.elements * size_of(call.type) >= kOwnerBytesMin;
  });
}

OwnerProgram make_owner_program(const Call& call, const Schedule& schedule,
                                const std::vector<BlockMemory>& blocks, size_t slice_bytes,
                                const std::byte* saved) {
  return OwnerProgramBuilder(call, schedule, blocks, slice_bytes, saved).run();
}

}  // namespace ropewalk
