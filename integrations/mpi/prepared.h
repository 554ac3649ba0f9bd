// A collective as this rank takes part in it.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "bytes.h"
#include "ropewalk/communicator.h"

namespace ropewalk::mpi {

/// The call, and the memory that it needs until it has ended: of data that the MPI packs, and of
/// results that go to another place. Or, where the ranks do not know each other's lengths and must
/// not wait to learn them, messages: each between two that both know its own.
///
/// A rank that finds its own arguments wrong cannot just return: the others may wait for it. So it
/// makes a call that no other rank makes, unless that is refused, too. Where all refuse theirs the
/// call ends, and the communicator goes on; else the ranks find that they differ.
class Prepared {
 public:
  /// `waits`: the call returns when it has ended, so it may wait for others before, too.
  explicit Prepared(bool waits) : waits_(waits) {}

  bool waits() const { return waits_; }
  /// Throws Error.
  Work start(Communicator& communicator);

  void be_messages() { is_messages_ = true; }
  void send(int to, Bytes part);
  void receive(int from, Bytes part);
  /// This rank's own part, which fits there.
  void copy(Bytes from, Bytes to);
  /// Of a call or messages that are complete. `why` is what the program is told.
  void refuse(const Error& why);
  /// What the program is told where `error` has ended the call.
  const Error& told_of(const Error& error) const {
    return refusal_ && error.code() == ErrorCode::mismatch ? *refusal_ : error;
  }

  /// The caller may free the types that it has named.
  void keep_types() {
    for_each_of(sent_, from, [](Bytes& bytes) { bytes.keep_type(); });
    for_each_of(received_, to, [](Bytes& bytes) { bytes.keep_type(); });
  }
  /// What is sent may have changed since.
  void read_again() {
    for_each_of(sent_, from, [](Bytes& bytes) { bytes.read_again(); });
  }
  /// It has ended: its result goes to where the program wants it. Throws Error where it was
  /// refused.
  void finish();

  Call call;
  std::optional<Bytes> from, to;
  std::unique_ptr<std::byte[]> result;
  void* result_to = nullptr;
  size_t result_bytes = 0;
  /// Of a blocking one: all has been done before.
  bool has_ended = false;

 private:
  template <class Do>
  static void for_each_of(std::list<Bytes>& parts, std::optional<Bytes>& whole, const Do& act) {
    if (whole) act(*whole);
    for (Bytes& part : parts) act(part);
  }
  Work start_checked(Communicator& communicator) const {
    return is_messages_ ? communicator.start_group(messages_) : communicator.start(call);
  }

  const bool waits_;
  bool is_messages_ = false;
  std::vector<Call> messages_;
  std::list<Bytes> sent_, received_;
  const std::byte* own_from_ = nullptr;
  std::byte* own_to_ = nullptr;
  size_t own_bytes_ = 0;
  std::optional<Error> refusal_;
  bfloat16 nothing_{};
};

}  // namespace ropewalk::mpi
