// Every rule of NCCL's network plugins, against the plugin as NCCL would load it.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/nccl/pair.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

using namespace nccl;
using std::chrono::steady_clock;

constexpr int kNewest = 12;

std::vector<char> pattern(size_t bytes, size_t seed) {
  std::vector<char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>((i * 31 + i / 251 + seed) % 251);
  return data;
}

bool is_pattern(const char* data, size_t bytes, size_t seed) {
  const std::vector<char> expected = pattern(bytes, seed);
  return bytes == 0 || std::memcmp(data, expected.data(), bytes) == 0;
}

/// Runs `body` in a process of its own, whose environment it may change before it loads the plugin.
void in_child(const std::function<void()>& body) {
  std::fflush(nullptr);
  const int child = ::fork();
  if (child == 0) {
    body();
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

class Versions : public ::testing::TestWithParam<int> {};

TEST_P(Versions, TellOfTheirDevices) {
  in_child([] {
    const Net net(GetParam());
    ASSERT_EQ(net.init_result(), Result::success) << Net::warnings();
    ASSERT_GT(net.devices(), 0);
    for (int device = 0; device < net.devices(); ++device) {
      const NetProperties properties = net.properties(device);
      EXPECT_FALSE(properties.name.empty());
      EXPECT_EQ(properties.pointer_support, kPointerHost);
      EXPECT_GT(properties.speed_mbps, 0);
      EXPECT_EQ(properties.receives_max, 8);
      EXPECT_EQ(properties.in_device, 1);
      EXPECT_EQ(properties.first_device, device);
      EXPECT_EQ(properties.requests_in_one_max, GetParam() == 10 ? 0 : 1);
      EXPECT_TRUE(properties.pci_path.empty() || ::access(properties.pci_path.c_str(), F_OK) == 0)
          << properties.pci_path;
    }
    void* comm = nullptr;
    Handle handle;
    EXPECT_NE(net.listen(net.devices(), handle.data(), &comm), Result::success);
    EXPECT_EQ(comm, nullptr);
  });
}

/// In one thread: where a call waited for the other end, this would never end.
TEST_P(Versions, NeverBlockWhileTheyConnect) {
  in_child([] {
    const Net net(GetParam());
    Handle handle;
    void *listen_comm = nullptr, *send_comm = nullptr, *receive_comm = nullptr;
    ASSERT_EQ(net.listen(0, handle.data(), &listen_comm), Result::success);
    ASSERT_EQ(net.calls().accept(listen_comm, &receive_comm, nullptr), Result::success);
    EXPECT_EQ(receive_comm, nullptr) << "accepted before anybody connected";
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(net.connect(0, handle.data(), &send_comm), Result::success);
      ASSERT_EQ(send_comm, nullptr) << "connected before anybody accepted";
    }
    while (send_comm == nullptr || receive_comm == nullptr) {
      if (send_comm == nullptr) {
        ASSERT_EQ(net.connect(0, handle.data(), &send_comm), Result::success) << Net::warnings();
      }
      if (receive_comm == nullptr) {
        ASSERT_EQ(net.calls().accept(listen_comm, &receive_comm, nullptr), Result::success);
      }
    }
    net.calls().close_listen(listen_comm);
    std::array<int, 2> data = {42, 0};
    void* const out = net.register_now(send_comm, &data[0], sizeof(int));
    void* const in = net.register_now(receive_comm, &data[1], sizeof(int));
    void* const received = net.irecv_now(receive_comm, &data[1], sizeof(int), 0, in);
    void* const sent = net.isend_now(send_comm, &data[0], sizeof(int), 0, out);
    EXPECT_EQ(net.wait(sent).at(0), 4);
    EXPECT_EQ(net.wait(received).at(0), 4);
    EXPECT_EQ(data[1], 42);
    EXPECT_EQ(net.calls().deregister_memory(send_comm, out), Result::success);
    EXPECT_EQ(net.calls().deregister_memory(receive_comm, in), Result::success);
    net.calls().close_send(send_comm);
    net.calls().close_receive(receive_comm);
  });
}

// Nothing, less than is received, a piece exactly, and several pieces.
const std::vector<size_t> kSizes = {0, 1, 100, 4096, 65536, 8 << 20, (8 << 20) + 1, 17 << 20};
constexpr size_t kRoom = 20 << 20;

TEST_P(Versions, SayThatATrafficClassIsNotTaken) {
  in_child([] {
    const Net net(GetParam(), 46);
    Handle handle;
    void *listen_comm = nullptr, *send_comm = nullptr;
    ASSERT_EQ(net.listen(0, handle.data(), &listen_comm), Result::success);
    for (int i = 0; i < 3; ++i)
      ASSERT_EQ(net.connect(0, handle.data(), &send_comm), Result::success);
    const std::string warnings = Net::warnings(), wanted = "trafficClass, 46, is not taken";
    EXPECT_NE(warnings.find(wanted), std::string::npos);
    EXPECT_EQ(warnings.find(wanted), warnings.rfind(wanted)) << warnings;
    EXPECT_EQ(net.calls().close_listen(listen_comm), Result::success);
  });
}

TEST_P(Versions, MoveMessagesOfAnySize) {
  run_linked(
      GetParam(),
      [](Side& side) {
        for (const size_t bytes : kSizes) {
          std::vector<char> data = pattern(bytes + 1, bytes);
          void* const memory = side.net.register_now(side.comm, data.data(), data.size());
          EXPECT_EQ(side.net.wait(side.net.isend_now(side.comm, data.data(), bytes, 7, memory))[0],
                    static_cast<int>(bytes));
          side.meet();
          side.net.calls().deregister_memory(side.comm, memory);
        }
      },
      [](Side& side) {
        std::vector<char> data(kRoom);
        void* const memory = side.net.register_now(side.comm, data.data(), data.size());
        for (const size_t bytes : kSizes) {
          data.assign(data.size(), '?');
          EXPECT_EQ(side.net.wait(side.net.irecv_now(side.comm, data.data(), kRoom, 7, memory))[0],
                    static_cast<int>(bytes));
          EXPECT_TRUE(is_pattern(data.data(), bytes, bytes));
          EXPECT_EQ(data[bytes], '?') << "more was written than sent";
          side.meet();
        }
      });
}

INSTANTIATE_TEST_SUITE_P(Plugin, Versions, ::testing::Values(10, 11, 12));

constexpr size_t kInFlightBytes = 3000;

TEST(Plugin, HasThirtyTwoRequestsInFlight) {
  run_linked(
      kNewest,
      [](Side& side) {
        std::vector<char> data = pattern(kInFlightBytes + kRequestsMax, 0);
        void* const memory = side.net.register_now(side.comm, data.data(), data.size());
        void* request = &data;
        ASSERT_EQ(side.net.calls().isend(side.comm, data.data(), 1, 0, memory, nullptr, &request),
                  Result::success);
        EXPECT_EQ(request, nullptr) << "sent what nobody receives";
        side.meet();
        std::vector<void*> requests;
        for (size_t i = 0; i < kRequestsMax; ++i)
          requests.push_back(
              side.net.isend_now(side.comm, data.data() + i, kInFlightBytes, 0, memory));
        // The last first: each is done by itself.
        for (size_t i = kRequestsMax; i-- > 0;)
          EXPECT_EQ(side.net.wait(requests[i]).at(0), static_cast<int>(kInFlightBytes));
        side.meet();
      },
      [](Side& side) {
        side.meet();
        std::vector<char> data(kInFlightBytes * (kRequestsMax + 1));
        void* const memory = side.net.register_now(side.comm, data.data(), data.size());
        const auto at = [&](size_t i) { return data.data() + i * kInFlightBytes; };
        std::vector<void*> requests;
        for (size_t i = 0; i < kRequestsMax; ++i)
          requests.push_back(side.net.irecv_now(side.comm, at(i), kInFlightBytes, 0, memory));
        void* one_more = &data;
        void* pointer = at(kRequestsMax);
        size_t bytes = kInFlightBytes;
        int tag = 0;
        void* handle = memory;
        EXPECT_EQ(side.net.calls().irecv(side.comm, 1, &pointer, &bytes, &tag, &handle, nullptr,
                                         &one_more),
                  Result::success);
        EXPECT_EQ(one_more, nullptr) << "more requests than a communicator has";
        for (size_t i = kRequestsMax; i-- > 0;) {
          EXPECT_EQ(side.net.wait(requests[i]).at(0), static_cast<int>(kInFlightBytes));
          EXPECT_EQ(std::memcmp(at(i), pattern(kInFlightBytes + i, 0).data() + i, kInFlightBytes),
                    0)
              << "message " << i;
        }
        side.meet();
      });
}

constexpr size_t kGroupBytes = 1000;

/// Posts a grouped receive of tags `first` and so on; entry i lies at data + i * kGroupBytes.
void* post_group(Side& side, char* data, void* memory, int count, int first) {
  std::array<void*, 8> pointers{}, memories{};
  std::array<size_t, 8> sizes{};
  std::array<int, 8> tags{};
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    pointers[i] = data + i * kGroupBytes;
    memories[i] = memory;
    sizes[i] = kGroupBytes;
    tags[i] = first + static_cast<int>(i);
  }
  // As NCCL asks where it does not need to hear of the end.
  void* request = reinterpret_cast<void*>(1);
  EXPECT_EQ(side.net.calls().irecv(side.comm, count, pointers.data(), sizes.data(), tags.data(),
                                   memories.data(), nullptr, &request),
            Result::success);
  EXPECT_NE(request, reinterpret_cast<void*>(1));
  return request;
}

