// Many messages of random sizes, in groups of random sizes, compared byte by byte; keys; bad input.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/nccl/pair.h"

namespace ropewalk::testing {
namespace {

using namespace nccl;

constexpr int kVersion = 12;
constexpr size_t kMessageBytesMax = 16 << 10, kGroupMax = 8;

/// NCCL_TEST_MESSAGES, or a part of a second's worth.
size_t messages_in_all() {
  const char* text = std::getenv("NCCL_TEST_MESSAGES");
  return text != nullptr ? std::strtoul(text, nullptr, 10) : 20000;
}

/// What both ends draw alike: of which sizes the next group's messages are, and in which order they
/// are sent.
struct Group {
  size_t count = 0;
  std::array<size_t, kGroupMax> bytes{}, room{}, order{};
};

class Groups {
 public:
  Group next() {
    Group group;
    group.count = 1 + random_() % kGroupMax;
    for (size_t i = 0; i < group.count; ++i) {
      // Mostly short ones, and now and then nothing.
      const size_t most = random_() % 8 == 0 ? kMessageBytesMax : 200;
      group.bytes[i] = random_() % 10 == 0 ? 0 : random_() % most;
      group.room[i] = std::min(kMessageBytesMax, group.bytes[i] + random_() % 3);
      group.order[i] = i;
    }
    for (size_t i = group.count; i > 1; --i)
      std::swap(group.order[i - 1], group.order[random_() % i]);
    return group;
  }

 private:
  std::mt19937_64 random_{17};
};

/// Bytes of message `number`: none of it is in the one before.
void fill(char* data, size_t bytes, uint64_t number) {
  uint64_t word = number * 0x9E3779B97F4A7C15;
  for (size_t i = 0; i < bytes; i += sizeof word, word += 0x0101010101010101)
    std::memcpy(data + i, &word, std::min(sizeof word, bytes - i));
}

// Requests under way, each with buffers of its own: at most as many as a communicator has.
constexpr size_t kDepth = kRequestsMax;

void send_random(Side& side) {
  std::vector<char> data(kDepth * kGroupMax * kMessageBytesMax);
  void* const memory = side.net.register_now(side.comm, data.data(), data.size());
  std::vector<std::array<void*, kGroupMax>> requests(kDepth);
  Groups groups;
  const auto wait_for = [&](size_t slot) {
    for (void*& request : requests[slot])
      if (void* const one = std::exchange(request, nullptr)) side.net.wait(one);
  };
  uint64_t number = 0;
  for (size_t i = 0; number < messages_in_all() && !::testing::Test::HasFailure(); ++i) {
    const size_t slot = i % kDepth;
    wait_for(slot);
    const Group group = groups.next();
    for (size_t k = 0; k < group.count; ++k) {
      const size_t entry = group.order[k];
      char* const at = data.data() + (slot * kGroupMax + entry) * kMessageBytesMax;
      fill(at, group.bytes[entry], number + entry);
      requests[slot][entry] = side.net.isend_now(side.comm, at, group.bytes[entry],
                                                 100 + static_cast<int>(entry), memory);
    }
    number += group.count;
  }
  for (size_t slot = 0; slot < kDepth; ++slot) wait_for(slot);
  side.meet();
}

class RandomReceiver {
 public:
  explicit RandomReceiver(Side& side)
      : side_(side),
        data_(kDepth * kGroupMax * kMessageBytesMax),
        memory_(side.net.register_now(side.comm, data_.data(), data_.size())) {}

  void run() {
    uint64_t number = 0;
    size_t posted = 0;
    for (; number < messages_in_all() && !::testing::Test::HasFailure(); ++posted) {
      if (posted >= kDepth) check(posted - kDepth);
      pending_[posted % kDepth] = {groups_.next(), number};
      post(posted % kDepth);
      number += pending_[posted % kDepth].group.count;
    }
    for (size_t i = posted - std::min(posted, kDepth); i < posted; ++i) check(i);
    side_.meet();
  }

 private:
  struct Pending {
    Group group;
    uint64_t first = 0;  // number of its first message
    void* request = nullptr;
  };

  char* at(size_t slot, size_t entry) {
    return data_.data() + (slot * kGroupMax + entry) * kMessageBytesMax;
  }

  void post(size_t slot) {
    Group& group = pending_[slot].group;
    std::array<void*, kGroupMax> pointers{}, memories{};
    std::array<int, kGroupMax> tags{};
    for (size_t entry = 0; entry < group.count; ++entry) {
      pointers[entry] = at(slot, entry);
      memories[entry] = memory_;
      tags[entry] = 100 + static_cast<int>(entry);
    }
    void* request = nullptr;
    while (request == nullptr && !::testing::Test::HasFailure())
      EXPECT_EQ(side_.net.calls().irecv(side_.comm, static_cast<int>(group.count), pointers.data(),
                                        group.room.data(), tags.data(), memories.data(), nullptr,
                                        &request),
                Result::success)
          << Net::warnings();
    pending_[slot].request = request;
  }

