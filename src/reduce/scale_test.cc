#include "gtest/gtest.h"
#include "reduce/test_support.h"

namespace ropewalk {
namespace {

constexpr size_t kCounts[] = {0, 1, 2, 3, 15, 16, 17, 31, 64, 65, 1001};

template <class T>
std::byte* bytes(std::vector<T>& v) {
  return reinterpret_cast<std::byte*>(v.data());
}

template <class T>
class Scale : public testing::Test {};
TYPED_TEST_SUITE(Scale, FloatingElements<testing::Types>);

TYPED_TEST(Scale, MultipliesInTheComputedType) {
  using C = Wide<TypeParam>;
  std::mt19937_64 random(1);
  for (int64_t target : all_targets()) {
    const TargetScope scope(target);
    for (size_t count : kCounts) {
      for (double factor : {1.0, 0.0, -0.5, 1.0 / 3, 1e-6, 1e300}) {
        auto values = random_values<TypeParam>(random, count);
        std::vector<TypeParam> out(count);
        scale(bytes(out), bytes(values), count, data_type_of<TypeParam>(), factor);
        const auto want = [&](size_t i) {
          return hex(stored<TypeParam>(widen(values[i]) * static_cast<C>(factor)));
        };
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(hex(out[i]), want(i)) << factor;
        auto in_place = values;
        scale(bytes(in_place), bytes(in_place), count, data_type_of<TypeParam>(), factor);
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(hex(in_place[i]), want(i)) << factor;
      }
    }
  }
}

// Every float16 times factors that put the result on ties, into subnormals and into infinity.
TEST(ScaleHalf, AllPatterns) {
  std::vector<float16> values(65536), out(65536);
  for (size_t i = 0; i < values.size(); ++i) values[i] = float16{static_cast<uint16_t>(i)};
  for (int64_t target : all_targets()) {
    const TargetScope scope(target);
    for (double factor : {1.5, 1.25, 1 + 0x1p-10, 0x1p-9, 0x1.8p-12, 0x1.004p-14, 3.0, 1 / 3.0}) {
      scale(bytes(out), bytes(values), values.size(), DataType::float16, factor);
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(out[i].bits,
                  stored<float16>(to_float(values[i]) * static_cast<float>(factor)).bits)
            << i << " * " << factor;
    }
  }
}

template <class T>
class Divide : public testing::Test {};
TYPED_TEST_SUITE(Divide, AllElements<testing::Types>);

TYPED_TEST(Divide, DividesByTheNumberOfRanks) {
  std::mt19937_64 random(2);
  for (int64_t target : all_targets()) {
    const TargetScope scope(target);
    for (size_t count : kCounts) {
      for (int divisor : {1, 2, 3, 7, 64, 1000, 70000}) {
        const auto values = random_values<TypeParam>(random, count);
        auto got = values;
        divide(bytes(got), count, data_type_of<TypeParam>(), divisor);
        for (size_t i = 0; i < count; ++i) {
          if constexpr (std::is_floating_point_v<Wide<TypeParam>>) {
            const auto by = static_cast<Wide<TypeParam>>(divisor);
            ASSERT_EQ(hex(got[i]), hex(stored<TypeParam>(widen(values[i]) / by))) << divisor;
          } else {
            using Wide = std::conditional_t<std::is_signed_v<TypeParam>, __int128_t, __uint128_t>;
            const auto want = static_cast<TypeParam>(Wide{values[i]} / divisor);
            ASSERT_EQ(got[i], want) << divisor;
          }
        }
      }
    }
  }
}

TEST(DivideIntegers, TruncatesTowardZero) {
  std::vector<int32_t> values = {7, -7, 1, -1, INT32_MIN, INT32_MAX};
  divide(bytes(values), values.size(), DataType::int32, 2);
  EXPECT_EQ(values, (std::vector<int32_t>{3, -3, 0, 0, -1073741824, 1073741823}));
}

}  // namespace
}  // namespace ropewalk