TEST(Plugin, MatchesGroupedReceivesInOrder) {
  run_linked(
      kNewest,
      [](Side& side) {
        std::vector<char> data = pattern(kGroupBytes + 16, 0);
        void* const memory = side.net.register_now(side.comm, data.data(), data.size());
        side.meet();
        // Group one has tags 1 to 8, group two 1 to 3. The last tag first; bytes tell them apart.
        std::vector<void*> requests;
        for (int tag = 8; tag >= 2; --tag)
          requests.push_back(side.net.isend_now(
              side.comm, data.data() + tag, kGroupBytes - static_cast<size_t>(tag), tag, memory));
        void* too_early = &data;
        EXPECT_EQ(side.net.calls().isend(side.comm, data.data(), 1, 2, memory, nullptr, &too_early),
                  Result::success);
        EXPECT_EQ(too_early, nullptr) << "a send got past the oldest receive";
        for (const int tag : {1, 3, 1, 2})
          requests.push_back(side.net.isend_now(side.comm, data.data() + tag, 10, tag, memory));
        for (void* request : requests) EXPECT_EQ(side.net.wait(request).size(), 8u);
        side.meet();
      },
      [](Side& side) {
        std::vector<char> data(16 * kGroupBytes);
        void* const memory = side.net.register_now(side.comm, data.data(), data.size());
        char* const second = data.data() + 8 * kGroupBytes;
        void* const one = post_group(side, data.data(), memory, 8, 1);
        void* const two = post_group(side, second, memory, 3, 1);
        side.meet();
        const std::vector<int> first_bytes = side.net.wait(one), second_bytes = side.net.wait(two);
        const std::vector<char> sent = pattern(kGroupBytes + 16, 0);
        for (size_t tag = 1; tag <= 8; ++tag) {
          const size_t bytes = tag == 1 ? 10 : kGroupBytes - tag;
          EXPECT_EQ(first_bytes.at(tag - 1), static_cast<int>(bytes)) << tag;
          EXPECT_EQ(std::memcmp(data.data() + (tag - 1) * kGroupBytes, sent.data() + tag, bytes),
                    0);
        }
        for (size_t tag = 1; tag <= 3; ++tag) EXPECT_EQ(second_bytes.at(tag - 1), 10);
        void* flush = data.data();
        void* pointer = data.data();
        int bytes = 10;
        void* handle = memory;
        ASSERT_EQ(side.net.calls().iflush(side.comm, 1, &pointer, &bytes, &handle, &flush),
                  Result::success);
        if (flush != nullptr) side.net.wait(flush);
        side.meet();
      });
}

