// The span forms of gather, reduce and scatter did not look at the root's span: a million elements
// were written into one of five. Every form refuses spans of another length, before anything moves.
#include <gtest/gtest.h>

#include <array>

#include "tests/local_world.h"

namespace ropewalk::testing {
namespace {

using Floats = std::vector<float>;

/// Runs `call` on both ranks and expects rank 0's to be refused; then the others' wait is over,
/// too, since rank 0 calls again with enough room.
void expect_refused(const std::function<void(Communicator&, Floats& in, Floats& out)>& call,
                    size_t in, size_t out, size_t short_in, size_t short_out) {
  run_ranks(2, "shm", [&](Communicator& comm) {
    Floats enough_in(in, 1.0f), enough_out(out);
    if (comm.rank() == 0) {
      Floats less_in(short_in, 1.0f), less_out(short_out);
      try {
        call(comm, less_in, less_out);
        ADD_FAILURE() << "was not refused";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
        EXPECT_NE(std::string(error.what()).find("elements where"), std::string::npos)
            << error.what();
      }
    }
    call(comm, enough_in, enough_out);
  });
}

constexpr size_t kMany = 1 << 20;

TEST(BufferTooShortOnTheRoot, Gather) {
  expect_refused([](Communicator& comm, Floats& in, Floats& out) { comm.gather(in, out); }, kMany,
                 2 * kMany, kMany, 5);
}

TEST(BufferTooShortOnTheRoot, Reduce) {
  expect_refused([](Communicator& comm, Floats& in, Floats& out) { comm.reduce(in, out); }, kMany,
                 kMany, kMany, 5);
}

TEST(BufferTooShortOnTheRoot, Scatter) {
  expect_refused([](Communicator& comm, Floats& in, Floats& out) { comm.scatter(in, out); },
                 2 * kMany, kMany, 5, kMany);
}

TEST(BufferTooShort, OfEveryOtherForm) {
  using Form = std::function<void(Communicator&, Floats&, Floats&)>;
  const Form all_reduce = [](auto& comm, auto& in, auto& out) { comm.all_reduce(in, out); };
  const Form all_gather = [](auto& comm, auto& in, auto& out) { comm.all_gather(in, out); };
  const Form reduce_scatter = [](auto& comm, auto& in, auto& out) { comm.reduce_scatter(in, out); };
  const Form all_to_all = [](auto& comm, auto& in, auto& out) { comm.all_to_all(in, out); };
  expect_refused(all_reduce, 8, 8, 8, 7);
  expect_refused(all_reduce, 8, 8, 8, 9);
  expect_refused(all_gather, 8, 16, 8, 15);
  expect_refused(reduce_scatter, 16, 8, 15, 8);
  expect_refused(all_to_all, 8, 8, 8, 6);
  const std::vector<size_t> counts = {3, 5};
  const auto with = [](auto make) -> Form {
    return [make](Communicator& comm, Floats& in, Floats& out) { comm.run(make(comm, in, out)); };
  };
  const auto own = [counts](auto& comm) { return counts[static_cast<size_t>(comm.rank())]; };
  expect_refused(with([=](auto& comm, auto& in, auto& out) {
                   return Call::all_gather_v(std::span(in).first(std::min(in.size(), own(comm))),
                                             out, counts);
                 }),
                 5, 8, 5, 7);
  expect_refused(with([=](auto& comm, auto& in, auto& out) {
                   return Call::gather_v(std::span(in).first(own(comm)), out, counts);
                 }),
                 5, 8, 5, 7);
  expect_refused(with([=](auto& comm, auto& in, auto& out) {
                   return Call::scatter_v(in, std::span(out).first(own(comm)), counts);
                 }),
                 8, 5, 7, 5);
  expect_refused(with([=](auto& comm, auto& in, auto& out) {
                   return Call::reduce_scatter_v(in, std::span(out).first(own(comm)), counts);
                 }),
                 8, 5, 7, 5);
  expect_refused(with([=](auto&, auto& in, auto& out) {
                   return Call::all_to_all_v(in, {2, 2}, out, {2, 2});
                 }),
                 4, 4, 4, 3);
}

/// What others than the root give is not looked at.
TEST(BufferTooShort, IsNoMatterWhereNothingIsWritten) {
  run_ranks(2, "shm", [](Communicator& comm) {
    Floats in(4, 1.0f), out(comm.rank() == 1 ? 8 : 0);
    comm.gather(in, out, 1);
    Floats sum(comm.rank() == 1 ? 4 : 1000);
    comm.reduce(in, sum, 1);
    if (comm.rank() == 1) {
      EXPECT_EQ(sum, Floats(4, 2.0f));
    }
  });
}

TEST(Allocate, OfMoreElementsThanAnAddressSpaceHolds) {
  run_ranks(1, "shm", [](Communicator& comm) {
    try {
      (void)comm.allocate<double>(std::numeric_limits<size_t>::max() / 4);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    }
  });
}

}  // namespace
}  // namespace ropewalk::testing
