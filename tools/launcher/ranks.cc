#include "tools/launcher/ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/text.h"

namespace ropewalk::tools {

Ranks::Ranks(std::optional<Elastic> elastic)
    : elastic_(elastic), restarts_left_(elastic ? elastic->restarts : 0) {}

void Ranks::add(int host, int slot) {
  ranks_.push_back(
      {.label = std::to_string(count()), .place = count(), .host = host, .slot = slot});
  times_restarted_.push_back(0);
  ++first_count_;
}

int Ranks::add_in_place_of(int lost, int host, int slot) {
  assert(restarts_left_ > 0);
  --restarts_left_;
  const int place = (*this)[lost].place;
  const int times = ++times_restarted_[static_cast<size_t>(place)];
  ranks_.push_back({.label = fmt::format("{}.{}", place, times),
                    .place = place,
                    .host = host,
                    .slot = slot,
                    .running = true,
                    .is_member = false});
  return count() - 1;
}

void Ranks::note_started() {
  for (RankState& rank : ranks_) rank.running = rank.host >= 0;
}

void Ranks::note_success(int number) {
  if ((*this)[number].is_member) has_success_ = true;
}

std::vector<int> Ranks::running(int host) const {
  std::vector<int> numbers;
  for (int i = 0; i < count(); ++i) {
    const RankState& rank = (*this)[i];
    if (rank.running && (host < 0 || rank.host == host)) numbers.push_back(i);
  }
  return numbers;
}

int Ranks::members(int host) const {
  const std::vector<int> numbers = running(host);
  return static_cast<int>(
      std::ranges::count_if(numbers, [this](int number) { return (*this)[number].is_member; }));
}

std::string Ranks::labels_of(const std::vector<int>& numbers) const {
  std::vector<std::string> labels;
  for (const int number : numbers) labels.push_back((*this)[number].label);
  return fmt::format("{}", fmt::join(labels, ", "));
}

std::string Ranks::labels_in(std::string_view numbers) const {
  std::vector<int> known;
  for (const std::string_view word : split(numbers, ',')) {
    const auto number =
        parse_number<int>(word.substr(std::min(word.find_first_not_of(' '), word.size())));
    if (number && *number >= 0 && *number < count()) known.push_back(*number);
  }
  return labels_of(known);
}

bool Ranks::has_only_latecomers() const {
  return has_success_ && !running().empty() && members() == 0;
}

std::string Ranks::too_few_with(int more) const {
  assert(elastic_);
  const auto runs = static_cast<int>(running().size());
  if (runs + more >= elastic_->ranks_min) return {};
  return fmt::format("{} rank{} left, and --elastic demands {}", runs, runs == 1 ? " is" : "s are",
                     elastic_->ranks_min);
}

Ranks::LossDecision Ranks::decide_loss(const std::vector<int>& lost, const Room& room,
                                       bool had_left) const {
  assert(elastic_);
  if (has_success_) {
    if (had_left) return {LossDecision::does_not_count, "the job has ended without them"};
    const auto is_member = [this](int number) { return (*this)[number].is_member; };
    if (std::ranges::any_of(lost, is_member)) return {LossDecision::ends_job};
    return {LossDecision::does_not_count, "the job is at its end, and had not taken it in"};
  }
  const int restarts =
      room.is_any ? std::min(static_cast<int>(lost.size()), restarts_left_ - room.waiting) : 0;
  if (members() == 0)
    return {LossDecision::ends_job, "no rank is left that those started again could join"};
  if (std::string why = too_few_with(std::min(room.waiting + restarts, room.slots)); !why.empty())
    return {LossDecision::ends_job, std::move(why)};
  return {LossDecision::goes_on, fmt::format("{} go on", running().size()), restarts};
}

}  // namespace ropewalk::tools