/// Until something says that the peer has gone.
void expect_remote_error(Side& side, const std::function<Result()>& call) {
  Result result = Result::success;
  while (result == Result::success) {
    result = call();
    ::usleep(1000);
  }
  EXPECT_EQ(result, Result::remote_error);
  EXPECT_NE(Net::warnings().find("look at that rank's output"), std::string::npos)
      << Net::warnings();
  char byte = 0;
  side.tell(&byte, 1);
}

constexpr size_t kLongBytes = 64 << 20;

void send_without_end(Side& side) {
  std::vector<char> data(kLongBytes);
  void* const memory = side.net.register_now(side.comm, data.data(), data.size());
  void* request = side.net.isend_now(side.comm, data.data(), data.size(), 0, memory);
  char byte = 0;
  side.tell(&byte, 1);
  expect_remote_error(side, [&] {
    int done = 0;
    if (request != nullptr) {
      const Result tested = side.net.calls().test(request, &done, nullptr);
      if (tested != Result::success || done == 0) return tested;
    }
    request = nullptr;  // an adapter needs nobody there to write all of it
    void* next = nullptr;
    return side.net.calls().isend(side.comm, data.data(), 1, 0, memory, nullptr, &next);
  });
}

void receive_without_end(Side& side) {
  std::vector<char> data(kLongBytes);
  void* const memory = side.net.register_now(side.comm, data.data(), data.size());
  void* const request = side.net.irecv_now(side.comm, data.data(), data.size(), 0, memory);
  char byte = 0;
  side.tell(&byte, 1);
  expect_remote_error(side, [&] {
    int done = 0;
    return side.net.calls().test(request, &done, nullptr);
  });
}

