#include "tools/bench/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ropewalk/status.h"
#include "schedule/collective.h"
#include "schedule/schedule.h"

namespace ropewalk::tools {

bool BenchKind::reduces() const {
  return is_reduction(collective) && collective != Collective::barrier;
}

bool BenchKind::has_root() const {
  return traits_of(collective).is_rooted();
}

bool BenchKind::in_place_by_default() const {
  return collective == Collective::all_reduce || collective == Collective::broadcast ||
         collective == Collective::reduce;
}

bool BenchKind::can_be_in_place() const {
  return !is_send_recv() && collective != Collective::all_to_all &&
         collective != Collective::barrier;
}

bool BenchKind::can_be_out_of_place() const {
  return collective != Collective::broadcast;
}

std::string BenchKind::name() const {
  return is_send_recv() ? "send_recv" : std::string(name_of(collective));
}

std::optional<BenchKind> bench_kind_named(std::string_view word) {
  if (word == "send_recv") return BenchKind{Collective::send};
  const auto collective = collective_named(word);
  if (!collective || *collective == Collective::send || *collective == Collective::recv) return {};
  return BenchKind{*collective};
}

std::vector<std::string> bench_kind_names() {
  std::vector<std::string> words;
  for (int i = 0; i < kCollectives; ++i) {
    const std::string_view name = name_of(static_cast<Collective>(i));
    if (bench_kind_named(name)) words.emplace_back(name);
  }
  words.push_back("send_recv");
  return words;
}

void check_algorithm(const char* command, BenchKind kind, Algorithm algorithm) {
  if (algorithm == Algorithm::automatic) return;
  if (implements(algorithm, kind.collective)) return;
  std::vector<std::string_view> words = {name_of(Algorithm::automatic)};
  for (int i = 1; i < kAlgorithms; ++i)
    if (implements(static_cast<Algorithm>(i), kind.collective))
      words.push_back(name_of(static_cast<Algorithm>(i)));
  throw Error(ErrorCode::invalid_argument, command,
              fmt::format("{} is not run by {}", kind.name(), name_of(algorithm)),
              fmt::format("use {}", fmt::join(words, ", ")));
}

BenchShape bench_shape(BenchKind kind, size_t bytes, DataType type, int rank, int ranks, int root,
                       bool in_place) {
  const auto n = static_cast<size_t>(ranks);
  const size_t elements = std::max<size_t>(1, bytes / size_of(type));
  const size_t part = std::max<size_t>(1, elements / n);
  const size_t part_offset = in_place ? static_cast<size_t>(rank) * part : 0;
  const bool is_root = rank == root;
  const double others = static_cast<double>(n - 1) / static_cast<double>(n);
  BenchShape shape;
  switch (kind.collective) {
    case Collective::barrier:
      return shape;
    case Collective::all_reduce:
      shape = {elements, elements, elements, 0, 0, elements, elements, 2 * others};
      break;
    case Collective::broadcast:
      shape = {elements, is_root ? elements : 0, elements, 0, 0, elements, elements, 1};
      break;
    case Collective::reduce:
      shape = {elements, elements, is_root ? elements : 0, 0, 0, elements, elements, 1};
      break;
    case Collective::reduce_scatter:
      shape = {part, n * part, part, 0, part_offset, n * part, n * part, others};
      break;
    case Collective::all_gather:
      shape = {part, part, n * part, part_offset, 0, n * part, n * part, others};
      break;
    case Collective::gather:
      shape = {part,     part,  is_root ? n * part : 0, is_root ? part_offset : 0, 0, n * part,
               n * part, others};
      break;
    case Collective::scatter:
      shape = {
          part,  is_root ? n * part : 0, part, 0, is_root ? part_offset : 0, n * part, n * part,
          others};
      break;
    case Collective::all_to_all:
      shape = {part, n * part, n * part, 0, 0, n * part, n * part, others};
      break;
    case Collective::send:
    case Collective::recv:
      shape = {elements, elements, elements, 0, 0, elements, elements, 1};
      break;
  }
  shape.bytes *= size_of(type);
  return shape;
}

}  // namespace ropewalk::tools
