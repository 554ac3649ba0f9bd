// Buffers, plans and works that outlived their communicator crashed when used or destroyed.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "tests/local_world.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

struct Handles {
  std::optional<Buffer<float>> buffer;
  std::optional<Plan> plan;
  std::optional<Work> ended, under_way;
};

template <class Call>
void expect_refused(const Call& call) {
  try {
    call();
    ADD_FAILURE() << "must throw after the communicator's end";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
  }
}

class HandlesOutliveTheirCommunicator : public ::testing::TestWithParam<std::string> {
 protected:
  void outlive(const std::function<void(Handles&)>& afterwards) {
    run_ranks(2, GetParam(), [&](Communicator& whole) {
      Handles handles;
      std::vector<float> plain(50'000, 1.0f), more(50'000, 1.0f);
      {
        const auto comm = whole.split(0);
        handles.buffer.emplace(comm->allocate<float>(50'000));
        std::ranges::fill(*handles.buffer, 1.0f);
        handles.plan.emplace(comm->plan(Call::all_reduce(*handles.buffer)));
        handles.plan->run();
        handles.ended.emplace(comm->start(Call::all_reduce(plain)));
        while (!handles.ended->test()) continue;
        handles.under_way.emplace(comm->start(Call::all_reduce(more)));
      }
      EXPECT_EQ((*handles.buffer)[49'999], 2);
      (*handles.buffer)[0] = 3;
      EXPECT_EQ(more[49'999], 2);  // leaving waited for the others, who had started it, too
      afterwards(handles);
    });
  }
};

TEST_P(HandlesOutliveTheirCommunicator, AndRefuseToRun) {
  outlive([](Handles& handles) {
    expect_refused([&] { handles.plan->run(); });
    expect_refused([&] { handles.plan->start(); });
    handles.ended->wait();
  });
}

TEST_P(HandlesOutliveTheirCommunicator, InAnyOrder) {
  std::array<int, 4> order = {0, 1, 2, 3};
  do {
    outlive([&](Handles& handles) {
      for (int which : order) {
        if (which == 0) handles.buffer.reset();
        if (which == 1) handles.plan.reset();
        if (which == 2) handles.ended.reset();
        if (which == 3) handles.under_way.reset();
      }
    });
  } while (std::ranges::next_permutation(order).found);
}

/// Of messages that nobody sends, on one rank, or on both, which give up at the same time.
TEST_P(HandlesOutliveTheirCommunicator, ThoughTheyNeverEnd) {
  for (int waiting : {1, 2})
    run_ranks(
        2, GetParam(),
        [waiting](Communicator& whole) {
          std::vector<float> data(4);
          std::vector<Work> works;
          {
            const auto comm = whole.split(0);
            for (int channel : {0, 0, 1, 1}) {
              Call call = Call::recv(data, 1 - comm->rank());
              call.channel = channel;
              if (comm->rank() < waiting) works.push_back(comm->start(call));
            }
          }
          if (works.empty()) return;
          try {
            works[1].wait();
            ADD_FAILURE() << "it cannot have ended";
          } catch (const Error& error) {
            const std::string text = error.what();
            const bool tells = error.code() == ErrorCode::timeout || text.find("left") != text.npos;
            EXPECT_TRUE(tells) << text;
          }
        },
        [](int, Options& options) { options.timeout = std::chrono::seconds(1); });
}

INSTANTIATE_TEST_SUITE_P(Transports, HandlesOutliveTheirCommunicator,
                         ::testing::ValuesIn(transports_under_test()));

}  // namespace
}  // namespace ropewalk::testing
