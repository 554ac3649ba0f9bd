#include "bootstrap/world.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>

#include "bootstrap/auth.h"
#include "bootstrap/job_monitor.h"
#include "bootstrap/predecessor.h"
#include "bootstrap/registrar.h"
#include "bootstrap/world_testing.h"
#include "topology/cpu_share.h"
#include "topology/topology.h"

namespace ropewalk::bootstrap {
namespace {

using namespace std::chrono_literals;

void expect_mention(const std::optional<Error>& error, ErrorCode code, const std::string& part) {
  ASSERT_TRUE(error) << "no error that mentions " << part;
  EXPECT_EQ(error->code(), code) << error->what();
  EXPECT_NE(std::string(error->what()).find(part), std::string::npos) << error->what();
}

UniqueFd take_socket(World& world, int peer) {
  world.sockets().request(peer, 0);
  UniqueFd fd;
  while (!fd && world.monitor().failure() == nullptr) {
    fd = world.sockets().take(peer, 0).fd;
    std::this_thread::sleep_for(1ms);
  }
  return fd;
}

class Join : public testing::TestWithParam<int> {};

TEST_P(Join, EveryRankKnowsEveryOther) {
  const int size = GetParam();
  const TestJob job(size);
  expect_no_errors(run_world_ranks(size, [&](int rank) {
    const auto world = job.join(rank, {{"tcp", "info of " + std::to_string(rank)}});
    EXPECT_EQ(world->rank(), rank);
    EXPECT_EQ(world->size(), size);
    for (int r = 0; r < size; ++r) {
      EXPECT_EQ(world->record(r).rank, r);
      EXPECT_EQ(world->record(r).transport, "auto");
      EXPECT_EQ(world->record(r).cpus, cpu_list_text(allowed_cpu_list()));
      EXPECT_EQ(world->record(r).transport_infos.at("tcp"), "info of " + std::to_string(r));
      EXPECT_EQ(world->record(r).addresses.empty(), size == 1);
      EXPECT_FALSE(world->monitor().has_left(r) && r == rank);
    }
    world->leave();
    for (int r = 0; r < size; ++r) EXPECT_TRUE(world->monitor().has_left(r)) << r;
    EXPECT_EQ(world->monitor().failure(), nullptr);
  }));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Join, testing::Values(1, 2, 3, 9, 33, 100));

TEST(World, ACoordinatorSocketServesOneJobAfterTheOther) {
  const TestJob job(3);
  for (int round = 0; round < 3; ++round)
    expect_no_errors(run_world_ranks(3, [&](int rank) { job.join(rank)->leave(); }));
}

TEST(World, TheWrongKeyIsRefusedAndTheJobGoesOn) {
  const TestJob job(2);
  TestJob intruder(2);
  intruder.config.job_key = "wrong";
  std::optional<Error> refused;
  expect_no_errors(run_world_ranks(2, [&](int rank) {
    if (rank == 1) {
      try {
        World::join(job.identity(1), intruder.config, {});
      } catch (const Error& error) {
        refused = error;
      }
    }
    job.join(rank)->leave();
  }));
  expect_mention(refused, ErrorCode::refused, "refused the job key");
}

TEST(World, StrangersDoNotDisturbJoining) {
  const TestJob job(3);
  expect_no_errors(run_world_ranks(3, [&](int rank) {
    std::vector<UniqueFd> strangers;
    if (rank == 2) {
      for (int i = 0; i < 300; ++i) strangers.push_back(connect_to(job.coordinator()));  // silent
      const std::string garbage(5000, 'x');
      for (int i = 0; i < 20; ++i)
        ::send(strangers[static_cast<size_t>(i)].get(), garbage.data(), garbage.size(),
               MSG_NOSIGNAL);
      start_cryptography();
      Hello hello;
      hello.from = 1;
      const auto bytes = encode(hello);
      for (size_t i = 20; i < 40; ++i) {  // half a hello, or a hello and then nothing
        ::send(strangers[i].get(), bytes.data(), i % 2 == 0 ? 30 : bytes.size(), MSG_NOSIGNAL);
        if (i % 4 == 0) strangers[i].reset();
      }
    }
    const auto world = job.join(rank);
    // Now every rank's listener; then links between the ranks must still come about.
    for (int r = 0; rank == 2 && r < 3; ++r)
      for (int i = 0; i < 20; ++i) strangers.push_back(connect_to(world->record(r).addresses[0]));
    EXPECT_TRUE(take_socket(*world, (rank + 1) % 3));
    world->leave();
  }));
}

TEST(World, AProofWithoutTheKeyIsToldSo) {
  const TestJob job(2);
  expect_no_errors(run_world_ranks(2, [&](int rank) {
    if (rank == 1) {
      const UniqueFd fd = connect_to(job.coordinator());
      const auto read_exactly = [&](std::span<std::byte> into) {
        pollfd p = {fd.get(), POLLIN, 0};
        return poll(&p, 1, 5000) == 1 &&
               ::recv(fd.get(), into.data(), into.size(), 0) == static_cast<ssize_t>(into.size());
      };
      Hello hello;
      hello.from = 1;
      hello.public_key = random_key_pair().public_key;
      const auto bytes = encode(hello);
      ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      std::array<std::byte, kReplyBytes> reply;
      EXPECT_TRUE(read_exactly(reply));
      // The acceptor's public key, reflected.
      ::send(fd.get(), reply.data() + kReplyBytes - kProofBytes, kProofBytes, MSG_NOSIGNAL);
      std::array<std::byte, kAnswerBytes> bytes_of_answer;
      EXPECT_TRUE(read_exactly(bytes_of_answer));
      const auto answer = decode<Answer>(bytes_of_answer);
      EXPECT_TRUE(answer && answer->result == HandshakeResult::bad_key);
      EXPECT_TRUE(answer && answer->mac == Mac()) << "nothing to guess the key by";
    }
    job.join(rank)->leave();
  }));
}

/// Between a rank and the coordinator, without the job's key. Passes on what comes, both ways, but
/// changes the first byte that one side sends after `honest_bytes`.
class Relay {
 public:
  Relay(const std::string& to, bool changes_dialers, size_t honest_bytes)
      : changes_dialers_(changes_dialers), honest_bytes_(honest_bytes) {
    auto any = *numeric_address("127.0.0.1:1");
    any.set_port(0);
    listener_ = listen_at(any);
    thread_ = std::thread([this, to] { run(to); });
  }
  ~Relay() {
    over_ = true;
    thread_.join();
  }
  std::string address() const { return local_address(listener_.get()).text(); }

