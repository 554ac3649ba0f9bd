// What members and newcomers of a next epoch have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "bootstrap/agreement.h"
#include "communicator/impl.h"

namespace ropewalk {

/// What members call for as they agree: Contribution::call.
enum class AgreementCall : uint8_t {
  agree = 1,
  next_epoch = 2,
  opening = 3,
  settle = 4,
  depart = bootstrap::kDepartCall
};

/// One agreement of `members`, ranks of `impl`'s epoch, of which the last `learners` have no vote.
struct AgreementTerms {
  AgreementCall call = AgreementCall::agree;
  std::vector<int> members;
  size_t learners = 0;
  int64_t deadline_ns = 0;
  bool is_patient = false;  // waits nearly until then for who is not known to be lost; else half
  const char* operation = "agree";
};
/// Throws Error(no_quorum) where this rank does not go on, Error(mismatch) where calls differ and
/// nobody is in `settle`; where somebody is, tells it first.
bootstrap::Decision agree_in(const Communicator::Impl& impl, const AgreementTerms& terms,
                             uint64_t bits, std::string text);
/// Throws Error(invalid_argument) where this rank agrees with nobody, or no more.
void check_may_agree(const Communicator::Impl& impl, const char* operation);
/// Of a committed call that has failed here, number `call`: whether all that are left, and may have
/// gone on to other calls, have its sum. The same on all of them. Throws Error(no_quorum).
bool settle(const Communicator::Impl& impl, uint32_t call, int64_t deadline_ns);

/// 0 to size - 1.
std::vector<int> all_ranks(int size);
/// That another rank has ended, or a network, is a reason to try with fewer; what this rank lacks
/// is not.
bool may_try_again(ErrorCode code);
/// Of an epoch that is not to be, as it was joined.
void discard(std::shared_ptr<Communicator::Impl> joined);
/// The members have all joined: newcomers, the last ranks, hear that the epoch is to be, and have a
/// vote from then on. Throws Error.
void open_epoch(const Communicator::Impl& joined, size_t newcomers, int64_t deadline_ns);
/// With newcomers nothing that was measured before tells of all. Collective. Of an epoch that has
/// failed already nothing is measured; the next call tells why.
void find_costs_anew(Communicator& communicator, Communicator::Impl& impl);

struct JoinedJob {
  std::shared_ptr<Communicator::Impl> impl;
  bool is_newcomer;
};
/// Begins a job with its other ranks, or waits until the members of one that runs take this process
/// into their next epoch. Throws Error.
JoinedJob join_job(const Options& options);
/// In an elastic job, from its first epoch on. `listens`: Options::coordinator_fd.
void listen_for_newcomers(Communicator::Impl& impl, const std::string& coordinator,
                          std::optional<int> listens = {});

}  // namespace ropewalk
