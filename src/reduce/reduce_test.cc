#include "reduce/reduce.h"

#include "gtest/gtest.h"
#include "reduce/test_support.h"

namespace ropewalk {
namespace {

constexpr ReduceKind kPairwiseKinds[] = {ReduceKind::sum, ReduceKind::prod, ReduceKind::min,
                                         ReduceKind::max};

/// One buffer of `count` elements, `skew` elements off the alignment that vectors like, between
/// guard elements.
template <class T>
class Guarded {
 public:
  Guarded(size_t count, size_t skew) : skew_(skew), count_(count), bytes_(kGuard, 0xA5) {
    bytes_.resize(kGuard + (skew + count) * sizeof(T) + kGuard, 0xA5);
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(bytes_.data()) + begin(); }
  T operator[](size_t i) {
    T value;
    std::memcpy(&value, data() + i * sizeof(T), sizeof value);
    return value;
  }
  bool intact() const {
    for (size_t i = 0; i < bytes_.size(); ++i)
      if ((i < begin() || i >= begin() + count_ * sizeof(T)) && bytes_[i] != 0xA5) return false;
    return true;
  }

 private:
  static constexpr size_t kGuard = 128;
  size_t begin() const { return kGuard + skew_ * sizeof(T); }
  size_t skew_, count_;
  std::vector<unsigned char> bytes_;
};

template <class T>
void check(ReduceKind kind, const std::vector<std::vector<T>>& values, size_t destinations,
           size_t skew) {
  const size_t count = values[0].size();
  std::vector<Guarded<T>> in(values.size(), Guarded<T>(count, skew));
  std::vector<const std::byte*> sources;
  for (size_t s = 0; s < values.size(); ++s) {
    if (count != 0) std::memcpy(in[s].data(), values[s].data(), count * sizeof(T));
    sources.push_back(in[s].data());
  }
  // Destinations are skewed otherwise than the sources.
  std::vector<Guarded<T>> out(destinations, Guarded<T>(count, (skew * 3 + 1) % 8));
  std::vector<std::byte*> targets;
  for (auto& o : out) targets.push_back(o.data());
  reduce(targets, sources, count, data_type_of<T>(), ReduceOp{kind});
  for (auto& o : out) {
    ASSERT_TRUE(o.intact()) << name_of(kind) << " wrote outside; count " << count;
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(hex(o[i]), hex(reference(kind, values, i)))
          << name_of(kind) << " of " << values.size() << " into " << destinations << ", element "
          << i << " of " << count;
  }
}

template <class T>
std::vector<std::vector<T>> random_sources(std::mt19937_64& random, size_t sources, size_t count) {
  std::vector<std::vector<T>> values;
  for (size_t s = 0; s < sources; ++s) values.push_back(random_values<T>(random, count));
  return values;
}

template <class T>
class Reduce : public testing::Test {};
TYPED_TEST_SUITE(Reduce, AllElements<testing::Types>);

TYPED_TEST(Reduce, SmallCountsOfAllShapes) {
  std::mt19937_64 random(1);
  for (int64_t target : all_targets()) {
    const TargetScope scope(target);
    for (ReduceKind kind : kPairwiseKinds)
      for (size_t count = 0; count <= 70; ++count)
        for (size_t sources = 1; sources <= 5; ++sources)
          check<TypeParam>(kind, random_sources<TypeParam>(random, sources, count),
                           1 + (count + sources) % 3, count % 8);
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(Reduce, LargeCountsOfAllShapes) {
  std::mt19937_64 random(2);
  for (int64_t target : all_targets()) {
    const TargetScope scope(target);
    for (ReduceKind kind : kPairwiseKinds)
      for (size_t sources = 1; sources <= 5; ++sources)
        for (size_t destinations = 1; destinations <= 3; ++destinations)
          check<TypeParam>(kind, random_sources<TypeParam>(random, sources, 1000 + 37 * sources),
                           destinations, sources);
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(Reduce, AsManySpansAsAllowed) {
  std::mt19937_64 random(3);
  check<TypeParam>(ReduceKind::max, random_sources<TypeParam>(random, kReduceFanMax, 131),
                   kReduceFanMax, 1);
}

TYPED_TEST(Reduce, AvgAddsAsSumDoes) {
  std::mt19937_64 random(4);
  check<TypeParam>(ReduceKind::avg, random_sources<TypeParam>(random, 3, 200), 1, 0);
  if constexpr (std::is_floating_point_v<Wide<TypeParam>>)
    check<TypeParam>(ReduceKind::scaled_sum, random_sources<TypeParam>(random, 3, 200), 1, 0);
}

// How the engine cuts a range into slices must not show in the bits.
TYPED_TEST(Reduce, CutsDoNotShow) {
  std::mt19937_64 random(5);
  constexpr size_t kCount = 777;
  const auto values = random_sources<TypeParam>(random, 3, kCount);
  for (int64_t target : all_targets()) {
    const TargetScope scope(target);
    for (ReduceKind kind : kPairwiseKinds) {
      std::vector<TypeParam> got(kCount);
      for (size_t begin = 0, length; begin < kCount; begin += length) {
        length = std::min(kCount - begin, 1 + random() % 90);
        const auto at = [begin](const std::vector<TypeParam>& v) {
          return reinterpret_cast<const std::byte*>(v.data() + begin);
        };
        const std::byte* sources[] = {at(values[0]), at(values[1]), at(values[2])};
        std::byte* destinations[] = {reinterpret_cast<std::byte*>(got.data() + begin)};
        reduce(destinations, sources, length, data_type_of<TypeParam>(), ReduceOp{kind});
      }
      for (size_t i = 0; i < kCount; ++i)
        ASSERT_EQ(hex(got[i]), hex(reference(kind, values, i))) << name_of(kind) << " " << i;
    }
  }
}

// All bit patterns of the halves through the vector conversions: max(x, x) is x.
template <class T>
void check_all_patterns() {
  std::vector<T> values(65536);
  for (size_t i = 0; i < values.size(); ++i) values[i] = T{static_cast<uint16_t>(i)};
  for (int64_t target : all_targets()) {
    const TargetScope scope(target);
    check<T>(ReduceKind::max, {values, values}, 1, 0);
    check<T>(ReduceKind::sum, {values, values, values}, 1, 0);
    check<T>(ReduceKind::prod, {values, values}, 1, 0);
  }
}
TEST(ReduceHalf, AllFloat16Patterns) {
  check_all_patterns<float16>();
}
TEST(ReduceHalf, AllBfloat16Patterns) {
  check_all_patterns<bfloat16>();
}

TEST(ReduceHalf, RoundsOnceOverAllSources) {
  // 2048 + 1 is a tie that rounds back to 2048 in float16: adding 1 twice with rounding in between
  // would stay there.
  const std::vector<std::vector<float16>> values = {
      {to_float16(2048)}, {to_float16(1)}, {to_float16(1)}};
  EXPECT_EQ(to_float(reference(ReduceKind::sum, values, 0)), 2050.0f);
  check<float16>(ReduceKind::sum, values, 1, 0);
  // An overflow in between comes back: 65504 + 65504 - 65504.
  check<float16>(ReduceKind::sum, {{to_float16(65504)}, {to_float16(65504)}, {to_float16(-65504)}},
                 1, 0);
  // And one at the end is infinity.
  const std::vector<std::vector<float16>> overflow = {{to_float16(65504)}, {to_float16(65504)}};
  EXPECT_EQ(reference(ReduceKind::sum, overflow, 0).bits, 0x7C00);
  check<float16>(ReduceKind::sum, overflow, 1, 0);
}

TEST(ReduceFloat, MinAndMaxOfNanAndZeros) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const Hex canonical_nan{0x7FC00000};
  for (int64_t target : all_targets()) {
    const TargetScope scope(target);
    for (size_t count : {size_t{1}, size_t{67}}) {
      const auto run = [count](ReduceKind kind, float a, float b) {
        std::vector<float> x(count, a), y(count, b), out(count);
        const std::byte* sources[] = {reinterpret_cast<std::byte*>(x.data()),
                                      reinterpret_cast<std::byte*>(y.data())};
        std::byte* destinations[] = {reinterpret_cast<std::byte*>(out.data())};
        reduce(destinations, sources, count, DataType::float32, ReduceOp{kind});
        for (float value : out) EXPECT_EQ(hex(value), hex(out[0]));
        return out[0];
      };
      for (ReduceKind kind : {ReduceKind::min, ReduceKind::max}) {
        EXPECT_EQ(hex(run(kind, nan, 1)), canonical_nan);
        EXPECT_EQ(hex(run(kind, -inf, -nan)), canonical_nan);
        EXPECT_EQ(hex(run(kind, nan, nan)), canonical_nan);
      }
      EXPECT_EQ(hex(run(ReduceKind::sum, inf, -inf)), canonical_nan);
      for (auto [a, b] : {std::pair{0.0f, -0.0f}, std::pair{-0.0f, 0.0f}}) {
        EXPECT_EQ(hex(run(ReduceKind::min, a, b)), hex(-0.0f));
        EXPECT_EQ(hex(run(ReduceKind::max, a, b)), hex(0.0f));
      }
      EXPECT_EQ(run(ReduceKind::min, -3, 5), -3);
      EXPECT_EQ(run(ReduceKind::max, -3, inf), inf);
    }
  }
}

TEST(IsReducible, KnowsWhatIsDefined) {
  const UserReduction function = [](void*, const void*, size_t, DataType, void*) {};
  for (int t = 0; t < kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    for (const ReduceOp& op : {kSum, kProd, kMin, kMax, kAvg}) EXPECT_TRUE(is_reducible(type, op));
    EXPECT_EQ(is_reducible(type, ReduceOp{ReduceKind::scaled_sum, 0.5}), is_floating(type)) << t;
    EXPECT_FALSE(is_reducible(type, ReduceOp{ReduceKind::user}));
    EXPECT_TRUE(is_reducible(type, ReduceOp{ReduceKind::user, 1.0, function}));
  }
  EXPECT_FALSE(is_reducible(static_cast<DataType>(kDataTypes), kSum));
  EXPECT_FALSE(is_reducible(DataType::float32, ReduceOp{static_cast<ReduceKind>(kReduceKinds)}));
}

#if HWY_ARCH_X86
TEST(ReduceTarget, MachineHasWhatHighwayFinds) {
  constexpr int64_t kAsked = HWY_SSSE3 | HWY_SSE4 | HWY_AVX2 | HWY_AVX3;
  EXPECT_EQ(usable_targets(), hwy::SupportedTargets() & kAsked);
}
#endif

TEST(ReduceTarget, SeveralAreTested) {
  // On x86-64 there is always plain C++ and, on any machine of the last fifteen years, SSE4.
#if HWY_ARCH_X86_64
  EXPECT_GE(all_targets().size(), 2u);
#endif
  EXPECT_STRNE(reduce_target_name(), "");
}

}  // namespace
}  // namespace ropewalk
