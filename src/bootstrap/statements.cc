#include "bootstrap/statements.h"

#include <fmt/format.h>
#include <sodium.h>

#include <utility>

namespace ropewalk::bootstrap {
namespace {

std::string said_by(int rank, const std::string& what) {
  return fmt::format("rank {} says: {}", rank, what);
}

}  // namespace

std::vector<Bytes> record_frames(const PeerTable& table) {
  std::vector<Bytes> frames;
  Bytes records;
  const PeerRecord* before = nullptr;
  for (const PeerRecord& record : table) {
    Bytes more = before == nullptr ? encode(record) : encode(record, *before);
    if (records.size() + more.size() > kFramePayloadMax) {
      frames.push_back(frame(FrameType::records, std::exchange(records, {})));
      more = encode(record);
    }
    records.insert(records.end(), more.begin(), more.end());
    before = &record;
  }
  frames.push_back(frame(FrameType::records, records));
  return frames;
}

Digest digest_with(const Digest& before, ByteSpan payload) {
  const auto raw = [](const auto& bytes) {
    return reinterpret_cast<const unsigned char*>(bytes.data());
  };
  Digest digest;
  crypto_generichash_state state;
  crypto_generichash_init(&state, nullptr, 0, digest.size());
  crypto_generichash_update(&state, raw(before), before.size());
  crypto_generichash_update(&state, raw(payload), payload.size());
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(digest.data()), digest.size());
  return digest;
}

Statements::Statements(int rank, SigningKeys keys, JobMonitor& monitor, const PeerTable& table)
    : rank_(rank),
      keys_(std::move(keys)),
      leave_token_(random_leave_token()),
      monitor_(monitor),
      table_(table) {}

LeaveCommitment Statements::leave_commitment() const {
  return commitment_to(leave_token_);
}

bool Statements::is_genuine_leave(const Signed<Leave>& said, int peer) {
  const auto rank = static_cast<int>(said.message.rank);
  assert(static_cast<size_t>(rank) < table_.size());
  const bool is_committed =
      is_table_trusted_ &&
      commitment_to(said.message.token) == table_[static_cast<size_t>(rank)].leave_commitment;
  if (!is_committed) {
    report_forged(FrameType::leave, rank, peer);
    return false;
  }
  if (monitor_.agrees_with_first_leave(said.message.calls) ||
      is_signed_by(rank, FrameType::leave, encode(said.message), said.signature))
    return true;
  // Ranks on the way may have seen calls that agreed, and so no reason to look.
  monitor_.report({ErrorCode::protocol, "control",
                   fmt::format("rank {} has left after {} calls as it is said, and has not signed "
                               "that: a rank on the way from it has changed what it said",
                               monitor_.rank_in_epoch(rank), said.message.calls.count),
                   kForgerAdvice, rank_, -1});
  return false;
}

bool Statements::is_signed_by(int rank, FrameType type, const Bytes& message,
                              const Signature& signature) {
  assert(rank >= 0 && static_cast<size_t>(rank) < table_.size());
  if (!is_table_trusted_) return false;
  return is_signed(table_[static_cast<size_t>(rank)].verify_key, world_, type, message, signature);
}

Statements::AcceptResult Statements::take_failure(ByteSpan payload, int peer, Origin origin) {
  auto said = decode<Signed<JobFailure>>(payload);
  if (!said || static_cast<size_t>(said->message.rank) >= table_.size())
    return AcceptResult::nonsense;
  JobFailure& failure = said->message;
  if (failure.epoch < monitor_.epoch()) return AcceptResult::former;
  const bool is_early = failure.epoch > monitor_.epoch();
  if (monitor_.failure() != nullptr && !is_early) return AcceptResult::current;
  const bool is_genuine =
      is_signed_by(failure.rank, FrameType::failure, encode(failure), said->signature);
  if (is_early && is_genuine) {
    std::erase_if(early_, [peer](const auto& early) { return early.first == peer; });
    early_.emplace_back(peer, Bytes(payload.begin(), payload.end()));
    return AcceptResult::early;
  }
  if (is_genuine) {
    if (monitor_.keep(failure)) failure_ = frame(*said);
    return AcceptResult::current;
  }
  // A rank that does not know the world yet signs what nobody can verify. It has no links but this.
  if (is_table_trusted_ && origin == Origin::tree) {
    report_forged(FrameType::failure, failure.rank, peer);
    return AcceptResult::current;
  }
  if (failure.rank != peer) {
    failure.reason = said_by(failure.rank, failure.reason);
    failure.rank = peer;
  }
  monitor_.report(failure);
  return AcceptResult::current;
}

std::vector<int> Statements::renew() {
  failure_.clear();
  std::vector<int> heard;
  for (const auto& [peer, payload] : std::exchange(early_, {}))
    if (take_failure(payload, peer, Origin::tree) == AcceptResult::current) heard.push_back(peer);
  return heard;
}

Bytes Statements::failure_frame() const {
  if (!failure_.empty()) return failure_;
  JobFailure failure{*monitor_.failure(), monitor_.epoch()};
  if (failure.rank >= 0 && failure.rank != rank_)
    failure.reason = said_by(failure.rank, failure.reason);
  failure.rank = rank_;
  return frame(sign(std::move(failure)));
}

void Statements::report_forged(FrameType type, int rank, int peer) const {
  const bool is_failure = type == FrameType::failure || type == FrameType::part_failure;
  const bool is_leave = type == FrameType::leave || type == FrameType::part_leave;
  const char* what = is_failure ? "a failure" : is_leave ? "a leave" : "an answer";
  const PeerRecord& record = table_[static_cast<size_t>(peer)];
  monitor_.report(
      {ErrorCode::protocol, "control",
       fmt::format("{} sent {} in the name of rank {}, which has not signed it",
                   record.rank == peer ? describe(record, monitor_.rank_in_epoch(peer))
                                       : fmt::format("rank {}", monitor_.rank_in_epoch(peer)),
                   what, monitor_.rank_in_epoch(rank)),
       kForgerAdvice, rank_, peer});
}

}  // namespace ropewalk::bootstrap
