// From a schedule with owners to who works on what: what the owner executor runs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/link.h"
#include "engine/program.h"

namespace ropewalk {

/// A block that this rank owns.
struct OwnedBlock {
  int32_t number = 0;
  const std::byte* in = nullptr;  // this rank's part, or null
  std::byte* out = nullptr;       // where this rank wants the result, or null
  size_t bytes = 0;
  uint32_t slices = 0;
  std::vector<uint32_t> sources;  // indices into OwnerProgram::peers, in the order of the sum
  std::vector<uint32_t> targets;
  std::vector<uint32_t> contributors;  // sources and targets, each once
  uint32_t done = 0;                   // slices; of the run
};

/// Another rank, as this rank's owner (it owns a block of which this rank has a part) and as its
/// contributor.
struct OwnerPeer {
  int rank = -1;
  Link* link = nullptr;
  int stream = 0;

  // As owner. Fixed:
  bool is_owner = false;
  int32_t block = 0;
  const std::byte* in = nullptr;  // of this rank; null where it has nothing
  std::byte* out = nullptr;       // of this rank; null where it wants nothing
  size_t bytes = 0;
  uint32_t slices = 0;
  RemoteBuffer in_at, out_at;
  Window window;  // where one of them cannot be named
  bool stages_in() const { return in != nullptr && in_at.known == 0; }
  bool stages_out() const { return out != nullptr && out_at.known == 0; }
  // Of the run:
  bool descriptor_sent = false;
  uint32_t staged = 0;         // windows: slices made ready
  uint32_t returned = 0;       // slices that the owner has done
  uint32_t consumed_seen = 0;  // on the link, before this run

  // As contributor. Fixed:
  bool is_contributor = false;  // gives or takes
  bool gives = false;           // the owned block has a part of it
  bool takes = false;           // it wants the result
  uint32_t owned = 0;           // index into OwnerProgram::owned
  // Of the run:
  bool accepted = false;
  RemoteBuffer in_buffer, out_buffer;  // as in its descriptor
  std::byte *their_in = nullptr, *their_out = nullptr;
  bool is_staged() const { return in_buffer.window > 0 || out_buffer.window > 0; }
};

/// An output that nobody writes: it is this rank's own input.
struct KeptPart {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  size_t bytes = 0;
};

struct OwnerProgram {
  std::vector<OwnerPeer> peers;
  std::vector<OwnedBlock> owned;
  std::vector<KeptPart> kept;
  bool scales = false;    // scaled_sum: the input is scaled into the output first
  bool averages = false;  // avg: owners divide
  DataType type = DataType::uint8;
  ReduceOp op;
  int ranks = 1;
  size_t slice_bytes = 0;
};

/// Whether `call` runs so: all ranks answer alike. `all_mapped`: every rank maps the memory of
/// every other. `blocks` as laid out for `schedule`.
bool can_run_owner(const Call& call, const Schedule& schedule,
                   const std::vector<BlockMemory>& blocks, bool all_mapped);

/// Peers (without links and names of memory) and owned blocks of this rank. `saved`: where the
/// input lies once it has been saved, or null.
OwnerProgram make_owner_program(const Call& call, const Schedule& schedule,
                                const std::vector<BlockMemory>& blocks, size_t slice_bytes,
                                const std::byte* saved);

}  // namespace ropewalk
