// The transport against bare sockets in the same run: ping-pong latency and bandwidth over
// loopback. Two threads, one per side; times are of one message one way (ping-pong: there and
// back).
#include <benchmark/benchmark.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "transports/tcp/tcp_transport.h"
#include "transports/tcp/test_sockets.h"

namespace ropewalk::tcp {
namespace {

// A side that did not get on for a while lets the other have the core.
class Backoff {
 public:
  void idle() {
    if (++count_ % 4096 == 0) sched_yield();
  }

 private:
  unsigned count_ = 0;
};

// ---- Bare sockets: what a program that does nothing else would do ----

struct RawSide {
  int fd;
  std::vector<std::byte> out, in;
  size_t sent = 0, got = 0;
  RawSide(int fd_, size_t bytes) : fd(fd_), out(bytes), in(bytes) {}
  ~RawSide() { close(fd); }
  // Each returns true once a whole message has gone or come.
  bool send_some() {
    const ssize_t n = ::send(fd, out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
    if (n > 0) sent += static_cast<size_t>(n);
    if (sent < out.size()) return false;
    sent = 0;
    return true;
  }
  bool receive_some(const std::atomic<bool>& stop) {
    const ssize_t n = ::recv(fd, in.data() + got, in.size() - got, 0);
    if (n > 0) got += static_cast<size_t>(n);
    if (got < in.size()) return stop.load(std::memory_order_relaxed);
    got = 0;
    return true;
  }
};

// ---- The transport ----

struct Side {
  TcpTransport transport;
  std::vector<std::byte> out, in;
  std::unique_ptr<MemoryRegistration> memory;
  RemoteKey key{};
  int notices = 0, puts_under_way = 0;
  int rank;

