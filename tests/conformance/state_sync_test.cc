// Ranks that lack the state, and get it from those who have it, over every transport.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/local_world.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

using namespace std::chrono_literals;

/// Long ones, which are cut, and short ones, which are packed; all of them made of a seed.
class State {
 public:
  explicit State(uint32_t seed, size_t long_bytes = 9'000'001) {
    for (const size_t size : {size_t{17}, size_t{0}, long_bytes, size_t{1000}, size_t{700'000}}) {
      auto& buffer = buffers_.emplace_back(size);
      for (size_t i = 0; i < std::min(size, kTile); ++i)
        buffer[i] = static_cast<uint8_t>((i * 2654435761u + seed * 40503u) >> 11);
      for (size_t i = kTile; i < size; i += kTile)
        std::copy_n(buffer.begin(), std::min(kTile, size - i),
                    buffer.begin() + static_cast<ptrdiff_t>(i));
    }
  }

  std::vector<NamedBuffer> named() {
    std::vector<NamedBuffer> named;
    for (auto& buffer : buffers_)
      named.emplace_back("buffer " + std::to_string(named.size()), buffer);
    return named;
  }
  std::vector<uint8_t>& operator[](size_t i) { return buffers_[i]; }
  void spoil() {
    for (auto& buffer : buffers_) std::ranges::fill(buffer, uint8_t{0xEE});
  }
  size_t bytes() const {
    size_t bytes = 0;
    for (const auto& buffer : buffers_) bytes += buffer.size();
    return bytes;
  }
  bool operator==(const State&) const = default;

 private:
  static constexpr size_t kTile = 4093;  // a part that comes to another place is noticed

  std::vector<std::vector<uint8_t>> buffers_;
};

/// The one and the other way.
StateReport synchronize(Communicator& comm, State& state, uint64_t revision, StateSource source,
                        bool blocks) {
  if (blocks) return comm.sync_state(state.named(), revision, source);
  StateSync sync = comm.start_sync_state(state.named(), revision, source);
  while (!sync.done()) std::this_thread::sleep_for(1ms);
  return sync.wait();
}

/// The same text on all ranks.
void expect_mismatch(Communicator& comm, const std::function<void()>& call,
                     const std::string& told) {
  try {
    call();
    ADD_FAILURE() << "rank " << comm.rank() << " does not mind";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_NE(std::string(error.what()).find(told), std::string::npos) << error.what();
  }
  expect_sum_of_ranks(comm, 100);  // nothing is broken
}

class StateSyncOver : public ::testing::TestWithParam<std::string> {
 protected:
  struct Rank {
    uint64_t revision;
    uint32_t seed;
  };
  /// Both ways: all have what the seed `wanted` gives then.
  static void expect_all_get(const std::vector<Rank>& ranks, StateSource source, Rank wanted,
                             const std::vector<int>& sources) {
    run_ranks(static_cast<int>(ranks.size()), GetParam(), [&](Communicator& comm) {
      for (const bool blocks : {true, false}) {
        const Rank own = ranks[static_cast<size_t>(comm.rank())];
        State state(own.seed);
        const StateReport report = synchronize(comm, state, own.revision, source, blocks);
        EXPECT_EQ(state, State(wanted.seed)) << "rank " << comm.rank();
        EXPECT_EQ(report.revision, wanted.revision);
        EXPECT_EQ(report.sources, sources);
        EXPECT_EQ(report.hash.size(), 32u);
        const bool lacked = std::ranges::count(sources, comm.rank()) == 0;
        EXPECT_EQ(report.changed.size(), lacked ? 4u : 0u);  // one is empty
        EXPECT_EQ(report.bytes_received, lacked ? state.bytes() : 0);
        EXPECT_EQ(report.bytes_sent > 0, !lacked);
      }
    });
  }
};

TEST_P(StateSyncOver, TheNewestGoesToAllOthersFromAllWhoHaveIt) {
  expect_all_get({{0, 1}, {7, 2}, {7, 2}, {3, 3}, {0, 1}}, StateSource::newest(), {7, 2}, {1, 2});
}

TEST_P(StateSyncOver, WhatMostHaveGoesToTheOthers) {
  expect_all_get({{9, 1}, {7, 2}, {7, 2}, {3, 3}}, StateSource::majority(), {7, 2}, {1, 2});
}

TEST_P(StateSyncOver, WhatARankHasGoesToTheOthers) {
  expect_all_get({{9, 1}, {3, 3}, {7, 2}}, StateSource::from(1), {3, 3}, {1});
}

TEST_P(StateSyncOver, NobodySendsWhatIsThereAlready) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    State state(5);
    const StateReport equal = synchronize(comm, state, 1, StateSource::newest(), false);
    EXPECT_EQ(equal.sources, (std::vector{0, 1, 2}));
    EXPECT_EQ(equal.bytes_sent + equal.bytes_received + equal.changed.size(), 0u);
    if (comm.rank() == 1) state[2].back() ^= 1;
    if (comm.rank() == 1) state[3][0] ^= 1;
    const StateReport report =
        synchronize(comm, state, comm.rank() == 1 ? 1 : 2, StateSource::newest(), false);
    EXPECT_EQ(state, State(5));
    if (comm.rank() != 1) return;
    EXPECT_EQ(report.changed, (std::vector<std::string>{"buffer 2", "buffer 3"}));
    EXPECT_EQ(report.bytes_received, state[2].size() + state[3].size());
  });
}

