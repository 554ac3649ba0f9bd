#include "bootstrap/epoch_monitor.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "bootstrap/job_monitor.h"

namespace ropewalk::bootstrap {

void EpochMonitor::set(const Failure& failure) {
  assert(!stored_);
  stored_ = std::make_unique<const Failure>(seen_from_part(failure, members_));
  failure_.store(stored_.get(), std::memory_order_release);
}

void EpochMonitor::report(const Failure& failure) {
  whole_.report_in(number_, numbered_as_in_whole(failure, members_));
}

void EpochMonitor::report_silent(const Failure& failure) {
  whole_.report_silent_in(number_, numbered_as_in_whole(failure, members_));
}

bool EpochMonitor::has_left(int peer) const noexcept {
  return peer >= 0 && static_cast<size_t>(peer) < members_.size() &&
         whole_.has_left(members_[static_cast<size_t>(peer)]);
}

std::optional<CallsMade> EpochMonitor::calls_of(int peer) const {
  return has_left(peer) ? whole_.calls_of(members_[static_cast<size_t>(peer)]) : std::nullopt;
}

void EpochMonitor::note_calls(uint32_t calls) noexcept {
  if (!is_over()) whole_.note_calls(calls);
}

void EpochMonitor::note_waits(std::span<const Wait> waits) {
  assert(waits.size() <= kWaitsMax);
  std::array<Wait, kWaitsMax> numbered;
  std::ranges::copy(waits, numbered.begin());
  for (Wait& wait : std::span(numbered).first(waits.size()))
    for (int& peer : std::span(wait.peers).first(wait.peer_count))
      peer = members_[static_cast<size_t>(peer)];
  if (!is_over()) whole_.note_waits(std::span(numbered).first(waits.size()));
}

void EpochMonitor::ask_who_waits() {
  if (!is_over()) whole_.ask_who_waits();
}

std::vector<RankWaits> EpochMonitor::waits() const {
  std::vector<RankWaits> all = whole_.waits();
  std::vector<RankWaits> own;
  for (const int member : members_) {
    own.push_back(std::move(all[static_cast<size_t>(member)]));
    for (Wait& wait : own.back().waits)
      for (int& peer : std::span(wait.peers).first(wait.peer_count))
        peer = rank_among(members_, peer);
    // What an epoch before has said of a rank that is in none any more.
    std::erase_if(own.back().waits,
                  [](const Wait& wait) { return std::ranges::count(wait.waits_for(), -1) != 0; });
  }
  return own;
}

int EpochMonitor::event_fd() const noexcept {
  return whole_.event_fd();
}

int EpochMonitor::rank_in_epoch(int rank_in_job) const {
  const int number = rank_among(members_, rank_in_job);
  return number < 0 ? rank_in_job : number;
}

}  // namespace ropewalk::bootstrap
