// What every transport must do, tested through include/ropewalk/transport.h alone.
//
// To add a transport: a file that derives a TransportGroup which holds `ranks` connected ends in
// one process (for one that needs a SocketSource, give it socketpairs) and instantiates the suite,
// and its name in meson.build.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "memory/registered_memory.h"
#include "ropewalk/transport.h"

namespace ropewalk::conformance {

using SteadyClock = std::chrono::steady_clock;
inline constexpr auto kTimeout = std::chrono::seconds(20);

/// The ends of all ranks. They can reach each other (addresses are exchanged), but nobody has
/// called `connect` yet.
class TransportGroup {
 public:
  virtual ~TransportGroup() = default;
  virtual Transport& at(int rank) = 0;
  /// Called between polls; lets virtual time pass where a transport has its own.
  virtual void pass_time() {}
};

struct TransportParam {
  std::string name;  // letters and digits
  std::function<std::unique_ptr<TransportGroup>(int ranks)> make;
  /// Each end may be driven by a thread of its own, and event_fd wakes it.
  bool one_thread_per_rank = true;
};
inline void PrintTo(const TransportParam& kind, std::ostream* out) {
  *out << kind.name;
}

/// A target of puts: registered memory with its key.
struct Target {
  Target(size_t bytes, Transport& transport) : memory(bytes, std::array{&transport}) {
    memory.register_with(transport);
  }
  RemoteKey key() const { return registration()->key(); }
  const MemoryRegistration* registration() const { return memory.registrations()[0].get(); }
  std::byte* data() const { return memory.data(); }
  RegisteredMemory memory;
};

class TransportSuite : public testing::TestWithParam<TransportParam> {
 protected:
  /// Makes the group and, unless told otherwise, links every rank with every other.
  void start(int ranks, bool linked = true);
  Transport& at(int rank) { return group_->at(rank); }

  /// Polls every rank once; what happened goes to seen(rank).
  void pump();
  /// Pumps until `done`; false when that takes more than 20 seconds.
  [[nodiscard]] bool until(const std::function<bool()>& done);
  /// Pumps for a while, for what must not happen.
  void linger();
  /// Pumps until every put that was `posted` is done, so that its source may go.
  [[nodiscard]] bool settle();
  const std::vector<Completion>& seen(int rank) { return seen_[static_cast<size_t>(rank)]; }
  std::vector<Completion> notices_seen(int rank);
  size_t notices(int rank) { return notices_[static_cast<size_t>(rank)]; }

  /// Puts `bytes` from the start of `source`, again and again while the answer is `full`.
  Posted put(int from, int to, const Target* source, size_t source_offset, size_t bytes,
             RemoteKey key, uint64_t offset, uint32_t notice, uint64_t cookie = 0);
  /// Calls `put`, again and again while the answer is `full`.
  Posted until_taken(const std::function<Posted()>& put);

  std::unique_ptr<TransportGroup> group_;
  std::vector<std::vector<Completion>> seen_;
  std::vector<size_t> notices_;  // how many of seen_
  size_t pumps_ = 0;
  size_t posted_ = 0;  // puts answered `posted`
  size_t put_done_ = 0;
};

/// Fills with a pattern that differs between seeds and positions.
void fill(std::byte* data, size_t bytes, uint32_t seed);
/// How many bytes differ from that pattern.
size_t wrong_bytes(const std::byte* data, size_t bytes, uint32_t seed);

}  // namespace ropewalk::conformance
