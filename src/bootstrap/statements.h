// What ranks say of themselves and of others: signed by the rank that says it, so that those who
// pass it on cannot put words into its mouth.
#pragma once

#include <cassert>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bootstrap/auth.h"
#include "bootstrap/job_monitor.h"
#include "bootstrap/peer_table.h"

namespace ropewalk::bootstrap {

inline constexpr const char* kForgerAdvice =
    "look at that rank's host: what runs there is not Ropewalk, or somebody has changed it";

/// The records of all ranks, in rank order, in as few frames as they fit into.
std::vector<Bytes> record_frames(const PeerTable& table);
/// Of the records frames so far, from that of those before (of none: zeros) and the next's payload.
/// Rank 0 gives that of all to each rank with its place: so ranks that pass records on can change
/// none of them unnoticed.
Digest digest_with(const Digest& before, ByteSpan payload);

/// The control thread only. Signs what this rank says, and judges what others say by the keys in
/// their records. What is genuine is passed on as it came.
class Statements {
 public:
  /// `table` may fill up later; it and `monitor` must outlive this object.
  Statements(int rank, SigningKeys keys, JobMonitor& monitor, const PeerTable& table);

  const VerifyKey& verify_key() const { return keys_.verify_key; }
  LeaveCommitment leave_commitment() const;
  /// Once it is known. What was signed before holds in no world.
  void set_world(const WorldId& world) { world_ = world; }
  /// From now on the table is complete, and as rank 0 has made it.
  void trust_table() { is_table_trusted_ = true; }

  /// Message: one for which there is a type_of, of this rank.
  template <class Message>
  Signed<Message> sign(Message message) const {
    assert(static_cast<int>(message.rank) == rank_);
    const Bytes bytes = encode(message);
    return {std::move(message), bootstrap::sign(keys_, world_, type_of(message), bytes)};
  }
  /// Whether the rank in the message (less than the job's size) has signed it. Otherwise `peer`,
  /// which has made it or should not have passed it on, has failed the job.
  template <class Message>
  bool is_genuine(const Signed<Message>& said, int peer) {
    const auto rank = static_cast<int>(said.message.rank);
    const bool genuine =
        is_signed_by(rank, type_of(said.message), encode(said.message), said.signature);
    if (!genuine) report_forged(type_of(said.message), rank, peer);
    return genuine;
  }

  /// Of a leave. Once for each rank, and by each: so the signature, which costs a hundred times as
  /// much, is looked at only where the rank leaves after other calls than have been seen.
  bool is_genuine_leave(const Signed<Leave>& said, int peer);
  LeaveToken leave_token() const { return leave_token_; }

  /// How a frame came: over a connection for joining, or over the tree.
  enum class Origin : uint8_t { join, tree };
  enum class AcceptResult : uint8_t {
    nonsense,
    current,  // of this epoch
    former,   // of one before, which is over: nothing is done
    early,    // of the next: kept until `renew`
  };
  /// Takes a failure that `peer` says or passes on. What cannot be judged, as keys are not known
  /// yet, `peer` has said. What is forged fails the job by itself.
  AcceptResult take_failure(ByteSpan payload, int peer, Origin origin);
  /// The monitor's next epoch has begun: takes what has come of it already. Returns from whom.
  std::vector<int> renew();
  /// The job's failure for the others: as it came, or in this rank's own name.
  Bytes failure_frame() const;

 private:
  bool is_signed_by(int rank, FrameType type, const Bytes& message, const Signature& signature);
  void report_forged(FrameType type, int rank, int peer) const;

  const int rank_;
  const SigningKeys keys_;
  const LeaveToken leave_token_;
  JobMonitor& monitor_;
  const PeerTable& table_;
  WorldId world_ = {};
  bool is_table_trusted_ = false;
  Bytes failure_;  // the frame, where the job's failure came and is genuine
  std::vector<std::pair<int, Bytes>> early_;  // payloads of failures, and from whom
};

}  // namespace ropewalk::bootstrap