  Side(int rank_, SocketSource& sockets, size_t bytes, int streams)
      : transport(rank_, 2, sockets, streams), out(bytes), in(bytes), rank(rank_) {
    memory = transport.register_memory({in.data(), in.size(), -1, 0});
    const RemoteKey mine = memory->key();
    transport.connect(1 - rank, std::as_bytes(std::span(&mine, 1)));
  }
  void poll() {
    std::array<Completion, 32> done;
    const size_t count = transport.poll(done);
    for (size_t i = 0; i < count; ++i) {
      if (done[i].kind == Completion::Kind::notice) ++notices;
      if (done[i].kind == Completion::Kind::put_done) --puts_under_way;
    }
  }
  bool post() {
    const Posted posted = transport.put(
        {.peer = 1 - rank, .source = out.data(), .bytes = out.size(), .key = key, .notice = 1});
    if (posted == Posted::posted) ++puts_under_way;
    return posted == Posted::posted || posted == Posted::done;
  }
};

struct Pair {
  LocalNetwork network;
  Side a, b;
  Pair(size_t bytes, int streams, int socket_buffer_bytes = 0)
      : network(2, LocalNetwork::Kind::loopback, socket_buffer_bytes),
        a(0, network.source(0), bytes, streams),
        b(1, network.source(1), bytes, streams) {
    while (!a.transport.connected(1) || !b.transport.connected(0)) {
      a.poll();
      b.poll();
    }
    std::copy_n(a.transport.hello_of(1)->data(), sizeof a.key,
                reinterpret_cast<std::byte*>(&a.key));
    std::copy_n(b.transport.hello_of(0)->data(), sizeof b.key,
                reinterpret_cast<std::byte*>(&b.key));
  }
};

// ---- Ping-pong ----

void raw_ping_pong(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const auto fds = loopback_pair();
  const int on = 1;
  for (const int fd : fds) setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof on);
  RawSide a(fds[0], bytes), b(fds[1], bytes);
  std::atomic<bool> stop = false;
  std::thread echo([&] {
    Backoff backoff;
    while (!stop) {
      while (!b.receive_some(stop)) backoff.idle();
      while (!stop && !b.send_some()) backoff.idle();
    }
  });
  const std::atomic<bool> never = false;
  Backoff backoff;
  for (auto _ : state) {
    while (!a.send_some()) backoff.idle();
    while (!a.receive_some(never)) backoff.idle();
  }
  stop = true;
  echo.join();
}

void ping_pong(benchmark::State& state) {
  Pair pair(static_cast<size_t>(state.range(0)), 1);
  std::atomic<bool> stop = false;
  std::thread echo([&] {
    Side& b = pair.b;
    Backoff backoff;
    while (!stop) {
      for (; b.notices == 0 && !stop; backoff.idle()) b.poll();
      if (stop) break;
      --b.notices;
      b.post();
      for (; b.puts_under_way > 0 && !stop; backoff.idle()) b.poll();
    }
  });
  Side& a = pair.a;
  Backoff backoff;
  for (auto _ : state) {
    a.post();
    for (; a.notices == 0; backoff.idle()) a.poll();
    --a.notices;
  }
  stop = true;
  echo.join();
}

// ---- One message, both sides in one thread ----

void raw_turn(benchmark::State& state) {
  const auto fds = loopback_pair();
  const auto bytes = static_cast<size_t>(state.range(0));
  RawSide a(fds[0], bytes), b(fds[1], bytes);
  const std::atomic<bool> never = false;
  for (auto _ : state) {
    for (bool sent = false, got = false; !got;) {
      sent = sent || a.send_some();
      got = b.receive_some(never);
    }
  }
}

void turn(benchmark::State& state) {
  Pair pair(static_cast<size_t>(state.range(0)), 1, static_cast<int>(state.range(1)));
  for (auto _ : state) {
    pair.a.post();
    while (pair.b.notices == 0) {
      pair.b.poll();
      if (pair.a.puts_under_way > 0) pair.a.poll();
    }
    pair.b.notices = 0;
    while (pair.a.puts_under_way > 0) pair.a.poll();
  }
}

// ---- Streaming: 0 sends to 1; `both` ways at once. Counts what arrives at both. ----

void raw_stream(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const bool both = state.range(1) == 2;
  const auto fds = loopback_pair();
  RawSide a(fds[0], bytes), b(fds[1], bytes);
  std::atomic<bool> stop = false;
  std::thread far([&] {
    while (!stop) {
      b.receive_some(stop);
      if (both) b.send_some();
    }
  });
  const std::atomic<bool> never = false;
  for (auto _ : state) {
    bool sent = false, got = !both;
    while (!sent || !got) {
      sent = sent || a.send_some();
      got = got || a.receive_some(never);
    }
  }
  stop = true;
  far.join();
  state.SetBytesProcessed(state.iterations() * state.range(0) * state.range(1));
}

void stream(benchmark::State& state) {
  const bool both = state.range(1) == 2;
  Pair pair(static_cast<size_t>(state.range(0)), static_cast<int>(state.range(2)),
            static_cast<int>(state.range(3)));
  std::atomic<bool> stop = false;
  std::thread far([&] {
    Side& b = pair.b;
    while (!stop) {
      b.poll();
      if (both && b.puts_under_way < 2) b.post();
    }
  });
  Side& a = pair.a;
  for (auto _ : state) {
    bool sent = false;
    while (!sent || (both && a.notices == 0)) {
      if (!sent && a.puts_under_way < 2) sent = a.post();
      a.poll();
    }
    if (both) --a.notices;
  }
  stop = true;
  far.join();
  state.SetBytesProcessed(state.iterations() * state.range(0) * state.range(1));
}

BENCHMARK(raw_turn)->Arg(8)->Arg(4 << 10)->Arg(64 << 10)->Arg(256 << 10)->Arg(4 << 20);
// bytes, size of the socket buffers (0: the kernel's choice)
BENCHMARK(turn)->ArgsProduct({{8, 4 << 10, 64 << 10, 256 << 10, 4 << 20}, {0}});
BENCHMARK(turn)->ArgsProduct({{256 << 10, 4 << 20}, {128 << 10, 512 << 10, 2 << 20}});
BENCHMARK(raw_ping_pong)->Arg(8)->Arg(4 << 10)->Arg(64 << 10)->Arg(256 << 10)->UseRealTime();
BENCHMARK(ping_pong)->Arg(8)->Arg(4 << 10)->Arg(64 << 10)->Arg(256 << 10)->UseRealTime();
// bytes, directions(, streams, size of the socket buffers)
BENCHMARK(raw_stream)->ArgsProduct({{64 << 10, 256 << 10, 4 << 20}, {1, 2}})->UseRealTime();
BENCHMARK(stream)
    ->ArgsProduct({{64 << 10, 256 << 10, 4 << 20},
                   {1, 2},
                   {1},
                   {0, 128 << 10, 256 << 10, 512 << 10, 2 << 20}})
    ->UseRealTime();
BENCHMARK(stream)->ArgsProduct({{4 << 20}, {1, 2}, {2, 4}, {0}})->UseRealTime();

}  // namespace
}  // namespace ropewalk::tcp

BENCHMARK_MAIN();
