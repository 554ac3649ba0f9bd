// Errors. Public C++ throws `Error`, and so does set-up code inside. The data path returns codes
// and gives failures to the monitor (src/bootstrap/monitor.h).
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ropewalk {

enum class ErrorCode {
  ok,
  invalid_argument,  // the caller's argument is wrong; nothing was sent
  mismatch,          // ranks called different operations, sizes, types or orders
  timeout,           // a deadline passed
  peer_lost,         // a rank died, was cut off, stopped answering or left
  refused,           // wrong key, wrong job, wrong version
  unavailable,       // the transport, algorithm or device asked for is not there
  exhausted,         // memory, descriptors, limits
  protocol,          // a peer sent bytes that make no sense
  system,            // a system call failed
  aborted,           // this job was aborted, here or elsewhere
  revoked,           // this epoch's communicators were ended, for the next epoch
  no_quorum,         // too few members were left, or reached, to go on
};
std::string_view name_of(ErrorCode code);

/// What went wrong, where. Ranks are -1 where they do not apply.
struct Failure {
  ErrorCode code = ErrorCode::ok;
  std::string operation;  // "all_reduce #17", "bootstrap", "connect"
  std::string reason;     // one sentence, with errno's text where there is one
  std::string advice;     // what to do next; may be empty
  int rank = -1;          // the rank that noticed, and has said so itself
  int peer = -1;          // the rank at fault, or that was waited for
  /// All ranks of which that is so, ascending; `peer` is the first. Where several cannot be
  /// reached, as when a network falls into parts, all ranks of one part name the same. Of an
  /// Error's failure: empty exactly where `peer` is -1; elsewhere it may be left out where `peer`
  /// is the only one.
  std::vector<int> peers = {};

  /// One line for a person: "rank 2: all_reduce #17: rank 1 died (connection reset); <advice>".
  std::string text() const;
};

class Error : public std::runtime_error {
 public:
  explicit Error(Failure failure);
  Error(ErrorCode code, std::string operation, std::string reason, std::string advice = {});
  const Failure& failure() const noexcept { return *failure_; }
  ErrorCode code() const noexcept { return failure_->code; }
  int rank() const noexcept { return failure_->rank; }
  int peer() const noexcept { return failure_->peer; }
  const std::vector<int>& peers() const noexcept { return failure_->peers; }
  /// Whether the ranks that are left may go on with Communicator::shrink.
  bool is_survivable() const noexcept {
    return code() == ErrorCode::peer_lost || code() == ErrorCode::timeout ||
           code() == ErrorCode::aborted || code() == ErrorCode::revoked;
  }

 private:
  std::shared_ptr<const Failure> failure_;
};

}  // namespace ropewalk
