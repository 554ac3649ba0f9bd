// The transport over loopback, plain and sealed: ping-pong latency and bandwidth, beside what
// socket_bench.cc measures in the same run. Two threads, one per side; times are of one message one
// way (ping-pong: there and back).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "transports/tcp/bench_backoff.h"
#include "transports/tcp/tcp_transport.h"
#include "transports/tcp/test_sockets.h"

namespace ropewalk::tcp {
namespace {

// ---- The transport ----

struct Side {
  TcpTransport transport;
  std::vector<std::byte> out, in;
  std::unique_ptr<MemoryRegistration> memory;
  RemoteKey key{};
  int notices = 0, puts_under_way = 0;
  int rank;

  Side(int rank_, SocketSource& sockets, size_t bytes, const TcpTransport::Options& options)
      : transport(rank_, 2, sockets, options), out(bytes), in(bytes), rank(rank_) {
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
  Pair(size_t bytes, const TcpTransport::Options& options, int socket_buffer_bytes = 0)
      : network(2, LocalNetwork::Kind::loopback, socket_buffer_bytes),
        a(0, network.source(0), bytes, options),
        b(1, network.source(1), bytes, options) {
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

void ping_pong(benchmark::State& state) {
  Pair pair(static_cast<size_t>(state.range(0)), {.secure = state.range(1) != 0});
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

void turn(benchmark::State& state) {
  Pair pair(static_cast<size_t>(state.range(0)), {}, static_cast<int>(state.range(1)));
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

void stream(benchmark::State& state) {
  const bool both = state.range(1) == 2;
  Pair pair(static_cast<size_t>(state.range(0)),
            {.streams = static_cast<int>(state.range(2)), .secure = state.range(4) != 0},
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

// bytes, size of the socket buffers (0: the kernel's choice)
BENCHMARK(turn)->ArgsProduct({{8, 4 << 10, 64 << 10, 256 << 10, 4 << 20}, {0}});
BENCHMARK(turn)->ArgsProduct({{256 << 10, 4 << 20}, {128 << 10, 512 << 10, 2 << 20}});
// bytes, sealed or not
BENCHMARK(ping_pong)->ArgsProduct({{8, 4 << 10, 64 << 10, 256 << 10}, {0, 1}})->UseRealTime();
// bytes, directions(, streams, size of the socket buffers, sealed or not)
BENCHMARK(stream)
    ->ArgsProduct({{64 << 10, 256 << 10, 4 << 20},
                   {1, 2},
                   {1},
                   {0, 128 << 10, 256 << 10, 512 << 10, 2 << 20},
                   {0}})
    ->UseRealTime();
BENCHMARK(stream)->ArgsProduct({{4 << 20}, {1, 2}, {2, 4}, {0}, {0}})->UseRealTime();
BENCHMARK(stream)
    ->ArgsProduct({{64 << 10, 256 << 10, 4 << 20}, {1, 2}, {1}, {0}, {1}})
    ->UseRealTime();

}  // namespace
}  // namespace ropewalk::tcp

BENCHMARK_MAIN();
