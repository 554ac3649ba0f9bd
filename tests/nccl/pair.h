// Two processes, as NCCL's ranks are, each with the plugin loaded by itself.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/nccl/net.h"

namespace ropewalk::testing {

/// An end of a connection of version `version`'s table, and what it may tell the other past the
/// plugin.
struct Side {
  Net& net;
  void* comm = nullptr;  // of this end's direction
  int fd = -1;           // to the other

  void tell(const void* data, size_t bytes) const;
  void hear(void* data, size_t bytes) const;
  /// Until the other has come as far.
  void meet() const;
};

using Role = std::function<void(Side&)>;

/// Each in a process of its own; fails the test where one of them does, or ends otherwise.
class Pair {
 public:
  /// The roles begin before there is a connection: `comm` is null. `prepare(is_sender)` is called
  /// in each process before it loads the plugin, which reads the environment.
  Pair(int version, const Role& sender, const Role& receiver,
       const std::function<void(bool)>& prepare = {});
  ~Pair();
  /// Until both have ended.
  void join();
  void kill_sender() { kill_child(0); }
  void kill_receiver() { kill_child(1); }

 private:
  void kill_child(size_t number);
  std::vector<int> children_;  // 0: it was waited for
  size_t killed_ = 2;          // which need not end well
};

/// The sender's way to `comm`, and the receiver's.
void link_sender(Side& side);
void link_receiver(Side& side);
/// Runs both roles over a connection.
void run_linked(int version, const Role& sender, const Role& receiver);

}  // namespace ropewalk::testing
