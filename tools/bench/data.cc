#include "tools/bench/data.h"

#include <algorithm>
#include <cstring>

#include "reduce/element.h"

namespace ropewalk::tools {
namespace {

// Reduction data repeats with a prime period: a block at a wrong place is still noticed.
constexpr size_t kPeriod = 1021;
constexpr int kResult = -1;

uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t mix(int rank, size_t index) {
  return mix((static_cast<uint64_t>(rank) << 44) ^ index);
}

// All integers from 0 to this are exact in the type.
uint64_t exact_max(DataType type) {
  return visit_type(type, []<class T>(std::type_identity<T>) {
    const uint64_t beyond = uint64_t{1} << std::min(digits_of<T>(), 16);
    return std::is_integral_v<T> || beyond > 65535 ? beyond - 1 : beyond;
  });
}

template <class T>
T element(double value) {
  return narrow<T>(static_cast<Wide<T>>(value));
}

void encode(DataType type, double value, std::byte* to) {
  visit_type(type, [&]<class T>(std::type_identity<T>) {
    const T stored = element<T>(value);
    memcpy(to, &stored, sizeof stored);
  });
}

}  // namespace

BenchData::BenchData(BenchKind kind, DataType type, ReduceKind op, int ranks, int root)
    : kind_(kind), type_(type), op_(op), ranks_(ranks), root_(root) {
  // A scaled input contributes up to four times itself.
  const uint64_t room = exact_max(type) / (op == ReduceKind::scaled_sum ? 4 : 1);
  values_ = std::clamp<uint64_t>(room / static_cast<uint64_t>(ranks) + 1, 2, 17);
  if (kind.reduces()) result_ = table(kResult);
}

double BenchData::input(int rank, size_t position) const {
  const auto n = static_cast<uint64_t>(ranks_);
  const uint64_t turned = (static_cast<uint64_t>(rank) + position) % n;
  switch (op_) {
    case ReduceKind::min:
    case ReduceKind::max:
      return static_cast<double>(mix(rank, position) % 101);
    case ReduceKind::prod:  // at most six twos: 64 fits every type
      return turned < std::min<uint64_t>(n, position % 7) ? 2 : 1;
    case ReduceKind::avg: {  // the sum is n times a whole number
      const uint64_t low = n <= exact_max(type_) ? 1 : 0;
      const auto base = static_cast<double>(low * (1 + position % (values_ - 1)));
      if (n == 1 || low == 0) return base;
      return turned == 0 ? base + 1 : turned == 1 ? base - 1 : base;
    }
    default:
      break;
  }
  const uint64_t room = exact_max(type_) / (op_ == ReduceKind::scaled_sum ? 4 : 1);
  const bool fits = static_cast<uint64_t>(rank) < room;  // int8 cannot count 128 ranks
  const uint64_t value = fits ? mix(rank, position) % values_ : 0;
  return static_cast<double>(op_ == ReduceKind::scaled_sum ? 2 * value : value);
}

double BenchData::result(size_t position) const {
  double result = input(0, position) * scale_of(op_, 0);
  for (int rank = 1; rank < ranks_; ++rank) {
    const double next = input(rank, position) * scale_of(op_, rank);
    switch (op_) {
      case ReduceKind::prod:
        result *= next;
        break;
      case ReduceKind::min:
        result = std::min(result, next);
        break;
      case ReduceKind::max:
        result = std::max(result, next);
        break;
      default:
        result += next;
    }
  }
  return op_ == ReduceKind::avg ? result / ranks_ : result;
}

std::vector<std::byte> BenchData::table(int rank_or_result) const {
  const size_t size = size_of(type_);
  std::vector<std::byte> bytes(kPeriod * size);
  for (size_t i = 0; i < kPeriod; ++i) {
    const double value = rank_or_result == kResult ? result(i) : input(rank_or_result, i);
    encode(type_, value, bytes.data() + i * size);
  }
  return bytes;
}

void BenchData::fill(std::byte* to, size_t count, int rank) const {
  const size_t size = size_of(type_);
  if (kind_.reduces()) {
    const std::vector<std::byte> period = table(rank);
    for (size_t done = 0; done < count; done += kPeriod) {
      memcpy(to + done * size, period.data(), std::min(kPeriod, count - done) * size);
    }
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = mix(rank, i);
    memcpy(to + i * size, &bits, size);
  }
}

size_t BenchData::count_wrong(const std::byte* out, const BenchShape& shape, int rank) const {
  const size_t size = size_of(type_);
  const size_t own = static_cast<size_t>(rank) * shape.count;
  size_t wrong = 0;
  if (kind_.reduces()) {
    const size_t first = kind_.collective == Collective::reduce_scatter ? own : 0;
    for (size_t i = 0; i < shape.out_count; ++i) {
      const std::byte* expected = result_.data() + (first + i) % kPeriod * size;
      wrong += memcmp(out + i * size, expected, size) != 0;
    }
    return wrong;
  }
  for (size_t i = 0; i < shape.out_count; ++i) {
    int source = root_;
    size_t index = i;
    switch (kind_.collective) {
      case Collective::all_gather:
      case Collective::gather:
        source = static_cast<int>(i / shape.count);
        index = i % shape.count;
        break;
      case Collective::scatter:
        index = own + i;
        break;
      case Collective::all_to_all:
        source = static_cast<int>(i / shape.count);
        index = own + i % shape.count;
        break;
      case Collective::send:
        source = (rank + ranks_ - 1) % ranks_;
        break;
      default:
        break;  // broadcast
    }
    const uint64_t bits = mix(source, index);
    wrong += memcmp(out + i * size, &bits, size) != 0;
  }
  return wrong;
}

void fill_ones(std::byte* to, size_t count, DataType type) {
  visit_type(type, [&]<class T>(std::type_identity<T>) {
    std::fill_n(reinterpret_cast<T*>(to), count, element<T>(1));
  });
}

}  // namespace ropewalk::tools