  void check(size_t number) {
    const size_t slot = number % kDepth;
    const Pending& pending = pending_[slot];
    const std::vector<int> bytes = side_.net.wait(pending.request);
    ASSERT_EQ(bytes.size(), kGroupMax);
    std::array<char, kMessageBytesMax> expected;
    for (size_t entry = 0; entry < pending.group.count; ++entry) {
      const size_t sent = pending.group.bytes[entry];
      fill(expected.data(), sent, pending.first + entry);
      ASSERT_EQ(bytes[entry], static_cast<int>(sent)) << "message " << pending.first + entry;
      ASSERT_EQ(std::memcmp(at(slot, entry), expected.data(), sent), 0)
          << "message " << pending.first + entry << " of " << sent << " bytes";
    }
  }

  Side& side_;
  std::vector<char> data_;
  void* const memory_;
  Groups groups_;
  std::array<Pending, kDepth> pending_;
};

TEST(Messages, ArriveAsTheyWereSent) {
  run_linked(kVersion, send_random, [](Side& side) { RandomReceiver(side).run(); });
}

/// As NCCL's service thread does, while its progress thread moves data.
class RegistersAllTheTime {
 public:
  explicit RegistersAllTheTime(Side& side) : thread_([this, &side] { run(side); }) {}
  ~RegistersAllTheTime() {
    done_ = true;
    thread_.join();
  }

 private:
  void run(Side& side) const {
    std::vector<char> data(4096);
    while (!done_) {
      void* const memory = side.net.register_now(side.comm, data.data(), data.size());
      EXPECT_EQ(side.net.calls().deregister_memory(side.comm, memory), Result::success);
      std::this_thread::yield();
    }
  }

