// Destinations that are sources, and user functions.
#include <algorithm>

#include "gtest/gtest.h"
#include "reduce/test_support.h"

namespace ropewalk {
namespace {

/// Calls reduce on `buffers`; sources and destinations are given by buffer number. Returns what
/// the buffers hold afterwards.
template <class T>
std::vector<std::vector<T>> run(std::vector<std::vector<T>> buffers, std::vector<int> sources,
                                std::vector<int> destinations, const ReduceOp& op) {
  std::vector<const std::byte*> in;
  std::vector<std::byte*> out;
  for (int s : sources)
    in.push_back(reinterpret_cast<const std::byte*>(buffers[static_cast<size_t>(s)].data()));
  for (int d : destinations)
    out.push_back(reinterpret_cast<std::byte*>(buffers[static_cast<size_t>(d)].data()));
  reduce(out, in, buffers[0].size(), data_type_of<T>(), op);
  return buffers;
}

struct Shape {
  std::vector<int> sources, destinations;
};

// Buffers 0..4. All ways a destination can be a source, and a source come twice.
const Shape kShapes[] = {
    {{0}, {0}},          {{0}, {1}},          {{0}, {0, 1}},          {{0}, {1, 0, 2}},
    {{0, 1}, {2}},       {{0, 1}, {0}},       {{0, 1}, {1}},          {{0, 1}, {0, 1}},
    {{0, 1}, {1, 0}},    {{0, 1}, {1, 2}},    {{0, 1, 2}, {1}},       {{0, 1, 2}, {2, 1}},
    {{0, 1, 2}, {1, 3}}, {{0, 1, 2}, {2, 0}}, {{0, 1, 2}, {0, 1, 2}}, {{0, 0}, {0}},
    {{0, 0, 0}, {0}},    {{0, 1, 0}, {0, 1}}, {{0, 1, 1}, {4, 3}},    {{4, 3, 2, 1}, {2, 4, 0}},
};

template <class T>
void check(const ReduceOp& op, ReduceKind meaning, size_t count) {
  std::mt19937_64 random(count);
  std::vector<std::vector<T>> buffers;
  for (int b = 0; b < 5; ++b) buffers.push_back(random_values<T>(random, count));
  for (size_t n = 0; n < std::size(kShapes); ++n) {
    SCOPED_TRACE("shape " + std::to_string(n) + ", count " + std::to_string(count));
    const Shape& shape = kShapes[n];
    std::vector<std::vector<T>> operands;
    for (int s : shape.sources) operands.push_back(buffers[static_cast<size_t>(s)]);
    auto want = buffers;
    for (int d : shape.destinations)
      for (size_t i = 0; i < count; ++i)
        want[static_cast<size_t>(d)][i] = reference(meaning, operands, i);
    const auto got = run(buffers, shape.sources, shape.destinations, op);
    for (size_t b = 0; b < buffers.size(); ++b)
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(hex(got[b][i]), hex(want[b][i])) << "buffer " << b << ", element " << i;
  }
}

template <class T>
class ReduceAlias : public testing::Test {};
TYPED_TEST_SUITE(ReduceAlias, AllElements<testing::Types>);

TYPED_TEST(ReduceAlias, DestinationsMayBeSources) {
  for (int64_t target : all_targets()) {
    const TargetScope scope(target);
    for (size_t count : {1u, 7u, 64u, 333u}) {
      check<TypeParam>(kSum, ReduceKind::sum, count);
      check<TypeParam>(kMin, ReduceKind::min, count);
    }
  }
}

struct Calls {
  size_t number = 0;
  size_t bytes_max = 0;
  DataType type = DataType::uint64;
};

/// inout = max(inout, in), and takes a note of the call.
template <class T>
void user_max(void* inout, const void* in, size_t count, DataType type, void* context) {
  Calls& calls = *static_cast<Calls*>(context);
  ++calls.number;
  calls.bytes_max = std::max(calls.bytes_max, count * sizeof(T));
  calls.type = type;
  T* a = static_cast<T*>(inout);
  const T* b = static_cast<const T*>(in);
  for (size_t i = 0; i < count; ++i)
    a[i] = stored<T>(pairwise_reference(ReduceKind::max, widen(a[i]), widen(b[i])));
}

TYPED_TEST(ReduceAlias, UserFunction) {
  Calls calls;
  const ReduceOp op{ReduceKind::user, 1.0, &user_max<TypeParam>, &calls};
  const size_t block = kUserBlockBytes / sizeof(TypeParam);
  for (size_t count : {size_t{1}, size_t{100}, block, block + 1, 2 * block + 5})
    check<TypeParam>(op, ReduceKind::max, count);
  EXPECT_GT(calls.number, 0u);
  EXPECT_LE(calls.bytes_max, kUserBlockBytes);
  EXPECT_EQ(calls.type, data_type_of<TypeParam>());
}

TEST(ReduceUser, NotCalledForOneSourceOrNoElements) {
  Calls calls;
  const ReduceOp op{ReduceKind::user, 1.0, &user_max<float>, &calls};
  const auto got = run<float>({{1, 2}, {3, 4}}, {0}, {1}, op);
  EXPECT_EQ(got[1], (std::vector<float>{1, 2}));
  run<float>({{}, {}}, {0, 1}, {1}, op);
  EXPECT_EQ(calls.number, 0u);
}

}  // namespace
}  // namespace ropewalk
