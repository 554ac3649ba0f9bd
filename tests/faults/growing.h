// Jobs that others join while they run, with threads as ranks.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "bootstrap/net.h"
#include "tests/local_world.h"

namespace ropewalk::testing {

/// A job to which newcomers find: its coordinator's socket outlives rank 0.
class Growing : public ::testing::TestWithParam<std::string> {
 public:
  Growing() {
    // Below the ephemeral ports: of those a connection may take one that nobody listens at for a
    // moment.
    auto address = *bootstrap::numeric_address("127.0.0.1:20000");
    UniqueFd listener;
    for (int port = 20000 + ::getpid() % 5000; !listener; ++port) {
      address.set_port(static_cast<uint16_t>(port));
      bootstrap::try_listen(address, listener);
    }
    address_ = address.text();
    listener_ = listener.release();
  }
  ~Growing() override { ::close(listener_); }

  /// `all_inherit`: the socket, or rank 0 alone.
  void run_members(int ranks, const std::function<void(Communicator&)>& body,
                   bool all_inherit = true) {
    run_ranks(ranks, GetParam(), body, [this, all_inherit](int rank, Options& options) {
      options.coordinator = address_;
      options.coordinator_fd.reset();
      if (all_inherit || rank == 0) options.coordinator_fd = listener_;
      options.elastic = true;
      options.key = "growing";
    });
  }

  Options newcomers_options() const {
    Options options;
    options.coordinator = address_;
    options.transport = GetParam();
    options.key = "growing";
    options.join_running = true;
    options.timeout = std::chrono::seconds(20);
    return options;
  }

  /// `body` in a thread, once it has been admitted.
  std::future<void> start_newcomer(const std::function<void(Communicator&)>& body,
                                   const std::string& key = "growing",
                                   const std::string& coordinator = {}) {
    Options options = newcomers_options();
    if (!coordinator.empty()) options.coordinator = coordinator;
    options.key = key;
    return std::async(std::launch::async, [body, options] {
      const auto comm = Communicator::create(options);
      body(*comm);
    });
  }

 protected:
  std::string address_;
  int listener_ = -1;
};

/// On all ranks: grows once `count` wait.
inline std::unique_ptr<Communicator> grow_by(Communicator& comm, int count) {
  using namespace std::chrono_literals;
  const auto end = std::chrono::steady_clock::now() + 60s;
  for (;;) {
    if (std::chrono::steady_clock::now() > end) throw std::runtime_error("nobody comes");
    int waiting = comm.pending();
    comm.broadcast(std::span(&waiting, 1), 0);
    if (waiting >= count) return comm.grow();
    std::this_thread::sleep_for(1ms);
  }
}

}  // namespace ropewalk::testing
