// The typed calls: now, started and planned, on every kind of range; and what refuses them.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/local_world.h"

namespace ropewalk::testing {
namespace {

using Floats = std::vector<float>;

/// Runs what `make` gives on 2 ranks in each of the ways in which a call can be run.
void in_every_way(const std::function<Call(Communicator&)>& make,
                  const std::function<void(Communicator&)>& prepare,
                  const std::function<void(Communicator&)>& check) {
  run_ranks(2, "shm", [&](Communicator& comm) {
    prepare(comm);
    comm.run(make(comm));
    check(comm);
    prepare(comm);
    comm.start(make(comm)).wait();
    check(comm);
    Plan plan = comm.plan(make(comm));
    for (int run = 0; run < 2; ++run) {
      prepare(comm);
      plan.run();
      check(comm);
    }
    prepare(comm);
    const Call calls[] = {make(comm)};
    comm.start_group(calls).wait();
    check(comm);
  });
}

/// Each rank's own vectors, by rank: the ranks are threads.
struct Vectors {
  std::array<Floats, 2> in, out;
  Floats& of(std::array<Floats, 2>& which, Communicator& comm) {
    return which[static_cast<size_t>(comm.rank())];
  }
};

/// `in` of rank r holds r + 1, r + 2, ...
void expect_each(const std::function<Call(Communicator&, Floats& in, Floats& out)>& make,
                 std::array<size_t, 2> in, std::array<Floats, 2> want) {
  Vectors v;
  in_every_way([&](Communicator& comm) { return make(comm, v.of(v.in, comm), v.of(v.out, comm)); },
               [&](Communicator& comm) {
                 const auto rank = static_cast<size_t>(comm.rank());
                 // In place, so that a prepared call keeps its addresses.
                 v.in[rank].resize(in[rank]);
                 for (size_t i = 0; i < in[rank]; ++i)
                   v.in[rank][i] = static_cast<float>(rank + 1 + i);
                 v.out[rank].resize(want[rank].size());
                 std::ranges::fill(v.out[rank], 0.0f);
               },
               [&](Communicator& comm) {
                 EXPECT_EQ(v.of(v.out, comm), want[static_cast<size_t>(comm.rank())]);
               });
}

TEST(Calls, OfEveryCollective) {
  expect_each([](auto&, auto& in, auto& out) { return Call::all_reduce(in, out); }, {2, 2},
              {Floats{3, 5}, Floats{3, 5}});
  expect_each([](auto&, auto& in, auto& out) { return Call::all_reduce(in, out, kMax); }, {2, 2},
              {Floats{2, 3}, Floats{2, 3}});
  expect_each([](auto&, auto& in, auto& out) { return Call::reduce_scatter(in, out); }, {2, 2},
              {Floats{3}, Floats{5}});
  expect_each(
      [](auto&, auto& in, auto& out) {
        return Call::reduce_scatter_v(in, out, {1, 2});
      },
      {3, 3}, {Floats{3}, Floats{5, 7}});
  expect_each([](auto&, auto& in, auto& out) { return Call::all_gather(in, out); }, {1, 1},
              {Floats{1, 2}, Floats{1, 2}});
  expect_each(
      [](auto&, auto& in, auto& out) {
        return Call::all_gather_v(in, out, {1, 2});
      },
      {1, 2}, {Floats{1, 2, 3}, Floats{1, 2, 3}});
  expect_each([](auto&, auto& in, auto& out) { return Call::reduce(in, out, 1); }, {2, 2},
              {Floats{}, Floats{3, 5}});
  expect_each([](auto&, auto& in, auto& out) { return Call::gather(in, out, 1); }, {1, 1},
              {Floats{}, Floats{1, 2}});
  expect_each(
      [](auto&, auto& in, auto& out) {
        return Call::gather_v(in, out, {2, 1}, 0);
      },
      {2, 1}, {Floats{1, 2, 2}, Floats{}});
  expect_each([](auto&, auto& in, auto& out) { return Call::scatter(in, out, 1); }, {0, 4},
              {Floats{2, 3}, Floats{4, 5}});
  expect_each(
      [](auto&, auto& in, auto& out) {
        return Call::scatter_v(in, out, {1, 2}, 0);
      },
      {3, 0}, {Floats{1}, Floats{2, 3}});
  expect_each(
      [](auto& comm, auto& in, auto& out) { return Call::all_to_all(in, out, comm.size()); },
      {2, 2}, {Floats{1, 2}, Floats{2, 3}});
  expect_each(
      [](auto& comm, auto& in, auto& out) {
        return comm.rank() == 0 ? Call::all_to_all_v(in, {0, 2}, out, {0, 1})
                                : Call::all_to_all_v(in, {1, 0}, out, {2, 0});
      },
      {2, 1}, {Floats{2}, Floats{1, 2}});
  expect_each([](auto& comm, auto& in,
                 auto& out) { return comm.rank() == 0 ? Call::send(in, 1) : Call::recv(out, 0); },
              {2, 0}, {Floats{}, Floats{1, 2}});
}

TEST(Calls, InPlace) {
  std::array<Floats, 2> data;
  const auto own = [&](Communicator& comm) -> Floats& {
    return data[static_cast<size_t>(comm.rank())];
  };
  const auto prepare = [&](Communicator& comm) {
    own(comm).resize(1);
    own(comm)[0] = static_cast<float>(comm.rank() + 1);
  };
  in_every_way([&](Communicator& comm) { return Call::all_reduce(own(comm)); }, prepare,
               [&](Communicator& comm) { EXPECT_EQ(own(comm), Floats{3}); });
  in_every_way([&](Communicator& comm) { return Call::broadcast(own(comm), 1); }, prepare,
               [&](Communicator& comm) { EXPECT_EQ(own(comm), Floats{2}); });
}

TEST(Calls, OnEveryKindOfRange) {
  run_ranks(2, "shm", [](Communicator& comm) {
    Buffer<float> buffer = comm.allocate<float>(2);
    std::array<float, 2> array{1, 1};
    float plain[2] = {1, 1};
    const std::vector<float> in{1, 1};
    std::vector<float> out(2);
    buffer[0] = buffer[1] = 1;
    comm.all_reduce(buffer);
    comm.all_reduce(array);
    comm.all_reduce(plain);
    comm.all_reduce(std::span(out));
    comm.all_reduce(in, out);
    comm.all_reduce(out, buffer, kMax);
    EXPECT_EQ(buffer[1], 2);
    EXPECT_EQ(array[1], 2);
    EXPECT_EQ(plain[1], 2);
    EXPECT_EQ(out[1], 2);
    std::vector<float> all(4);
    comm.all_gather(in, all);
    comm.reduce_scatter(all, array);
    comm.broadcast(buffer, 1);
    comm.all_to_all(array, plain);
    std::vector<bfloat16> halves(2, to_bfloat16(1.5f));
    comm.all_reduce(halves);
    EXPECT_EQ(to_float(halves[1]), 3.0f);
  });
}

TEST(Calls, HalvesConvert) {
  EXPECT_EQ(to_float(to_float16(0.5f)), 0.5f);
  EXPECT_EQ(to_float(to_bfloat16(-2.0f)), -2.0f);
  EXPECT_TRUE(std::isinf(to_float(to_float16(1e6f))));
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::nanf("")))));
}

