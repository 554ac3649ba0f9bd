#include "tests/support/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>

#include "engine/layout.h"
#include "reduce/element.h"

namespace ropewalk::testing {
namespace {

/// `value` as an element of type T holds it.
template <class T>
T convert(double value) {
  return narrow<T>(static_cast<Wide<T>>(value));
}

/// Elements [0, count) of `type`: value(i), a double, each.
template <class Value>
std::vector<std::byte> elements(DataType type, size_t count, const Value& value) {
  return visit_type(type, [&]<class T>(std::type_identity<T>) {
    std::vector<std::byte> bytes(count * sizeof(T));
    for (size_t i = 0; i < count; ++i) {
      const T element = convert<T>(value(i));
      std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
    }
    return bytes;
  });
}

double load(const std::byte* base, size_t i, DataType type) {
  return visit_type(type, [&]<class T>(std::type_identity<T>) {
    T element;
    std::memcpy(&element, base + i * sizeof(T), sizeof(T));
    return static_cast<double>(widen(element));
  });
}

/// Calls `use(at, bytes, repeated)` for each piece of the `bytes` that begin `offset` bytes into an
/// endless repetition of `period`, until it returns false; `at` counts from 0.
template <class Use>
void for_each_piece(std::span<const std::byte> period, size_t offset, size_t bytes,
                    const Use& use) {
  for (size_t at = 0, piece = 0; at < bytes; at += piece) {
    const std::span repeated = period.subspan((offset + at) % period.size());
    piece = std::min(repeated.size(), bytes - at);
    if (!use(at, piece, repeated.data())) return;
  }
}

/// The caller's own reduction: the larger of the two, in every type.
void larger(void* inout, const void* in, size_t count, DataType type, void*) {
  const auto* to = static_cast<const std::byte*>(inout);
  const auto* from = static_cast<const std::byte*>(in);
  const std::vector<std::byte> result = elements(
      type, count, [&](size_t i) { return std::max(load(to, i, type), load(from, i, type)); });
  if (count > 0) std::memcpy(inout, result.data(), result.size());
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

size_t RankBuffers::period() const {
  return std::lcm(size_t{30}, static_cast<size_t>(case_.ranks));
}

std::vector<std::byte> RankBuffers::period_of(int source) const {
  return elements(case_.type, period(),
                  [&](size_t i) { return source == kAll ? reduced(i) : input(source, i); });
}

void RankBuffers::fill() {
  const size_t width = size_of(case_.type);
  const auto write = [&](std::byte* to, size_t count, const std::vector<std::byte>& period) {
    for_each_piece(period, 0, count * width, [&](size_t at, size_t bytes, const std::byte* from) {
      std::memcpy(to + at, from, bytes);
      return true;
    });
  };
  write(out_, out_count_, elements(case_.type, period(), [](size_t) { return kSpoiled; }));
  write(in_, in_count_, period_of(rank_));
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

std::vector<RankBuffers::Part> RankBuffers::expected() const {
  size_t before = 0;  // this rank's part
  for (int r = 0; r < rank_; ++r) before += case_.part(r);
  std::vector<Part> parts;
  switch (case_.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return {{kAll, 0, out_count_}};
    case Collective::broadcast:
      return {{case_.root, 0, out_count_}};
    case Collective::reduce_scatter:
      return {{kAll, before, out_count_}};
    case Collective::scatter:
      return {{case_.root, before, out_count_}};
    case Collective::all_gather:
    case Collective::gather:
      if (out_count_ == 0) return {};  // not the root
      for (int r = 0; r < case_.ranks; ++r) parts.push_back({r, 0, case_.part(r)});
      return parts;
    case Collective::all_to_all:
      for (int from = 0; from < case_.ranks; ++from) {
        size_t offset = 0;
        for (int to = 0; to < rank_; ++to) offset += case_.pair_part(from, to);
        parts.push_back({from, offset, case_.pair_part(from, rank_)});
      }
      return parts;
    default:
      return parts;
  }
}

size_t RankBuffers::first_wrong(const std::byte* at, const Part& part) const {
  const size_t width = size_of(case_.type);
  size_t right = part.count;
  for_each_piece(period_of(part.source), part.first * width, part.count * width,
                 [&](size_t begin, size_t bytes, const std::byte* want) {
                   if (std::memcmp(at + begin, want, bytes) == 0) return true;
                   right = begin / width;
                   while (std::memcmp(at + right * width, want + right * width - begin, width) == 0)
                     ++right;
                   return false;
                 });
  return right;
}

std::string RankBuffers::check() const {
  const size_t width = size_of(case_.type);
  size_t before = 0;
  for (const Part& part : expected()) {
    const size_t wrong = first_wrong(out_ + before * width, part);
    if (wrong < part.count)
      return fmt::format(
          "rank {}: element {} of {} is {}, not {}", rank_, before + wrong, out_count_,
          load(out_, before + wrong, case_.type),
          load(period_of(part.source).data(), (part.first + wrong) % period(), case_.type));
    before += part.count;
  }
  if (before != out_count_)
    return fmt::format("rank {}: {} elements of {} were checked", rank_, before, out_count_);
  if (case_.in_place) return {};
  const size_t changed = first_wrong(in_, {rank_, 0, in_count_});
  if (changed < in_count_)
    return fmt::format("rank {}: input element {} was changed", rank_, changed);
  return {};
}

}  // namespace ropewalk::testing