/// Kills one end in the middle of a message; the other must know within a second.
void kill_one(bool is_sender) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  // What the survivor tells goes to this process.
  const auto tells = [&](Side& side, const Role& role) {
    Side survivor{side.net, side.comm, ends[1]};
    role(survivor);
    side.net.calls().close_send(side.comm);
  };
  const auto lives = [](Side&) { ::pause(); };
  Pair pair(
      kNewest,
      [&](Side& side) {
        link_sender(side);
        is_sender ? lives(side) : tells(side, send_without_end);
      },
      [&](Side& side) {
        link_receiver(side);
        if (!is_sender) {
          std::vector<char> data(kLongBytes);
          void* const memory = side.net.register_now(side.comm, data.data(), data.size());
          side.net.irecv_now(side.comm, data.data(), data.size(), 0, memory);
          ::pause();
        }
        tells(side, receive_without_end);
      });
  char byte = 0;
  ASSERT_EQ(::recv(ends[0], &byte, 1, MSG_WAITALL), 1);
  const auto killed = steady_clock::now();
  is_sender ? pair.kill_sender() : pair.kill_receiver();
  ASSERT_EQ(::recv(ends[0], &byte, 1, MSG_WAITALL), 1);
  const std::chrono::duration<double> after = steady_clock::now() - killed;
  EXPECT_LT(after.count(), 1 * slowness());
  pair.join();
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Plugin, TellsTheReceiverOfAKilledSender) {
  kill_one(true);
}

TEST(Plugin, TellsTheSenderOfAKilledReceiver) {
  kill_one(false);
}

TEST(Plugin, TalksOverTcpToWhoHasNoRdma) {
  const char* const transport = std::getenv("ROPEWALK_TRANSPORT");
  if (transport == nullptr || transport != std::string("verbs"))
    GTEST_SKIP() << "suite rdma runs it, where there is an adapter";
  Pair pair(
      kNewest,
      [](Side& side) {
        link_sender(side);
        std::vector<char> data = pattern(kInFlightBytes, 5);
        void* const memory = side.net.register_now(side.comm, data.data(), data.size());
        side.net.wait(side.net.isend_now(side.comm, data.data(), data.size(), 0, memory));
        side.meet();
      },
      [](Side& side) {
        link_receiver(side);
        std::vector<char> data(kInFlightBytes);
        void* const memory = side.net.register_now(side.comm, data.data(), data.size());
        side.net.wait(side.net.irecv_now(side.comm, data.data(), data.size(), 0, memory));
        EXPECT_TRUE(is_pattern(data.data(), data.size(), 5));
        side.meet();
      },
      [](bool is_sender) { ::setenv("ROPEWALK_TRANSPORT", is_sender ? "tcp" : "verbs", 1); });
  pair.join();
}

TEST(Plugin, ConnectsToNobodyThatHasEnded) {
  in_child([] {
    const Net net(kNewest);
    Handle handle;
    void *listen_comm = nullptr, *comm = nullptr;
    ASSERT_EQ(net.listen(0, handle.data(), &listen_comm), Result::success);
    net.calls().close_listen(listen_comm);
    Result result = Result::success;
    while (result == Result::success && comm == nullptr)
      result = net.connect(0, handle.data(), &comm);
    EXPECT_EQ(result, Result::remote_error);
    EXPECT_NE(Net::warnings().find("nothing listens there"), std::string::npos) << Net::warnings();
  });
}

}  // namespace
}  // namespace ropewalk::testing
