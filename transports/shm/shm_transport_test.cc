// What is particular to shared memory; what every transport must do is in tests/conformance.
#include "transports/shm/shm_transport.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <set>
#include <thread>
#include <utility>

#include "memory/registered_memory.h"

namespace ropewalk {
namespace {

using SteadyClock = std::chrono::steady_clock;

std::set<std::string> names_in(const char* directory) {
  std::set<std::string> names;
  DIR* dir = opendir(directory);
  while (const dirent* entry = dir ? readdir(dir) : nullptr) names.insert(entry->d_name);
  if (dir) closedir(dir);
  return names;
}

size_t open_descriptors() {
  return names_in("/proc/self/fd").size();
}

/// How many mappings of this process are of files named like `name`.
size_t mappings_of(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(name) != std::string::npos;
  return count;
}

bool eventually(const std::function<bool()>& done) {
  const auto deadline = SteadyClock::now() + std::chrono::seconds(20);
  while (!done()) {
    if (SteadyClock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Two linked ranks in this process.
struct Two {
  Two() {
    a.set_peers({a.info(), b.info()});
    b.set_peers({a.info(), b.info()});
    a.connect(1, {});
    b.connect(0, {});
    a.poll({});
    b.poll({});
  }
  ShmTransport a{0, 2}, b{1, 2};
};

TEST(ShmTransport, RefusesMemoryThatIsNoFile) {
  ShmTransport transport(0, 1);
  std::array<std::byte, 64> plain;
  const RegisteredMemory small(4096);
  Region beyond = small.region();
  beyond.memfd_offset = 1;
  for (const Region& region : {Region{plain.data(), plain.size(), -1, 0}, beyond}) try {
      transport.register_memory(region);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(error.failure().advice.find("allocate"), std::string::npos);
    }
}

TEST(ShmTransport, RefusesAMailboxThatIsNotThePeers) {
  ShmTransport a(0, 2), b(1, 2), other_size(1, 3);
  shm::MailboxAddress wrong_nonce = shm::MailboxAddress::parse(1, "shm", b.info());
  ++wrong_nonce.nonce;
  const RegisteredMemory other(shm::Mailbox::bytes_for(2));
  shm::MailboxAddress not_a_mailbox = shm::MailboxAddress::parse(1, "shm", b.info());
  not_a_mailbox.mailbox = shm::MemfdSharing().share(other.region());
  for (const std::string& info :
       {a.info(), wrong_nonce.text(), other_size.info(), not_a_mailbox.text()}) {
    ShmTransport rank0(0, 2);
    try {
      rank0.set_peers({"", info});
      ADD_FAILURE() << info;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable) << error.what();
      EXPECT_EQ(error.peer(), 1);
    }
  }
}

TEST(ShmTransport, RefusesToConnectToWhoIsNotHere) {
  ShmTransport a(0, 2);
  a.set_peers({a.info(), ""});
  EXPECT_THROW(a.connect(1, {}), Error);
  EXPECT_THROW(a.connect(2, {}), std::out_of_range);
  EXPECT_FALSE(a.connected(1));
}

// Doorbells are opened in turn; each must still be rung.
TEST(ShmTransport, WakesMorePeersThanItKeepsDoorbellsOpenOf) {
  constexpr int kRanks = 200;
  std::vector<std::unique_ptr<ShmTransport>> ranks;
  std::vector<std::string> infos;
  for (int rank = 0; rank < kRanks; ++rank)
    infos.push_back(ranks.emplace_back(std::make_unique<ShmTransport>(rank, kRanks))->info());
  for (const auto& rank : ranks) rank->set_peers(infos);
  ShmTransport& center = *ranks[0];
  const int before = open_descriptors();
  for (int peer = 1; peer < kRanks; ++peer) {
    center.connect(peer, {});
    std::vector<int> wanted;
    ranks[peer]->find_wanted(wanted);
    EXPECT_EQ(wanted, std::vector{0});
    ranks[peer]->connect(0, {});
    ranks[peer]->poll({});
  }
  center.poll({});
  EXPECT_LE(open_descriptors() - before, 130 + kRanks - 1);  // and of each peer the center's
  for (uint32_t notice = 1; notice <= 3; ++notice)
    for (int peer = 1; peer < kRanks; ++peer) {
      ASSERT_TRUE(ranks[peer]->arm());
      ASSERT_EQ(center.put({.peer = peer, .notice = notice}), Posted::done);
      pollfd event = {ranks[peer]->capabilities().event_fd, POLLIN, 0};
      ASSERT_EQ(poll(&event, 1, 0), 1) << peer << " sleeps on";
      std::array<Completion, 2> completions;
      ASSERT_EQ(ranks[peer]->poll(completions), 1u);
      EXPECT_EQ(completions[0].notice, notice);
    }
}

TEST(ShmTransport, MapsAPieceInTheMiddleOfAFile) {
  Two two;
  const RegisteredMemory file(100'000);
  const Region piece{file.data() + 70'001, 9'999, file.region().memfd, 70'001};
  const auto registration = two.b.register_memory(piece);
  std::byte* mapped = two.a.map(1, registration->key(), 0, 9'999);
  ASSERT_NE(mapped, nullptr);
  std::memset(mapped, 0x11, 9'999);
  EXPECT_EQ(file.data()[70'000], std::byte{0});
  EXPECT_EQ(file.data()[70'001], std::byte{0x11});
  EXPECT_EQ(file.data()[79'999], std::byte{0x11});
  EXPECT_EQ(file.data()[80'000], std::byte{0});
  EXPECT_EQ(two.a.map(1, registration->key(), 1, 9'999), nullptr);
}

TEST(ShmTransport, MapsOnceAndWithoutFaultsLater) {
  Two two;
  RegisteredMemory memory(size_t{4} << 20);
  memory.register_with(two.b);
  const RemoteKey key = memory.registrations()[0]->key();
  std::byte* mapped = two.a.map(1, key, 0, 1);
  const size_t mappings = mappings_of("ropewalk-buffer");
  EXPECT_EQ(two.a.map(1, key, 4096, 1), mapped + 4096);
  EXPECT_EQ(mappings_of("ropewalk-buffer"), mappings);
}

TEST(ShmTransport, GivesBackWhatThePeerHasFreed) {
  Two two;
  const size_t before = mappings_of("ropewalk-buffer");
  RemoteKey stale;
  {
    RegisteredMemory memory(8192);
    memory.register_with(two.b);
    stale = memory.registrations()[0]->key();
    ASSERT_NE(two.a.map(1, stale, 0, 8192), nullptr);
    EXPECT_EQ(mappings_of("ropewalk-buffer"), before + 2);
  }
  EXPECT_TRUE(two.a.arm());  // asleep, perhaps in the middle of something
  EXPECT_EQ(mappings_of("ropewalk-buffer"), before + 1);
  two.a.unmap_deregistered();
  EXPECT_EQ(mappings_of("ropewalk-buffer"), before);
  EXPECT_EQ(two.a.map(1, stale, 0, 1), nullptr);
  std::byte byte{};
  EXPECT_EQ(two.a.put({.peer = 1, .source = &byte, .bytes = 1, .key = stale}), Posted::lost);
  EXPECT_NE(two.a.why_lost(1).text.find("it has no region"), std::string::npos)
      << two.a.why_lost(1).text;
}

TEST(ShmTransport, NeverMapsAnotherFileThanTheKeys) {
  // Files come and go under the same descriptor numbers while the peer opens them.
  Two two;
  std::atomic<uint64_t> newest{0};
  std::atomic<bool> stop{false};
  std::thread owner([&] {
    for (int round = 0; !stop; ++round) {
      RegisteredMemory memory(4096);
      memory.register_with(two.b);
      const uint64_t id = memory.registrations()[0]->key().id;
      std::memcpy(memory.data(), &id, sizeof id);
      newest = id;
      // From gone at once to there for longer than mapping takes.
      std::this_thread::sleep_for(std::chrono::microseconds(round % 16 * 20));
    }
  });
  int mapped = 0, wrong = 0;
  uint64_t last = 0;
  EXPECT_TRUE(eventually([&] {
    const uint64_t id = newest;
    if (const std::byte* found = two.a.map(1, {id, 4096}, 0, 4096)) {
      mapped += std::exchange(last, id) != id;
      wrong += std::memcmp(found, &id, sizeof id) != 0;
    }
    return mapped >= 100;
  }));
  stop = true;
  owner.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ShmTransport, LimitsRegistrationsAndReusesThem) {
  ShmTransport transport(0, 1);
  const RegisteredMemory memory(4096);
  std::vector<std::unique_ptr<MemoryRegistration>> all;
  for (size_t i = 0; i < shm::kRegionsMax; ++i)
    all.push_back(transport.register_memory(memory.region()));
  try {
    transport.register_memory(memory.region());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::exhausted);
  }
  const RemoteKey old = all[5]->key();
  all[5].reset();
  const auto again = transport.register_memory(memory.region());
  EXPECT_NE(again->key().id, old.id);
  EXPECT_EQ(again->key().id % shm::kRegionsMax, old.id % shm::kRegionsMax);
}

TEST(ShmTransport, ClosesAndUnmapsEverything) {
  const size_t descriptors = open_descriptors();
  const size_t mappings = mappings_of("ropewalk");
  {
    Two two;
    RegisteredMemory memory(8192);
    memory.register_with(two.b);
    ASSERT_NE(two.a.map(1, memory.registrations()[0]->key(), 0, 1), nullptr);
    const size_t linked = open_descriptors();
    two.a.drop(1);
    EXPECT_EQ(open_descriptors(), linked - 1);  // the doorbell
    EXPECT_EQ(two.a.map(1, memory.registrations()[0]->key(), 0, 1), nullptr);
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(mappings_of("ropewalk"), mappings);
}

TEST(ShmTransport, UsesLittleMemoryForManyRanks) {
  // The mailbox is sparse: what counts is the link, not the size of the job.
  ShmTransport transport(0, 128);
  struct stat file {};
  const std::string info = transport.info();
  const shm::MailboxAddress self = shm::MailboxAddress::parse(0, "shm", info);
  ASSERT_EQ(fstat(static_cast<int>(self.mailbox.words[0]), &file), 0);
  EXPECT_LT(file.st_blocks * 512, 64 << 10);
}

/// Two processes. The child runs `child` as rank 1, with a socket to exchange infos on.
class TwoProcesses : public testing::Test {
 protected:
  static constexpr size_t kInfoBytes = 128;

  void start(void (*child)(ShmTransport&, int socket)) {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets_), 0);
    child_ = fork();
    if (child_ == 0) {
      // Not the parent's transport and not its descriptors: what a rank of its own has.
      alarm(30);
      close(sockets_[0]);
      try {
        ShmTransport transport(1, 2);
        link(transport, 0, sockets_[1]);
        child(transport, sockets_[1]);
      } catch (const std::exception& error) {
        fmt::print(stderr, "child: {}\n", error.what());
        _exit(3);
      }
      _exit(0);
    }
    close(sockets_[1]);
    transport_ = std::make_unique<ShmTransport>(0, 2);
    link(*transport_, 1, sockets_[0]);
  }

  static void link(ShmTransport& transport, int peer, int socket) {
    std::array<char, kInfoBytes> mine{}, theirs{};
    transport.info().copy(mine.data(), kInfoBytes - 1);
    if (write(socket, mine.data(), kInfoBytes) != kInfoBytes ||
        recv(socket, theirs.data(), kInfoBytes, MSG_WAITALL) != kInfoBytes)
      throw Error(ErrorCode::system, "test", "the exchange of infos failed");
    std::vector<std::string> infos(2);
    infos[static_cast<size_t>(peer)] = theirs.data();
    infos[static_cast<size_t>(1 - peer)] = mine.data();
    transport.set_peers(infos);
    transport.connect(peer, {});
    if (!eventually([&] { return transport.poll({}), transport.connected(peer); }))
      throw Error(ErrorCode::timeout, "test", "the link does not stand");
  }

  int wait_for_child() {
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = -1;
    return status;
  }

  void TearDown() override {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      wait_for_child();
    }
    close(sockets_[0]);
  }

  int sockets_[2] = {-1, -1};
  pid_t child_ = -1;
  std::unique_ptr<ShmTransport> transport_;
};

constexpr size_t kBytes = 300'000;

void send_key(int socket, RemoteKey key) {
  if (write(socket, &key, sizeof key) != sizeof key) throw std::runtime_error("send_key");
}

RemoteKey receive_key(int socket) {
  RemoteKey key;
  if (recv(socket, &key, sizeof key, MSG_WAITALL) != sizeof key)
    throw std::runtime_error("receive_key");
  return key;
}

/// Sleeps until a notice comes, as the engine does.
Completion await_notice(ShmTransport& transport) {
  std::array<Completion, 1> one;
  while (transport.poll(one) == 0)
    if (transport.arm()) {
      pollfd fd{transport.capabilities().event_fd, POLLIN, 0};
      if (::poll(&fd, 1, 20'000) == 0) throw std::runtime_error("no wake-up within 20 s");
    }
  return one[0];
}

/// Puts back to rank 0, incremented, whatever rank 0 puts; ends on notice 0.
void increment(ShmTransport& transport, int socket) {
  RegisteredMemory memory(kBytes);
  memory.register_with(transport);
  send_key(socket, memory.registrations()[0]->key());
  const RemoteKey theirs = receive_key(socket);
  while (const uint32_t notice = await_notice(transport).notice) {
    for (size_t i = 0; i < kBytes; ++i)
      memory.data()[i] = static_cast<std::byte>(static_cast<int>(memory.data()[i]) + 1);
    transport.put(
        {.peer = 0, .source = memory.data(), .bytes = kBytes, .key = theirs, .notice = notice});
  }
}

TEST_F(TwoProcesses, MoveBytesAndWakeEachOther) {
  start(increment);
  RegisteredMemory memory(kBytes);
  memory.register_with(*transport_);
  const RemoteKey theirs = receive_key(sockets_[0]);
  send_key(sockets_[0], memory.registrations()[0]->key());
  for (uint32_t round = 1; round <= 50; ++round) {
    ASSERT_EQ(
        transport_->put(
            {.peer = 1, .source = memory.data(), .bytes = kBytes, .key = theirs, .notice = round}),
        Posted::done);
    const Completion notice = await_notice(*transport_);
    ASSERT_EQ(notice.notice, round);
    ASSERT_EQ(std::count(memory.data(), memory.data() + kBytes, static_cast<std::byte>(round)),
              static_cast<long>(kBytes));
  }
  ASSERT_EQ(transport_->put({.peer = 1}), Posted::done);
  EXPECT_EQ(wait_for_child(), 0);
}

/// Falls asleep, armed, and then gives its key away.
void sleep_armed(ShmTransport& transport, int socket) {
  RegisteredMemory memory(kBytes);
  memory.register_with(transport);
  if (!transport.arm()) throw std::runtime_error("news where none can be");
  send_key(socket, memory.registrations()[0]->key());
  for (;;) pause();
}

TEST_F(TwoProcesses, OneKilledLeavesNothingAndHurtsNobody) {
  const auto names_before = names_in("/dev/shm");
  const size_t mappings_before = mappings_of("ropewalk");
  const size_t descriptors_before = open_descriptors();
  start(sleep_armed);
  const RemoteKey key = receive_key(sockets_[0]);
  ASSERT_NE(transport_->map(1, key, 0, 1), nullptr);
  kill(child_, SIGKILL);
  wait_for_child();

  // Puts go on into memory that nobody reads, until the control connection tells; the doorbell of
  // the dead raises no SIGPIPE.
  std::vector<std::byte> source(kBytes);
  size_t accepted = 0;
  while (accepted < 5000 && transport_->put({.peer = 1,
                                             .source = source.data(),
                                             .bytes = accepted == 0 ? kBytes : 1,
                                             .key = key,
                                             .notice = 1}) == Posted::done)
    ++accepted;
  EXPECT_EQ(accepted, shm::kNoticesMax);
  EXPECT_TRUE(transport_->arm());
  transport_->drop(1);
  EXPECT_EQ(transport_->put({.peer = 1, .notice = 1}), Posted::lost);
  transport_.reset();
  EXPECT_EQ(names_in("/dev/shm"), names_before);
  EXPECT_EQ(mappings_of("ropewalk"), mappings_before);
  close(std::exchange(sockets_[0], -1));
  EXPECT_EQ(open_descriptors(), descriptors_before);
}

TEST_F(TwoProcesses, OneDeadIsNotMistakenForAnother) {
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets_), 0);
  child_ = fork();
  if (child_ == 0) {
    ShmTransport transport(1, 2);
    std::array<char, kInfoBytes> mine{};
    transport.info().copy(mine.data(), kInfoBytes - 1);
    const bool sent = write(sockets_[1], mine.data(), kInfoBytes) == kInfoBytes;
    char byte;
    _exit(sent && read(sockets_[1], &byte, 1) == 1 ? 0 : 1);
  }
  close(sockets_[1]);
  std::array<char, kInfoBytes> theirs{};
  ASSERT_EQ(recv(sockets_[0], theirs.data(), kInfoBytes, MSG_WAITALL), ssize_t{kInfoBytes});
  ShmTransport transport(0, 2);
  transport.set_peers({transport.info(), theirs.data()});
  ASSERT_EQ(write(sockets_[0], "x", 1), 1);
  EXPECT_EQ(wait_for_child(), 0);
  try {
    transport.connect(1, {});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_EQ(error.peer(), 1);
  }
}

}  // namespace
}  // namespace ropewalk
