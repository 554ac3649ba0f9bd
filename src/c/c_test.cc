// What sanitizers can see of the C interface: its table of handles, and memory that crosses. A job
// of one; tests/c has the rest.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "ropewalk/ropewalk.h"

namespace {

class CInterface : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(rw_comm_create(nullptr, &comm_), RW_OK) << rw_last_error(); }
  void TearDown() override { EXPECT_EQ(rw_comm_free(comm_), RW_OK) << rw_last_error(); }
  rw_call sum_of(float* values, size_t count) const {
    rw_call call{};
    call.size = sizeof call;
    call.type = RW_FLOAT32;
    call.in = call.out = values;
    call.count = count;
    return call;
  }

  rw_comm comm_ = nullptr;
};

void expect_refused(rw_status status, const std::string& text) {
  EXPECT_EQ(status, RW_INVALID_ARGUMENT);
  EXPECT_NE(std::string(rw_last_error()).find(text), std::string::npos) << rw_last_error();
}

TEST_F(CInterface, HandlesThatStandForNothingAreRefused) {
  float value = 1;
  const rw_call call = sum_of(&value, 1);
  rw_work work = nullptr;
  ASSERT_EQ(rw_start(comm_, &call, &work), RW_OK);
  expect_refused(rw_plan_run(reinterpret_cast<rw_plan>(work)),
                 "a rw_work is given where a rw_plan");
  expect_refused(rw_mem_free(&value), "is no memory");
  EXPECT_EQ(rw_work_wait(work, 0), RW_OK);
  EXPECT_EQ(rw_work_free(work), RW_OK);
  expect_refused(rw_work_wait(work, 0), "rw_work_wait: the rw_work was freed before");
  expect_refused(rw_work_free(work), "was freed before");
  expect_refused(rw_work_wait(nullptr, 0), "the rw_work is NULL");
  EXPECT_EQ(rw_work_free(nullptr), RW_OK);
}

TEST_F(CInterface, WhatWasMadeOfACommunicatorMayGoLater) {
  float value = 1;
  rw_comm comm = nullptr;
  rw_plan plan = nullptr;
  rw_sgd sgd = nullptr;
  void* memory = nullptr;
  int contributors = 0;
  const rw_call call = sum_of(&value, 1);
  const rw_tensor list{&value, 1};
  ASSERT_EQ(rw_comm_create(nullptr, &comm), RW_OK);
  ASSERT_EQ(rw_plan_create(comm, &call, &plan), RW_OK);
  ASSERT_EQ(rw_sgd_create(comm, RW_FLOAT32, &sgd), RW_OK);
  ASSERT_EQ(rw_sgd_sum_gradients(sgd, &list, 1, &contributors), RW_OK);
  ASSERT_EQ(rw_mem_alloc(comm, 100, &memory), RW_OK);
  ASSERT_EQ(rw_comm_free(comm), RW_OK);
  expect_refused(rw_plan_run(plan), "");
  expect_refused(rw_sgd_sum_gradients(sgd, &list, 1, &contributors), "");
  std::memset(memory, 1, 100);
  EXPECT_EQ(rw_plan_free(plan), RW_OK);
  EXPECT_EQ(rw_sgd_free(sgd), RW_OK);
  EXPECT_EQ(rw_mem_free(memory), RW_OK);
}

TEST_F(CInterface, CallsOfAnEarlierHeaderLieCloser) {
  constexpr size_t kSize = offsetof(rw_call, algorithm);
  std::array<float, 2> values{1, 2};
  std::vector<std::byte> calls(2 * kSize);  // nothing behind them
  for (size_t i = 0; i < 2; ++i) {
    rw_call call = sum_of(&values[i], 1);
    call.size = kSize;
    std::memcpy(calls.data() + i * kSize, &call, kSize);
  }
  rw_work work = nullptr;
  ASSERT_EQ(rw_start_group(comm_, reinterpret_cast<rw_call*>(calls.data()), 2, &work), RW_OK)
      << rw_last_error();
  EXPECT_EQ(rw_work_wait(work, 0), RW_OK);
  EXPECT_EQ(rw_work_free(work), RW_OK);
}

TEST_F(CInterface, ResultsAreWrittenAsFarAsTheyGo) {
  rw_failure failure{};
  failure.size = offsetof(rw_failure, peer);
  failure.peer = 7;
  EXPECT_EQ(rw_comm_failure(comm_, &failure), RW_OK);
  EXPECT_EQ(failure.rank, -1);
  EXPECT_EQ(failure.peer, 7);
  struct Later {
    rw_epoch known;
    uint64_t added;
  } later{};
  later.known.size = sizeof later;
  later.added = 7;
  expect_refused(rw_comm_departure(comm_, 0, nullptr), "departure is NULL");
  EXPECT_EQ(rw_comm_epoch(comm_, &later.known), RW_OK);
  EXPECT_EQ(later.known.ranks, 1);
  EXPECT_EQ(later.added, 0U);
}

TEST_F(CInterface, JoiningIsStopped) {
  rw_stop stop = nullptr;
  ASSERT_EQ(rw_stop_create(&stop), RW_OK);
  rw_options options{};
  options.size = sizeof options;
  options.ranks = 2;
  options.rank = 1;  // the other never comes
  options.coordinator = "127.0.0.1:9";
  options.join_timeout_ns = 100'000'000'000;
  options.stop = stop;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(rw_stop_request(stop), RW_OK);
  });
  rw_comm made = nullptr;
  EXPECT_EQ(rw_comm_create(&options, &made), RW_ABORTED);
  EXPECT_NE(std::string(rw_last_error()).find("stopped by its caller"), std::string::npos)
      << rw_last_error();
  EXPECT_EQ(made, nullptr);
  other.join();
  EXPECT_EQ(rw_stop_free(stop), RW_OK);
}

TEST_F(CInterface, ThreadsShareHandlesAndHaveTheirOwnErrors) {
  float value = 1;
  const rw_call call = sum_of(&value, 1);
  rw_work shared = nullptr;
  ASSERT_EQ(rw_start(comm_, &call, &shared), RW_OK);
  std::atomic<int> frees = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      EXPECT_STREQ(rw_last_error(), "");
      for (int k = 0; k < 200; ++k) {
        rw_rendezvous made = nullptr;
        int size = 0;
        EXPECT_EQ(rw_comm_size(comm_, &size), RW_OK);
        if (k % 50 == 0) {
          EXPECT_EQ(rw_rendezvous_create(nullptr, true, &made), RW_OK);
        }
        EXPECT_EQ(rw_rendezvous_free(made), RW_OK);
      }
      frees += rw_work_free(shared) == RW_OK ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(frees, 1);
}

}  // namespace