TEST(Calls, OfNoneInAGroup) {
  run_ranks(2, "shm", [](Communicator& comm) {
    Work work = comm.start_group({});
    EXPECT_TRUE(work.test());
    work.wait();
    comm.start_group({});  // not waited for
    comm.barrier();
  });
}

std::string refusal(const std::function<void(Communicator&)>& call) {
  std::string text = "was not refused";
  run_ranks(2, "shm", [&](Communicator& comm) {
    try {
      call(comm);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      if (comm.rank() == 0) text = error.what();
    }
    comm.barrier();
  });
  return text;
}

TEST(Calls, RefusedSayWhatIsWrong) {
  std::vector<float> five(5), other(5);
  EXPECT_NE(refusal([&](auto& comm) {
              comm.all_to_all(five, other);
            }).find("the input has 5 elements, of which 2 ranks cannot get equal parts"),
            std::string::npos);
  EXPECT_NE(refusal([&](auto& comm) {
              comm.run(Call::all_to_all(five, other, 0));
            }).find("less than one rank"),
            std::string::npos);
  EXPECT_NE(refusal([&](auto& comm) {
              comm.all_reduce(five, {ReduceKind::user});
            }).find("user-defined reduction is null"),
            std::string::npos);
  EXPECT_NE(refusal([&](auto& comm) {
              comm.reduce_scatter(five, other);
            }).find("the input has 5 elements where 10 are needed"),
            std::string::npos);
  EXPECT_NE(refusal([&](auto& comm) {
              Call call;
              call.collective = Collective::barrier;
              call.count = 5;
              comm.run(call);
            }).find("it has no data; leave the count at 0"),
            std::string::npos);
}

}  // namespace
}  // namespace ropewalk::testing
