// Verbs transports of several ranks in one process, linked through local sockets.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include "memory/registered_memory.h"
#include "transports/tcp/test_sockets.h"
#include "transports/verbs/verbs_transport.h"

namespace ropewalk::testing {

class VerbsGroup {
 public:
  /// May change the ports and the options of each rank; lanes are spread over the ports in turn.
  using Adjust = std::function<void(int rank, std::vector<verbs::Port>&, VerbsTransport::Options&)>;
  VerbsGroup(int ranks, size_t lanes, const Adjust& adjust = {});

  VerbsTransport& at(int rank) { return *transports_.at(static_cast<size_t>(rank)); }
  /// Ends the transport of one rank, as its process's end would.
  void end(int rank) { transports_.at(static_cast<size_t>(rank)).reset(); }
  SocketSource& sockets(int rank) { return network_.source(rank); }

  /// Polls all of `ranks` until `done`; false after five seconds.
  template <class Done>
  bool until(std::initializer_list<int> ranks, const Done& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    std::array<Completion, 64> into;
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      for (const int rank : ranks) {
        at(rank).poll(into);
        at(rank).arm();
      }
    }
    return true;
  }

  /// Fails the test where no link comes about.
  void link(int a, int b) {
    at(a).connect(b, {});
    at(b).connect(a, {});
    ASSERT_TRUE(until({a, b}, [&] { return at(a).connected(b) && at(b).connected(a); }))
        << at(a).why_lost(b).text << at(b).why_lost(a).text;
  }

 private:
  tcp::LocalNetwork network_;
  std::vector<std::unique_ptr<VerbsTransport>> transports_;
};

/// Registered with one transport.
struct Piece {
  Piece(Transport& transport, size_t bytes) : memory(bytes) { memory.register_with(transport); }
  const MemoryRegistration* registration() const { return memory.registrations()[0].get(); }
  RegisteredMemory memory;
};

}  // namespace ropewalk::testing
