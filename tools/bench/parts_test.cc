// The benchmark's shapes, data and report, against a plain simulation of every collective.
#include <gmock/gmock.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "reduce/reduce.h"
#include "ropewalk/status.h"
#include "tools/bench/data.h"
#include "tools/bench/memory.h"
#include "tools/bench/options.h"
#include "tools/bench/report.h"

namespace ropewalk::tools {
namespace {

using testing::ElementsAre;

TEST(Sizes, ListsAndSweeps) {
  EXPECT_THAT(parse_size_list("8,64K,1M"), ElementsAre(8, 65536, 1048576));
  EXPECT_THAT(parse_size_list("8:64"), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(parse_size_list("3:8,1G"), ElementsAre(3, 6, 1 << 30));
  for (const char* text : {"", "0", "x", "8,", "64:8", "8:", ":8", "1:2:3", "-1", "99999999G"}) {
    EXPECT_THROW(parse_size_list(text), Error) << text;
  }
}

TEST(Options, ContradictionsAreRefused) {
  BenchOptions options;
  options.sizes = {8};
  check(options);
  options.kind = {Collective::all_to_all};
  EXPECT_THROW(check(options), Error);  // in place
  options.kind = {Collective::all_reduce};
  options.op = ReduceKind::scaled_sum;
  options.type = DataType::int32;
  EXPECT_THROW(check(options), Error);
  options.op = ReduceKind::user;
  EXPECT_THROW(check(options), Error);
  options.op = ReduceKind::sum;
  options.ranks = 2;
  options.root = 2;
  EXPECT_THROW(check(options), Error);
}

TEST(Shape, BytesAndFactorsAreThoseOfNcclTests) {
  const auto shape = [](Collective collective, size_t bytes, int ranks) {
    return bench_shape({collective}, bytes, DataType::float32, 1, ranks, 0, false);
  };
  EXPECT_EQ(shape(Collective::all_reduce, 1024, 4).count, 256U);
  EXPECT_DOUBLE_EQ(shape(Collective::all_reduce, 1024, 4).bus_factor, 1.5);
  EXPECT_EQ(shape(Collective::all_gather, 1024, 4).count, 64U);
  EXPECT_DOUBLE_EQ(shape(Collective::all_gather, 1024, 4).bus_factor, 0.75);
  EXPECT_DOUBLE_EQ(shape(Collective::broadcast, 1024, 4).bus_factor, 1);
  EXPECT_EQ(shape(Collective::reduce_scatter, 8, 4).bytes, 16U);  // one element a rank at least
}

// What each rank has in its buffers, in and out of place.
struct World {
  World(BenchKind kind, DataType type, ReduceKind op, int ranks, int root, bool in_place)
      : data(kind, type, op, ranks, root) {
    for (int rank = 0; rank < ranks; ++rank) {
      shapes.push_back(bench_shape(kind, 3000 * size_of(type), type, rank, ranks, root, in_place));
      const size_t bytes = shapes.back().buffer_count * size_of(type);
      in.emplace_back(bytes);
      data.fill(in.back().data() + shapes.back().in_offset * size_of(type), shapes.back().in_count,
                rank);
      out.push_back(in_place ? in.back() : std::vector<std::byte>(bytes));
    }
  }
  const std::byte* in_of(int rank, size_t element, DataType type) const {
    return in[static_cast<size_t>(rank)].data() +
           (shapes[static_cast<size_t>(rank)].in_offset + element) * size_of(type);
  }
  BenchData data;
  std::vector<BenchShape> shapes;
  std::vector<std::vector<std::byte>> in, out;
};

// The sum (or product, ...) of all inputs, in rank order, by the real kernels.
std::vector<std::byte> reduced(const World& world, DataType type, ReduceKind kind, int ranks) {
  const size_t count = world.shapes[0].in_count;
  std::vector<std::vector<std::byte>> inputs;
  std::vector<const std::byte*> sources;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::byte* from = world.in_of(rank, 0, type);
    inputs.emplace_back(from, from + count * size_of(type));
    if (kind == ReduceKind::scaled_sum) {
      scale(inputs.back().data(), inputs.back().data(), count, type,
            BenchData::scale_of(kind, rank));
    }
  }
  for (const auto& input : inputs) sources.push_back(input.data());
  std::vector<std::byte> result(count * size_of(type));
  std::byte* destinations[] = {result.data()};
  reduce(destinations, sources, count, type, ReduceOp{kind});
  if (kind == ReduceKind::avg) divide(result.data(), count, type, ranks);
  return result;
}

void simulate(World& world, BenchKind kind, DataType type, ReduceKind op, int ranks, int root) {
  const size_t size = size_of(type);
  const std::vector<std::byte> sum =
      kind.reduces() ? reduced(world, type, op, ranks) : std::vector<std::byte>();
  for (int rank = 0; rank < ranks; ++rank) {
    const BenchShape& shape = world.shapes[static_cast<size_t>(rank)];
    std::byte* out = world.out[static_cast<size_t>(rank)].data() + shape.out_offset * size;
    const size_t own = static_cast<size_t>(rank) * shape.count;
    for (size_t i = 0; i < shape.out_count; ++i, out += size) {
      const auto part = static_cast<int>(i / shape.count);
      switch (kind.collective) {
        case Collective::all_reduce:
        case Collective::reduce:
          memcpy(out, &sum[i * size], size);
          break;
        case Collective::reduce_scatter:
          memcpy(out, &sum[(own + i) * size], size);
          break;
        case Collective::all_gather:
        case Collective::gather:
          memcpy(out, world.in_of(part, i % shape.count, type), size);
          break;
        case Collective::broadcast:
          memcpy(out, world.in_of(root, i, type), size);
          break;
        case Collective::scatter:
          memcpy(out, world.in_of(root, own + i, type), size);
          break;
        case Collective::all_to_all:
          memcpy(out, world.in_of(part, own + i % shape.count, type), size);
          break;
        default:
          memcpy(out, world.in_of((rank + ranks - 1) % ranks, i, type), size);
      }
    }
  }
}

// Right results count 0; the same with one bit turned count 1.
void expect_exact(BenchKind kind, DataType type, ReduceKind op, int ranks, bool in_place) {
  const int root = ranks - 1;
  World world(kind, type, op, ranks, root, in_place);
  simulate(world, kind, type, op, ranks, root);
  for (int rank = 0; rank < ranks; ++rank) {
    const BenchShape& shape = world.shapes[static_cast<size_t>(rank)];
    std::byte* out = world.out[static_cast<size_t>(rank)].data() + shape.out_offset * size_of(type);
    const auto what = testing::Message() << kind.name() << " " << name_of(type) << " "
                                         << name_of(op) << " ranks " << ranks << " rank " << rank;
    EXPECT_EQ(world.data.count_wrong(out, shape, rank), 0U) << what;
    if (shape.out_count == 0) continue;
    out[shape.out_count / 2 * size_of(type)] ^= std::byte{1};
    EXPECT_EQ(world.data.count_wrong(out, shape, rank), 1U) << what;
  }
}

TEST(Data, ReductionsAreExactInEveryTypeAndOp) {
  for (int t = 0; t < kDataTypes; ++t) {
    for (int k = 0; k < kReduceKinds; ++k) {
      const auto type = static_cast<DataType>(t);
      const auto kind = static_cast<ReduceKind>(k);
      if (kind == ReduceKind::user || !is_reducible(type, ReduceOp{kind})) continue;
      for (const int ranks : {1, 2, 3, 7, 60}) {
        expect_exact({Collective::all_reduce}, type, kind, ranks, false);
      }
    }
  }
}

TEST(Data, EveryCollectiveIsPredictedInAndOutOfPlace) {
  for (const auto collective :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
        Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter,
        Collective::all_to_all, Collective::send}) {
    for (const bool in_place : {false, true}) {
      const BenchKind kind{collective};
      if (in_place ? !kind.can_be_in_place() : !kind.can_be_out_of_place()) continue;
      // In place the simulation reads inputs from `in`, which it leaves alone.
      for (const int ranks : {1, 2, 5}) {
        expect_exact(kind, DataType::float32, ReduceKind::sum, ranks, in_place);
      }
    }
  }
}

TEST(Data, ManyRanksStillFitTheSmallestType) {
  for (const auto kind : {ReduceKind::sum, ReduceKind::avg}) {
    const BenchData data({Collective::all_reduce}, DataType::int8, kind, 300, 0);
    std::vector<int> sums(2000);
    std::vector<int8_t> input(sums.size()), result(sums.size());
    for (int rank = 0; rank < 300; ++rank) {
      data.fill(reinterpret_cast<std::byte*>(input.data()), input.size(), rank);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += input[i];
    }
    BenchShape shape;
    shape.out_count = shape.count = sums.size();
    for (size_t i = 0; i < sums.size(); ++i) {
      ASSERT_LE(sums[i], 127);
      result[i] = static_cast<int8_t>(kind == ReduceKind::avg ? sums[i] / 300 : sums[i]);
    }
    EXPECT_EQ(data.count_wrong(reinterpret_cast<std::byte*>(result.data()), shape, 0), 0U);
  }
}

TEST(Report, SummarizesAndPrintsTheContractsFields) {
  std::vector<double> us;
  for (int i = 100; i >= 1; --i) us.push_back(i);
  BenchShape shape;
  shape.bytes = 50000;
  shape.count = 12500;
  shape.bus_factor = 1.5;
  const BenchResult result = summarize(shape, Algorithm::ring, us, 3);
  EXPECT_DOUBLE_EQ(result.min_us, 1);
  EXPECT_DOUBLE_EQ(result.median_us, 50);
  EXPECT_DOUBLE_EQ(result.p99_us, 99);
  EXPECT_DOUBLE_EQ(result.algbw_gbs, 1);
  EXPECT_DOUBLE_EQ(result.busbw_gbs, 1.5);
  BenchOptions options;
  options.transport = "shm";
  const auto json = nlohmann::json::parse(json_line(options, {4, "shm"}, result));
  for (const char* field :
       {"collective", "transport", "algorithm", "ranks", "dtype", "op", "bytes", "iterations",
        "min_us", "median_us", "p99_us", "algbw_gbs", "busbw_gbs", "wrong"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  EXPECT_EQ(json["algorithm"], "ring");
  EXPECT_EQ(json["wrong"], 3);
  EXPECT_EQ(summarize(shape, Algorithm::ring, {7}, 0).p99_us, 7);
}

TEST(BenchMemory, CountsEveryRanksBuffers) {
  BenchOptions options;
  options.ranks = 3;
  options.sizes = {8, 1200, 64};
  EXPECT_EQ(buffer_bytes(options), 3600u);
  EXPECT_EQ(buffer_bytes(options, 1, 3), 1200u);
  options.in_place = false;
  EXPECT_EQ(buffer_bytes(options), 7200u);
  options.kind = {Collective::all_gather};
  EXPECT_EQ(buffer_bytes(options), 7200u);
}

TEST(BenchMemory, RefusesWhatDoesNotFit) {
  const std::vector<size_t> sizes = {8, size_t{1} << 40};
  check_memory(sizes, 1000, 2000);
  check_memory(sizes, uint64_t{1} << 50, std::nullopt);
  EXPECT_THROW(check_memory(sizes, 2000, 2000), Error) << "nothing is left for all else";
  try {
    check_memory(sizes, uint64_t{1} << 41, uint64_t{3} << 30);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::exhausted);
    EXPECT_EQ(error.failure().reason,
              "--sizes 1 TiB needs 2 TiB of memory on this host, where 3 GiB is available");
  }
}

}  // namespace
}  // namespace ropewalk::tools
