// What ends a process that waits to join, with threads as ranks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "ropewalk/rendezvous.h"
#include "tests/faults/growing.h"
#include "tests/local_world.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

using namespace std::chrono_literals;

class JoinGrowing : public Growing {};

/// That `make` fails so, and says what it waited for.
void expect_end(ErrorCode code, const std::string& what, const std::function<void()>& make) {
  try {
    make();
    ADD_FAILURE() << "it has joined";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
  }
}

// It waited until the job ended.
TEST_P(JoinGrowing, ANewcomerWaitsNoLongerThanItsDeadline) {
  Options options = newcomers_options();
  options.admission_timeout = 300ms;
  run_members(2, [&](Communicator& comm) {
    if (comm.rank() == 0)
      expect_end(ErrorCode::timeout, address_ + " to call grow",
                 [&] { Communicator::create(options); });
    comm.barrier();
  });
}

TEST_P(JoinGrowing, ANewcomerIsStoppedByAnotherThread) {
  std::stop_source stop;
  Options options = newcomers_options();
  options.stop = stop.get_token();
  run_members(2, [&](Communicator& comm) {
    if (comm.rank() == 0) {
      auto newcomer = std::async(std::launch::async, [&] { Communicator::create(options); });
      while (comm.pending() == 0) std::this_thread::sleep_for(1ms);
      stop.request_stop();
      expect_end(ErrorCode::aborted, address_ + " to call grow", [&] { newcomer.get(); });
      while (comm.pending() != 0) std::this_thread::sleep_for(1ms);
    }
    comm.barrier();
  });
}

TEST(JoinRunning, WhoLooksForAJobIsStoppedByAnotherThread) {
  std::string address;
  ::close(listen_on_loopback(address));
  std::stop_source stop;
  Options options;
  options.coordinator = address;
  options.join_running = true;
  options.join_timeout = 100s;
  options.stop = stop.get_token();
  auto newcomer = std::async(std::launch::async, [&] { Communicator::create(options); });
  EXPECT_EQ(newcomer.wait_for(50ms), std::future_status::timeout);
  stop.request_stop();
  expect_end(ErrorCode::aborted, "to listen at " + address, [&] { newcomer.get(); });
}

TEST(JoinRunning, ARankThatIsStoppedAsItJoinsTellsTheOthers) {
  Options options;
  const int listener = listen_on_loopback(options.coordinator.emplace());
  options.size = 3;  // the third never comes
  options.join_timeout = 100s;
  std::stop_source stop;
  const auto join = [&](int rank) {
    Options own = options;
    own.rank = rank;
    if (rank == 0) own.coordinator_fd = listener;
    if (rank == 1) own.stop = stop.get_token();
    Communicator::create(own);
  };
  auto first = std::async(std::launch::async, join, 0);
  auto second = std::async(std::launch::async, join, 1);
  EXPECT_EQ(second.wait_for(2s), std::future_status::timeout);  // by then rank 0 knows it
  stop.request_stop();
  for (auto* one : {&first, &second})
    expect_end(ErrorCode::aborted, "rank 1 was stopped by its caller", [&] { one->get(); });
  ::close(listener);
}

// Such a job ran, and listened for newcomers where nobody could know.
TEST(JoinRunning, AnElasticJobNeedsACoordinatorThatOthersCanKnow) {
  Options options;
  options.elastic = true;
  expect_end(ErrorCode::invalid_argument, "ROPEWALK_COORDINATOR",
             [&] { Communicator::create(options); });
  const Rendezvous rendezvous({}, true);
  expect_end(ErrorCode::invalid_argument, "ROPEWALK_COORDINATOR",
             [&] { (void)rendezvous.options(0, 2, options); });
  expect_end(ErrorCode::invalid_argument, "ROPEWALK_COORDINATOR",
             [&] { (void)Rendezvous::options(rendezvous.unique_id(), 1, 2, options); });
}

INSTANTIATE_TEST_SUITE_P(Transports, JoinGrowing, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ropewalk::testing