  std::atomic<bool> done_{false};
  std::thread thread_;
};

constexpr size_t kPlain = 2000;

TEST(Messages, ArriveWhileMemoryIsRegistered) {
  run_linked(
      kVersion,
      [](Side& side) {
        const RegistersAllTheTime beside(side);
        uint64_t number = 0;
        void* const memory = side.net.register_now(side.comm, &number, sizeof number);
        for (; number < kPlain; ++number)
          side.net.wait(side.net.isend_now(side.comm, &number, sizeof number, 0, memory));
        side.meet();
      },
      [](Side& side) {
        const RegistersAllTheTime beside(side);
        uint64_t number = 0;
        void* const memory = side.net.register_now(side.comm, &number, sizeof number);
        for (uint64_t i = 0; i < kPlain; ++i) {
          side.net.wait(side.net.irecv_now(side.comm, &number, sizeof number, 0, memory));
          ASSERT_EQ(number, i);
        }
        side.meet();
      });
}

// ---- Keys ----

constexpr const char* kKeyOne = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
constexpr const char* kKeyTwo = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";

/// Both ends with the key that is theirs; empty: none. The roles begin before the connection.
void run_with_keys(const char* senders, const char* receivers, const Role& sender,
                   const Role& receiver) {
  // The plugin reads the environment in its init, which comes before the role.
  const auto with_key = [](const char* key) {
    key[0] == '\0' ? ::unsetenv("ROPEWALK_JOB_KEY") : ::setenv("ROPEWALK_JOB_KEY", key, 1);
  };
  Pair pair(kVersion, sender, receiver, [&](bool is_sender) {
    with_key(is_sender ? senders : receivers);
    // For strangers to give up.
    if (std::strcmp(senders, receivers) != 0) ::setenv("ROPEWALK_TIMEOUT", "1", 1);
  });
  pair.join();
}

void accept_while_told(Side& side) {
  Handle handle;
  void *listen_comm = nullptr, *comm = nullptr;
  ASSERT_EQ(side.net.listen(0, handle.data(), &listen_comm), Result::success);
  side.tell(handle.data(), handle.size());
  char byte;
  while (::recv(side.fd, &byte, 1, MSG_DONTWAIT) != 1) {
    ASSERT_EQ(side.net.calls().accept(listen_comm, &comm, nullptr), Result::success);
    ASSERT_EQ(comm, nullptr) << "let a stranger in";
  }
  side.net.calls().close_listen(listen_comm);
}

Role expect_refusal(Result expected, const char* words) {
  return [=](Side& side) {
    Handle handle;
    side.hear(handle.data(), handle.size());
    void* comm = nullptr;
    Result result = Result::success;
    while (result == Result::success && comm == nullptr)
      result = side.net.connect(0, handle.data(), &comm);
    EXPECT_EQ(result, expected);
    EXPECT_EQ(comm, nullptr);
    EXPECT_NE(Net::warnings().find(words), std::string::npos) << Net::warnings();
    char byte = 0;
    side.tell(&byte, 1);
  };
}

TEST(Keys, LetThoseInThatHaveThem) {
  run_with_keys(
      kKeyOne, kKeyOne,
      [](Side& side) {
        link_sender(side);
        side.meet();
      },
      [](Side& side) {
        link_receiver(side);
        side.meet();
      });
}

TEST(Keys, KeepStrangersOut) {
  run_with_keys(kKeyTwo, kKeyOne,
                expect_refusal(Result::remote_error, "give every rank the same ROPEWALK_JOB_KEY"),
                accept_while_told);
}

TEST(Keys, OfOneEndOnlyAreToldAtOnce) {
  run_with_keys("", kKeyOne,
                expect_refusal(Result::invalid_usage, "the peer has a ROPEWALK_JOB_KEY"),
                accept_while_told);
  run_with_keys(kKeyOne, "",
                expect_refusal(Result::invalid_usage, "this rank has a ROPEWALK_JOB_KEY"),
                accept_while_told);
}

// ---- Bad input ----

TEST(BadInput, IsRefused) {
  run_linked(
      kVersion,
      [](Side& side) {
        const CommonCalls& calls = side.net.calls();
        std::array<char, 64> data{};
        void *memory = nullptr, *request = nullptr;
        EXPECT_EQ(calls.register_memory(side.comm, data.data(), data.size(), 0x2, &memory),
                  Result::invalid_usage);
        EXPECT_EQ(memory, nullptr);
        EXPECT_EQ(calls.register_memory(nullptr, data.data(), data.size(), kPointerHost, &memory),
                  Result::invalid_argument);
        memory = side.net.register_now(side.comm, data.data(), data.size());
        side.meet();
        const auto send = [&](size_t bytes, void* handle) {
          return calls.isend(side.comm, data.data(), bytes, 0, handle, nullptr, &request);
        };
        // Once there is a receive to be matched.
        while (send(65, memory) == Result::success)
          ASSERT_EQ(request, nullptr) << "a send of more than is received";
        EXPECT_NE(Net::warnings().find("the peer receives 64"), std::string::npos);
        EXPECT_EQ(send(64, nullptr), Result::invalid_argument);
        EXPECT_EQ(send(64, &data), Result::invalid_argument);
        EXPECT_EQ(calls.isend(side.comm, data.data() + 1, 64, 0, memory, nullptr, &request),
                  Result::invalid_argument)
            << "beyond what is registered";
        EXPECT_EQ(calls.irecv(side.comm, 0, &memory, nullptr, nullptr, nullptr, nullptr, &request),
                  Result::invalid_argument);
        void* const sent = side.net.isend_now(side.comm, data.data(), 64, 0, memory);
        EXPECT_EQ(side.net.wait(sent).at(0), 64);
        int done = 0;
        EXPECT_EQ(calls.test(sent, &done, nullptr), Result::invalid_argument) << "a request twice";
        EXPECT_EQ(calls.test(nullptr, &done, nullptr), Result::invalid_argument);
        EXPECT_EQ(calls.deregister_memory(side.comm, &data), Result::invalid_argument);
        side.meet();
      },
      [](Side& side) {
        std::array<char, 64> data{};
        void* const memory = side.net.register_now(side.comm, data.data(), data.size());
        void* pointer = data.data();
        size_t bytes = data.size();
        int tag = 0;
        void *handle = memory, *request = nullptr;
        EXPECT_EQ(side.net.calls().irecv(side.comm, 9, &pointer, &bytes, &tag, &handle, nullptr,
                                         &request),
                  Result::invalid_argument);
        request = side.net.irecv_now(side.comm, data.data(), data.size(), 0, memory);
        side.meet();
        EXPECT_EQ(side.net.wait(request).at(0), 64);
        side.meet();
      });
}

TEST(BadInput, HandlesOfAnotherPluginAreNoCrash) {
  std::fflush(nullptr);
  const int child = ::fork();
  if (child == 0) {
    const Net net(kVersion);
    std::mt19937_64 random(3);
    Handle handle;
    void *listen_comm = nullptr, *comm = nullptr;
    EXPECT_EQ(net.listen(0, handle.data(), &listen_comm), Result::success);
    net.calls().close_listen(listen_comm);
    for (int i = 0; i < 1000; ++i) {
      Handle changed = handle;
      changed[random() % 8] ^= static_cast<std::byte>(1 + random() % 255);
      const Result result = net.connect(0, changed.data(), &comm);
      // Other addresses and the key's bit make another handle; everything else is told.
      EXPECT_TRUE(result != Result::success || comm == nullptr);
    }
    EXPECT_NE(Net::warnings().find("is not of this plugin"), std::string::npos);
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ropewalk::testing
