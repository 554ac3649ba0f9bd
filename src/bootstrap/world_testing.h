// For tests: a job on loopback, and raw sockets for those who do not belong to it.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "bootstrap/net.h"
#include "bootstrap/world.h"

namespace ropewalk::bootstrap {

/// A coordinator that listens already, on a free port; settings for every rank.
struct TestJob {
  explicit TestJob(int ranks) : size(ranks) {
    auto address = *numeric_address("127.0.0.1:1");
    address.set_port(0);
    listener = listen_at(address);
    config.timeout = std::chrono::seconds(20);
    config.job_key = "test";
  }
  std::string coordinator() const { return local_address(listener.get()).text(); }
  JobIdentity identity(int rank) const {
    return {rank, size, coordinator(), rank == 0 ? listener.get() : -1, "test"};
  }
  std::unique_ptr<World> join(int rank, TransportInfos infos = {}) const {
    return World::join(identity(rank), config, std::move(infos));
  }

  int size;
  UniqueFd listener;
  Config config;
};

/// Both ends of a TCP connection of loopback: of who dialed, and of who accepted.
inline std::pair<UniqueFd, UniqueFd> connect_over_loopback() {
  const TestJob job(1);
  std::pair<UniqueFd, UniqueFd> ends;
  EXPECT_EQ(begin_connect(local_address(job.listener.get()), ends.first), 0);
  pollfd incoming{job.listener.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&incoming, 1, 10'000), 1);
  ends.second =
      UniqueFd(::accept4(job.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  return ends;
}

/// Runs `body(rank)` for ranks 0 to n-1, each in a thread; what a rank throws comes back.
inline std::vector<std::optional<Error>> run_world_ranks(int n,
                                                         const std::function<void(int)>& body) {
  std::vector<std::optional<Error>> errors(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank)] = error;
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void expect_no_errors(const std::vector<std::optional<Error>>& errors) {
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

/// Waits until the monitor has a failure.
inline const Failure* await_failure(Monitor& monitor, int timeout_ms = 10'000) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (monitor.failure() == nullptr && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return monitor.failure();
}

/// A listener there, where it is free.
inline UniqueFd listen_if_free(const SocketAddress& address) {
  UniqueFd fd;
  EXPECT_EQ(try_listen(address, fd), 0);
  return fd;
}

/// A connection that has not said anything yet.
inline UniqueFd connect_to(const std::string& address) {
  UniqueFd fd;
  EXPECT_EQ(begin_connect(*numeric_address(address), fd), 0);
  pollfd p = {fd.get(), POLLOUT, 0};
  poll(&p, 1, 2000);
  return fd;
}

}  // namespace ropewalk::bootstrap
