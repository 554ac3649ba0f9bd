// For tests of joining: what stands between ranks and the coordinator, and counts; a rank that only
// says that it joins.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/auth.h"
#include "bootstrap/dialer.h"
#include "bootstrap/wire.h"
#include "bootstrap/world_testing.h"

namespace ropewalk::bootstrap {

/// Between the ranks and the coordinator: passes on what comes, and counts connections.
class CountingProxy {
 public:
  explicit CountingProxy(std::string to) : to_(std::move(to)) {
    auto any = *numeric_address("127.0.0.1:1");
    any.set_port(0);
    listener_ = listen_at(any);
    thread_ = std::thread([this] { run(); });
  }
  ~CountingProxy() {
    over_ = true;
    thread_.join();
  }
  std::string address() const { return local_address(listener_.get()).text(); }
  /// How many there have been, and how many there are.
  int connections() const { return connections_; }
  int open() const { return open_; }

 private:
  struct Pair {
    UniqueFd ends[2];
  };

  void run() {
    while (!over_) {
      std::vector<pollfd> fds = {{listener_.get(), POLLIN, 0}};
      for (const Pair& pair : pairs_)
        for (const UniqueFd& end : pair.ends) fds.push_back({end.get(), POLLIN, 0});
      poll(fds.data(), fds.size(), 10);
      for (Pair& pair : pairs_)
        for (const int from : {0, 1}) pass_on(pair, from);
      std::erase_if(pairs_, [](const Pair& pair) { return !pair.ends[0]; });
      open_ = static_cast<int>(pairs_.size());
      UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd) continue;
      pairs_.push_back({{std::move(fd), connect_to(to_)}});
      open_ = static_cast<int>(pairs_.size());
      ++connections_;
    }
  }
  static void pass_on(Pair& pair, int from) {
    std::array<char, 65536> chunk;
    const ssize_t n = ::recv(pair.ends[from].get(), chunk.data(), chunk.size(), 0);
    if (n > 0)
      ::send(pair.ends[1 - from].get(), chunk.data(), static_cast<size_t>(n), MSG_NOSIGNAL);
    else if (n == 0)
      pair = {};
  }

  const std::string to_;
  UniqueFd listener_;
  std::list<Pair> pairs_;
  std::atomic<bool> over_{false};
  std::atomic<int> connections_{0}, open_{0};
  std::thread thread_;
};

/// A connection with what listens at `address`, over which `rank` may join.
inline ConnectedSocket dial_to_join(const TestJob& job, const SocketAddress& address, int rank) {
  start_cryptography();
  Hello hello;
  hello.from = static_cast<uint32_t>(rank);
  Dialer dialer({address}, hello, job_key(job.config.job_key.text()));
  const MonotonicClock clock;
  PollSet set;
  while (dialer.state() == Dialer::State::working) {
    set.clear();
    dialer.prepare(set);
    set.wait(clock.now_ns());
    dialer.advance(set, clock.now_ns());
  }
  EXPECT_EQ(dialer.state(), Dialer::State::connected) << dialer.why();
  return dialer.take();
}

/// Of a rank that nobody can reach.
inline Bytes join_of_unreachable(const TestJob& job, int rank) {
  PeerRecord record;
  record.rank = rank;
  record.host_name = record.host_id = "unreachable";
  record.addresses = {"127.0.0.1:1"};
  return frame(Join{static_cast<uint32_t>(job.size), {{120'000, record}}});
}

}  // namespace ropewalk::bootstrap
