#include "tests/support/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/layout.h"
#include "reduce/element.h"

namespace ropewalk::testing {
namespace {

/// `value` as an element of type T holds it.
template <class T>
T convert(double value) {
  return narrow<T>(static_cast<Wide<T>>(value));
}

void store(std::byte* base, size_t i, DataType type, double value) {
  visit_type(type, [&]<class T>(std::type_identity<T>) {
    const T element = convert<T>(value);
    std::memcpy(base + i * sizeof(T), &element, sizeof(T));
  });
}

double load(const std::byte* base, size_t i, DataType type) {
  return visit_type(type, [&]<class T>(std::type_identity<T>) {
    T element;
    std::memcpy(&element, base + i * sizeof(T), sizeof(T));
    return static_cast<double>(widen(element));
  });
}

/// The caller's own reduction: the larger of the two, in every type.
void larger(void* inout, const void* in, size_t count, DataType type, void*) {
  auto* to = static_cast<std::byte*>(inout);
  const auto* from = static_cast<const std::byte*>(in);
  for (size_t i = 0; i < count; ++i)
    store(to, i, type, std::max(load(to, i, type), load(from, i, type)));
}

constexpr double kScale = 2.0;
constexpr double kSpoiled = 77.0;

bool is_v(Collective c) {
  return c == Collective::all_gather || c == Collective::reduce_scatter ||
         c == Collective::gather || c == Collective::scatter || c == Collective::all_to_all;
}

}  // namespace

std::string Case::text() const {
  return fmt::format("{} {} {} {} ranks={} count={} root={}{}{}", name_of(collective),
                     name_of(algorithm), name_of(type), name_of(op), ranks, count, root,
                     in_place ? " in-place" : "", uneven ? " uneven" : "");
}

size_t Case::part(int rank) const {
  if (!uneven || !is_v(collective)) return count;
  return rank == 1 ? 0 : count + static_cast<size_t>(rank);
}

size_t Case::pair_part(int from, int to) const {
  if (!uneven) return count;
  return to == (from + 1) % ranks ? 0 : count + static_cast<size_t>(from + 2 * to);
}

RankBuffers::RankBuffers(const Case& c, int rank, const Allocate& allocate)
    : case_(c), rank_(rank) {
  call_.collective = c.collective;
  call_.algorithm = c.algorithm;
  call_.type = c.type;
  call_.op = {c.op, kScale, c.op == ReduceKind::user ? &larger : nullptr, nullptr};
  call_.root = c.root;
  call_.count = c.count;
  if (c.uneven && is_v(c.collective)) {
    for (int r = 0; r < c.ranks; ++r) {
      const bool pairs = c.collective == Collective::all_to_all;
      call_.counts.push_back(pairs ? c.pair_part(rank, r) : c.part(r));
      if (pairs) call_.recv_counts.push_back(c.pair_part(r, rank));
    }
  }
  const Extent extent = extent_of(call_, rank, c.ranks);
  in_count_ = extent.in;
  out_count_ = extent.out;
  const size_t width = size_of(c.type);
  if (!c.in_place) {
    in_ = allocate(in_count_ * width);
    out_ = allocate(out_count_ * width);
  } else {
    std::byte* whole = allocate(std::max(in_count_, out_count_) * width);
    size_t before = 0;
    for (int r = 0; r < rank; ++r) before += c.part(r);
    const bool in_is_part =
        c.collective == Collective::all_gather || c.collective == Collective::gather;
    const bool out_is_part =
        c.collective == Collective::reduce_scatter || c.collective == Collective::scatter;
    in_ = in_is_part && out_count_ > 0 ? whole + before * width : whole;
    out_ = out_is_part && in_count_ > 0 ? whole + before * width : whole;
  }
  call_.in = in_;
  call_.out = out_;
}

double RankBuffers::input(int rank, size_t i) const {
  if (case_.op == ReduceKind::prod)
    return static_cast<size_t>(rank) == i % static_cast<size_t>(case_.ranks) ? 3 : 1;
  return static_cast<double>((i * 7 + static_cast<size_t>(rank) * 3 + i / 5) % 6 + 1);
}

void RankBuffers::fill() {
  for (size_t i = 0; i < out_count_; ++i) store(out_, i, case_.type, kSpoiled);
  for (size_t i = 0; i < in_count_; ++i) store(in_, i, case_.type, input(rank_, i));
}

double RankBuffers::reduced(size_t i) const {
  double value = input(0, i);
  for (int r = 1; r < case_.ranks; ++r) {
    const double next = input(r, i);
    switch (case_.op) {
      case ReduceKind::prod:
        value *= next;
        break;
      case ReduceKind::min:
        value = std::min(value, next);
        break;
      case ReduceKind::max:
      case ReduceKind::user:
        value = std::max(value, next);
        break;
      default:
        value += next;
    }
  }
  if (case_.op == ReduceKind::scaled_sum) value *= kScale;
  if (case_.op != ReduceKind::avg) return value;
  // Divided in the type that the library divides in, so that the rounding is the same.
  return visit_type(case_.type, [&]<class T>(std::type_identity<T>) {
    return static_cast<double>(static_cast<Wide<T>>(value) / static_cast<Wide<T>>(case_.ranks));
  });
}

double RankBuffers::expected(size_t i) const {
  size_t before = 0;
  switch (case_.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return reduced(i);
    case Collective::broadcast:
      return input(case_.root, i);
    case Collective::reduce_scatter:
      for (int r = 0; r < rank_; ++r) before += case_.part(r);
      return reduced(before + i);
    case Collective::scatter:
      for (int r = 0; r < rank_; ++r) before += case_.part(r);
      return input(case_.root, before + i);
    case Collective::all_gather:
    case Collective::gather:
      for (int r = 0;; ++r) {
        if (i < before + case_.part(r)) return input(r, i - before);
        before += case_.part(r);
      }
    case Collective::all_to_all:
      for (int from = 0;; ++from) {
        const size_t count = case_.pair_part(from, rank_);
        if (i < before + count) {
          size_t offset = 0;
          for (int to = 0; to < rank_; ++to) offset += case_.pair_part(from, to);
          return input(from, offset + i - before);
        }
        before += count;
      }
    default:
      return 0;
  }
}

std::string RankBuffers::check() const {
  for (size_t i = 0; i < out_count_; ++i) {
    const double got = load(out_, i, case_.type);
    const double want = visit_type(case_.type, [&]<class T>(std::type_identity<T>) {
      return static_cast<double>(widen(convert<T>(expected(i))));
    });
    if (got != want)
      return fmt::format("rank {}: element {} of {} is {}, not {}", rank_, i, out_count_, got,
                         want);
  }
  if (case_.in_place) return {};
  for (size_t i = 0; i < in_count_; ++i)
    if (load(in_, i, case_.type) != input(rank_, i))
      return fmt::format("rank {}: input element {} was changed", rank_, i);
  return {};
}

}  // namespace ropewalk::testing
