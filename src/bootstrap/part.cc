#include "bootstrap/part.h"

#include <cassert>
#include <utility>

namespace ropewalk::bootstrap {

void Part::leave(const CallsMade& calls) {
  monitor_.mark_left(monitor_.rank(), calls);
  monitor_.tell_control_thread();
}

bool Part::all_have_left() const {
  for (int rank = 0; rank < static_cast<int>(members().size()); ++rank)
    if (!monitor_.has_left(rank)) return false;
  return true;
}

void Part::on_failure(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  on_failure_ = std::move(call);
}

void Part::end() {
  has_ended_ = true;
  monitor_.tell_control_thread();
}

void Parts::add(std::shared_ptr<Part> part) {
  const std::lock_guard lock(mutex_);
  const uint32_t number = part->number();
  [[maybe_unused]] const bool is_new = by_number_.emplace(number, std::move(part)).second;
  assert(is_new);
}

void Parts::remove(const Part& part) {
  const std::lock_guard lock(mutex_);
  by_number_.erase(part.number());
}

std::shared_ptr<Part> Parts::find(uint32_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_number_.find(number);
  return found == by_number_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Part>> Parts::find(const std::set<uint32_t>& numbers) const {
  std::vector<std::shared_ptr<Part>> parts;
  for (const uint32_t number : numbers)
    if (auto part = find(number)) parts.push_back(std::move(part));
  return parts;
}

std::vector<std::shared_ptr<Part>> Parts::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Part>> parts;
  for (const auto& [number, part] : by_number_) parts.push_back(part);
  return parts;
}

}  // namespace ropewalk::bootstrap
