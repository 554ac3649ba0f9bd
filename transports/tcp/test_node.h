// Ranks of one process and their transports, for tests.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "transports/tcp/tcp_transport.h"
#include "transports/tcp/test_sockets.h"

namespace ropewalk::tcp {

using namespace std::chrono_literals;
using Kind = LocalNetwork::Kind;

inline std::vector<std::byte> pattern(size_t bytes, unsigned seed) {
  std::vector<std::byte> data(bytes);
  std::mt19937_64 random(seed);
  uint64_t word;
  for (size_t i = 0; i < bytes; i += sizeof word) {
    word = random();
    std::memcpy(data.data() + i, &word, std::min(sizeof word, bytes - i));
  }
  return data;
}

// One rank: a transport, a region that peers write, and what `poll` gave.
struct Node {
  Node(int rank_, int size, SocketSource& sockets, const TcpTransport::Options& options,
       size_t region_bytes)
      : rank(rank_), transport(rank_, size, sockets, options), region(region_bytes) {
    memory = transport.register_memory({region.data(), region.size(), -1, 0});
  }
  void link(int peer) {
    const RemoteKey key = memory->key();
    transport.connect(peer, std::as_bytes(std::span(&key, 1)));
  }
  RemoteKey key_of(int peer) {
    RemoteKey key;
    const auto hello = transport.hello_of(peer);
    if (!hello) return key;
    EXPECT_EQ(hello->size(), sizeof key);
    std::memcpy(&key, hello->data(), sizeof key);
    return key;
  }
  void poll(size_t entries = 8) {
    std::array<Completion, 64> done;
    const size_t count = transport.poll(std::span(done).first(entries));
    for (size_t i = 0; i < count; ++i) {
      switch (done[i].kind) {
        case Completion::Kind::notice:
          notices.push_back(done[i]);
          break;
        case Completion::Kind::put_done:
          finished.push_back(done[i].cookie);
          break;
        case Completion::Kind::lost:
          lost.push_back(done[i].peer);
          break;
      }
    }
  }
  Posted put(int peer, std::span<const std::byte> from, uint64_t offset, uint32_t notice,
             uint64_t cookie = 0) {
    return transport.put({.peer = peer,
                          .source = from.data(),
                          .bytes = from.size(),
                          .key = key_of(peer),
                          .offset = offset,
                          .notice = notice,
                          .cookie = cookie});
  }

  int rank;
  TcpTransport transport;
  std::vector<std::byte> region;
  std::unique_ptr<MemoryRegistration> memory;
  std::vector<Completion> notices;
  std::vector<uint64_t> finished;
  std::vector<int> lost;
};

template <class Condition>
bool until(Condition condition, std::chrono::nanoseconds limit = 10s) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition())
    if (std::chrono::steady_clock::now() > deadline) return false;
  return true;
}

struct Job {
  Job(int ranks, Kind kind, const TcpTransport::Options& options, size_t region_bytes,
      int socket_buffer_bytes = 0)
      : network(ranks, kind, socket_buffer_bytes) {
    for (int rank = 0; rank < ranks; ++rank)
      nodes.push_back(
          std::make_unique<Node>(rank, ranks, network.source(rank), options, region_bytes));
  }
  Node& operator[](int rank) { return *nodes[static_cast<size_t>(rank)]; }
  void poll_all() {
    for (auto& node : nodes) node->poll();
  }
  void link_all() {
    for (auto& node : nodes)
      for (auto& peer : nodes)
        if (node != peer) node->link(peer->rank);
    ASSERT_TRUE(until([&] {
      poll_all();
      for (auto& node : nodes)
        for (auto& peer : nodes)
          if (node != peer && !node->transport.connected(peer->rank)) return false;
      return true;
    }));
  }
  LocalNetwork network;
  std::vector<std::unique_ptr<Node>> nodes;
};

inline bool readable(int fd, int timeout_ms) {
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, timeout_ms) == 1;
}

}  // namespace ropewalk::tcp