TEST_P(StateSyncOver, SourcesMayChangeTheirBuffersAtOnceAndGoOn) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    for (uint32_t round = 1; round < 4; ++round) {
      const bool has_state = comm.rank() < 2;
      State state(has_state ? round : 0);
      StateSync sync = comm.start_sync_state(state.named(), has_state ? round : 0);
      if (has_state) state.spoil();
      for (int step = 0; step < 20; ++step) expect_sum_of_ranks(comm, 10'000);
      EXPECT_EQ(sync.wait().revision, round);
      EXPECT_EQ(sync.wait().changed.size(), has_state ? 0u : 4u);  // again
      if (!has_state) {
        EXPECT_EQ(state, State(round));
      }
    }
  });
}

TEST_P(StateSyncOver, OtherNamesSizesAndSourcesAreNamed) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    const bool differs = comm.rank() == 2;
    State state(1);
    auto named = state.named();
    if (differs) named[3] = NamedBuffer("other", named[3].bytes);
    expect_mismatch(
        comm, [&] { comm.sync_state(named, 0); },
        "buffer 3 of rank 2 is \"other\" of 1000 bytes, of rank 0 \"buffer 3\" of 1000 bytes");
    named = state.named();
    if (differs) named[2].bytes = named[2].bytes.first(5);
    expect_mismatch(
        comm, [&] { comm.start_sync_state(named, 0); },
        "buffer 2 of rank 2 is \"buffer 2\" of 5 bytes, of rank 0 \"buffer 2\" of 9000001 bytes");
    named = state.named();
    if (differs) named.pop_back();
    expect_mismatch(
        comm, [&] { comm.sync_state(named, 0); },
        "buffer 4 of rank 2 is not there, of rank 0 \"buffer 4\" of 700000 bytes");
    expect_mismatch(
        comm,
        [&] {
          comm.sync_state(state.named(), 0, differs ? StateSource::from(1) : StateSource::newest());
        },
        "rank 2 asks for the state \"from rank 1\", rank 0 for \"newest\"");
  });
}

TEST_P(StateSyncOver, TwoStatesOfOneRevisionAreAnErrorThatNamesTheRanks) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    State state(1);
    if (comm.rank() == 2) state[3][5] ^= 1;
    expect_mismatch(
        comm, [&] { comm.sync_state(state.named(), comm.rank() == 1 ? 4 : 9); },
        "ranks 0 and 2 both have revision 9, but not the same \"buffer 3\"");
    EXPECT_THROW(comm.sync_state(state.named(), 0, StateSource::from(3)), Error);
    EXPECT_EQ(comm.sync_state(state.named(), 9, StateSource::majority()).sources,
              (std::vector{0, 1}));
    EXPECT_EQ(state, State(1));
  });
}

/// The part in which it went is broken then, on all ranks.
TEST_P(StateSyncOver, ATimeoutBreaksNothingElse) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    const bool has_state = comm.rank() == 0;
    State state(has_state ? 1 : 0, 40'000'000);
    try {
      StateSync sync = comm.start_sync_state(state.named(), has_state ? 1 : 0);
      sync.wait(comm.rank() == 2 ? 0ns : 30s);
      EXPECT_NE(comm.rank(), 2);  // others may be done before they hear of that
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
    }
    expect_sum_of_ranks(comm, 100);
    comm.sync_state(state.named(), has_state ? 1 : 0);
    EXPECT_EQ(state, State(1, 40'000'000));
  });
}

TEST_P(StateSyncOver, ItMayOutliveItsCommunicator) {
  std::array<std::optional<StateSync>, 2> syncs;
  std::array<State, 2> states{State(1), State(0)};
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    const auto own = static_cast<size_t>(comm.rank());
    syncs[own] = comm.start_sync_state(states[own].named(), 1 - own);
    if (own == 1) syncs[own]->wait();
  });
  EXPECT_EQ(states[1], states[0]);
  for (auto& sync : syncs) EXPECT_EQ(sync->wait().revision, 1u);
}

TEST_P(StateSyncOver, PartsHaveTheirOwn) {
  run_ranks(5, GetParam(), [](Communicator& comm) {
    const uint32_t color = static_cast<uint32_t>(comm.rank()) % 2;
    const auto part = comm.split(static_cast<int>(color));
    State state(part->rank() == 0 ? color + 1 : 0);
    part->sync_state(state.named(), part->rank() == 0 ? 1 : 0);
    EXPECT_EQ(state, State(color + 1));
  });
}

TEST_P(StateSyncOver, AJobOfOneHasItsState) {
  run_ranks(1, GetParam(), [](Communicator& comm) {
    State state(1);
    EXPECT_EQ(synchronize(comm, state, 3, StateSource::majority(), false).revision, 3u);
    EXPECT_EQ(comm.sync_state({}, 4).revision, 4u);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, StateSyncOver, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ropewalk::testing