 private:
  void run(const std::string& to) {
    UniqueFd dialer;
    while (!dialer && !over_) {
      std::this_thread::sleep_for(1ms);
      dialer.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    }
    const UniqueFd acceptor = connect_to(to);
    size_t passed_on = 0;
    bool open = true;
    while (open && !over_) {
      std::this_thread::sleep_for(1ms);
      for (const bool from_dialer : {true, false}) {
        std::array<std::byte, 4096> bytes;
        const int from = from_dialer ? dialer.get() : acceptor.get();
        const ssize_t n = ::recv(from, bytes.data(), bytes.size(), 0);
        open = open && n != 0;
        if (n <= 0) continue;
        if (from_dialer == changes_dialers_) {
          const size_t before = std::exchange(passed_on, passed_on + static_cast<size_t>(n));
          if (before <= honest_bytes_ && honest_bytes_ < passed_on)
            bytes[honest_bytes_ - before] ^= std::byte{1};
        }
        ::send(from_dialer ? acceptor.get() : dialer.get(), bytes.data(), static_cast<size_t>(n),
               MSG_NOSIGNAL);
      }
    }
  }

  const bool changes_dialers_;
  const size_t honest_bytes_;
  UniqueFd listener_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

/// Once a relay could pass both handshakes on, and then change what it liked.
TEST(World, ARelayThatChangesWhatItPassesOnIsFound) {
  constexpr size_t kInRecord = SecureChannel::kHeaderBytes + 3;
  for (const bool changes_dialers : {true, false}) {
    TestJob job(2);
    const size_t handshake_bytes =
        changes_dialers ? kHelloBytes + kProofBytes : kReplyBytes + kAnswerBytes;
    const Relay relay(job.coordinator(), changes_dialers, handshake_bytes + kInRecord);
    const auto errors = run_world_ranks(2, [&](int rank) {
      JobIdentity identity = job.identity(rank);
      if (rank == 1) identity.coordinator = relay.address();
      World::join(identity, job.config, {});
    });
    for (const auto& error : errors)
      expect_mention(error, ErrorCode::protocol, "was changed on the way");
  }
}

TEST(World, TwoProcessesWithOneRank) {
  const TestJob job(4);
  const auto errors = run_world_ranks(3, [&](int rank) { job.join(rank == 2 ? 1 : rank); });
  for (const auto& error : errors)
    expect_mention(error, ErrorCode::mismatch, "two processes are rank 1");
}

TEST(World, AnotherSize) {
  const TestJob job(4);
  const auto errors = run_world_ranks(3, [&](int rank) {
    JobIdentity identity = job.identity(rank);
    if (rank == 2) identity.size = 5;
    World::join(identity, job.config, {});
  });
  for (const auto& error : errors)
    expect_mention(error, ErrorCode::mismatch, "says that the job has 5 ranks");
}

// Rank 0 was gone a second after the failure, and who came later waited for it in vain.
TEST(World, RanksThatComeLongAfterTheFailureHearOfIt) {
  const TestJob job(6);
  const auto errors = run_world_ranks(6, [&](int rank) {
    JobIdentity identity = job.identity(rank);
    if (rank == 1) identity.size = 5;
    if (rank > 1) std::this_thread::sleep_for((rank - 1) * 600ms);
    World::join(identity, job.config, {});
  });
  for (const auto& error : errors)
    expect_mention(error, ErrorCode::mismatch, "says that the job has 5 ranks");
}

// Of a next epoch. The others waited for it, and for the one that knew, until the end of their
// time.
TEST(World, ANewcomersEndIsToldByTheOneThatKnows) {
  for (const int size : {4, kJoinGroupMin + 3}) {
    const TestJob job(size);
    const int newcomer = size - 1, one = size - 2;
    const auto errors = run_world_ranks(newcomer, [&](int rank) {
      std::vector<int> members(static_cast<size_t>(newcomer));
      std::iota(members.begin(), members.end(), 0);
      const auto predecessor = std::make_shared<Predecessor>(members);
      if (rank == one) predecessor->note_absent(newcomer);
      try {
        World::join(job.identity(rank), job.config, {}, predecessor);
      } catch (const Error&) {
        predecessor->take_left_behind();  // it holds the predecessor
        throw;
      }
    });
    for (const auto& error : errors)
      expect_mention(error, ErrorCode::peer_lost, fmt::format("rank {} ended as", newcomer));
  }
}

TEST(World, MissingRanksAreNamedToEverybody) {
  TestJob job(6);
  job.config.timeout = 1s;
  const auto errors = run_world_ranks(3, [&](int rank) { job.join(rank); });
  for (const auto& error : errors)
    expect_mention(error, ErrorCode::timeout, "rank 3, 4, 5 never came");
}

// A rank that starts later than others would wait for anything else.
TEST(World, RanksMayTakeLongerToComeThanOtherWaitsMayLast) {
  TestJob job(2);
  job.config.timeout = 200ms;
  job.config.join_timeout = 20s;
  expect_no_errors(run_world_ranks(2, [&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(500ms);
    job.join(rank)->leave();
  }));
  job.config.join_timeout = 300ms;
  const auto errors = run_world_ranks(1, [&](int rank) { job.join(rank); });
  expect_mention(errors[0], ErrorCode::timeout, "rank 1 never came within 0.3 s");
}

TEST(World, ACoordinatorThatNeverComes) {
  TestJob job(2);
  const std::string nobody = job.coordinator();
  job.listener.reset();
  job.config.timeout = 500ms;
  const auto errors = run_world_ranks(1, [&](int) {
    World::join({1, 2, nobody, -1, "test"}, job.config, {});
  });
  expect_mention(errors[0], ErrorCode::timeout,
                 "rank 0 never listened at " + nobody + " within 0.5 s");
}

TEST(World, AStrangerWhereTheCoordinatorMayBeIsNamedAtTheEnd) {
  const TestJob job(2);
  TestJob other(2);
  const std::string nobody = other.coordinator();
  other.listener.reset();
  other.config.job_key = "wrong";
  other.config.timeout = 500ms;
  std::optional<Error> error;
  expect_no_errors(run_world_ranks(2, [&](int rank) {
    if (rank == 1) {
      try {
        World::join({1, 2, nobody + "," + job.coordinator(), -1, "test"}, other.config, {});
      } catch (const Error& e) {
        error = e;
      }
    }
    job.join(rank)->leave();
  }));
  expect_mention(error, ErrorCode::timeout, "another job listens at " + job.coordinator());
}

TEST(World, ADescriptorThatDoesNotListen) {
  TestJob job(2);
  const UniqueFd connected = connect_to(job.coordinator());
  const auto errors = run_world_ranks(1, [&](int) {
    World::join({0, 2, job.coordinator(), connected.get(), "test"}, job.config, {});
  });
  expect_mention(errors[0], ErrorCode::invalid_argument, "is not a listening socket");
}

TEST(World, AnInterfaceThatIsNotThere) {
  TestJob job(2);
  job.config.socket_ifname = "nosuch";
  const auto errors = run_world_ranks(1, [&](int) {
    World::join({1, 2, job.coordinator(), -1, "test"}, job.config, {});
  });
  expect_mention(errors[0], ErrorCode::invalid_argument, "ROPEWALK_SOCKET_IFNAME=\"nosuch\"");
}

/// Both ends of every (pair, stream) ask at about the same time; each must get one end of one and
/// the same connection.
TEST(World, SimultaneousSocketRequests) {
  constexpr int kSize = 4, kStreams = 6;
  const TestJob job(kSize);
  expect_no_errors(run_world_ranks(kSize, [&](int rank) {
    const auto world = job.join(rank);
    std::vector<std::pair<int, int>> wanted;
    for (int peer = 0; peer < kSize; ++peer)
      for (int stream = 0; peer != rank && stream < kStreams; ++stream)
        wanted.emplace_back(peer, stream);
    std::shuffle(wanted.begin(), wanted.end(), std::mt19937(static_cast<unsigned>(rank)));
    for (const auto& [peer, stream] : wanted) world->sockets().request(peer, stream);
    std::vector<std::pair<UniqueFd, std::array<int, 3>>> open;
    while (!wanted.empty() && world->monitor().failure() == nullptr) {
      pollfd p = {world->sockets().event_fd(), POLLIN, 0};
      poll(&p, 1, 100);
      std::erase_if(wanted, [&](const auto& link) {
        UniqueFd fd = world->sockets().take(link.first, link.second).fd;
        if (!fd) return false;
        const std::array<int, 3> mine = {rank, link.first, link.second};
        EXPECT_EQ(::send(fd.get(), &mine, sizeof mine, MSG_NOSIGNAL), ssize_t{sizeof mine});
        open.emplace_back(std::move(fd), std::array<int, 3>{link.first, rank, link.second});
        return true;
      });
    }
    const Failure* failure = world->monitor().failure();
    EXPECT_EQ(failure, nullptr) << failure->text();
    for (const auto& [fd, expected] : open) {
      std::array<int, 3> got = {};
      pollfd p = {fd.get(), POLLIN, 0};
      EXPECT_EQ(poll(&p, 1, 10'000), 1);
      EXPECT_EQ(::recv(fd.get(), &got, sizeof got, 0), ssize_t{sizeof got});
      EXPECT_EQ(got, expected);
    }
    world->leave();
  }));
}

/// A rank that computes reads nothing for long; what others send meanwhile fills its buffer.
TEST(World, ASocketThatIsNotReadStays) {
  constexpr int kBufferBytes = 4096;
  TestJob job(2);
  job.config.link_timeout = 100ms;
  std::atomic<int> sent{0};
  expect_no_errors(run_world_ranks(2, [&](int rank) {
    const auto world = job.join(rank);
    const UniqueFd fd = take_socket(*world, 1 - rank);
    const int option = rank == 0 ? SO_SNDBUF : SO_RCVBUF;
    setsockopt(fd.get(), SOL_SOCKET, option, &kBufferBytes, sizeof kBufferBytes);
    std::vector<char> bytes(kBufferBytes, 'x');
    if (rank == 0) {
      for (const auto end = std::chrono::steady_clock::now() + 1500ms;
           std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(10ms))
        if (const auto n = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); n > 0)
          sent += static_cast<int>(n);
      EXPECT_EQ(finish_connect(fd.get()), 0);
      ::shutdown(fd.get(), SHUT_WR);
      world->leave();
      return;
    }
    std::this_thread::sleep_for(1500ms);
    int got = 0;
    for (ssize_t n = 1; n > 0; got += static_cast<int>(n)) {
      pollfd p = {fd.get(), POLLIN, 0};
      ASSERT_EQ(poll(&p, 1, 10'000), 1);
      n = std::max<ssize_t>(::recv(fd.get(), bytes.data(), bytes.size(), 0), 0);
    }
    EXPECT_EQ(got, sent);
    world->leave();
  }));
}

TEST(World, AReportReachesEverybodyAndEndsALeave) {
  const TestJob job(11);
  expect_no_errors(run_world_ranks(11, [&](int rank) {
    const auto world = job.join(rank);
    if (rank == 10) {
      world->monitor().report({ErrorCode::mismatch, "all_reduce #3", "counts differ", "", -1, 4});
      world->monitor().report({ErrorCode::aborted, "later", "ignored", "", -1, -1});
    } else if (rank < 5) {
      world->leave();
    }
    const Failure* failure = await_failure(world->monitor());
    ASSERT_NE(failure, nullptr);
    EXPECT_EQ(failure->operation, "all_reduce #3");
    EXPECT_EQ(failure->rank, 10);
    EXPECT_EQ(failure->peer, 4);
    pollfd p = {world->monitor().event_fd(), POLLIN, 0};
    EXPECT_EQ(poll(&p, 1, 0), 1);
    world->leave();  // returns at once
  }));
}

/// The control thread, which had just told that the rank was in the job, could end without telling;
/// most of all where it was interrupted there, as other threads see to.
TEST(World, AReportRightBeforeGoingIsTold) {
  std::vector<std::jthread> busy;
  for (int i = 0; i < 6; ++i)
    busy.emplace_back([](const std::stop_token& stop) {
      while (!stop.stop_requested()) continue;
    });
  for (int round = 0; round < 100; ++round) {
    const TestJob job(2);
    expect_no_errors(run_world_ranks(2, [&](int rank) {
      const auto world = job.join(rank);
      if (rank == 1) world->monitor().report({ErrorCode::aborted, "abort", "why", "", 1, 1});
      if (rank == 1) return;
      const Failure* failure = await_failure(world->monitor());
      ASSERT_NE(failure, nullptr);
      EXPECT_EQ(failure->reason, "why");
    }));
    if (HasFailure()) break;
  }
}

/// Rank 1, an inner node of the tree, gives up waiting in leave() and goes while others work on.
TEST(World, GoingAfterLeaveIsNoFailure) {
  const TestJob job(11);
  std::atomic<bool> gone{false};
  expect_no_errors(run_world_ranks(11, [&](int rank) {
    TestJob mine(11);
    mine.config.timeout = rank == 1 ? 2s : 20s;
    auto world = World::join(job.identity(rank), mine.config, {});
    if (rank == 1) {
      world->leave();
      world.reset();
      gone = true;
      return;
    }
    while (!gone) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(world->monitor().failure(), nullptr);
    EXPECT_TRUE(world->monitor().has_left(1));
    const auto start = std::chrono::steady_clock::now();
    world->leave();
    EXPECT_EQ(world->monitor().failure(), nullptr);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 10s) << "waited for ranks out of reach";
  }));
}

}  // namespace
}  // namespace ropewalk::bootstrap
