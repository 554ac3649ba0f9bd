#include "tools/launcher/restarts.h"

#include <algorithm>
#include <utility>

namespace ropewalk::tools {
namespace {

bool has_agent(const Host& host) {
  return host.ready && !host.closed && !host.is_unfit;
}

Host::Time::duration pause_after(int tries) {
  return std::min<Host::Time::duration>(kDialPauseMin * (1 << std::clamp(tries - 1, 0, 16)),
                                        kDialPauseMax);
}

}  // namespace

Restarts::Slots Restarts::free_slots() const {
  Slots free;
  for (const Host& host : hosts_) free.emplace_back(static_cast<size_t>(host.slots), true);
  for (const int number : ranks_.running()) {
    const RankState& rank = ranks_[number];
    free[static_cast<size_t>(rank.host)][static_cast<size_t>(rank.slot)] = false;
  }
  return free;
}

bool Restarts::may_be_dialled(const Host& host) const {
  return host.closed && !host.is_unfit && host.tries <= kDialsMax;
}

/// One that was not lost: it will be there in a moment, as far as anybody knows.
bool Restarts::is_expected(const Host& host) const {
  return !host.is_unfit && !host.ready && host.tries == 0;
}

Ranks::Room Restarts::room() const {
  Ranks::Room room{.waiting = static_cast<int>(waiting_.size())};
  const Slots free = free_slots();
  for (size_t i = 0; i < hosts_.size(); ++i) {
    room.is_any = room.is_any || !hosts_[i].is_unfit;
    if (has_agent(hosts_[i]) || is_expected(hosts_[i]))
      room.slots += static_cast<int>(std::ranges::count(free[i], true));
  }
  return room;
}

void Restarts::want(const std::vector<int>& lost, Host::Time now) {
  waiting_.insert(waiting_.end(), lost.begin(), lost.end());
  is_stuck_ = false;
  for (Host& host : hosts_) {
    if (host.tries <= 1) continue;
    host.tries = 1;
    host.dial_at = std::min(host.dial_at, now + pause_after(1));
  }
}

std::optional<Restarts::RankSlot> Restarts::next() {
  if (waiting_.empty()) return {};
  const Slots free = free_slots();
  const auto take = [this](size_t at, int host, int slot) {
    const int lost = waiting_[at];
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(at));
    return RankSlot{lost, host, slot};
  };
  for (size_t at = 0; at < waiting_.size(); ++at) {
    const auto [host, slot] = std::pair(ranks_[waiting_[at]].host, ranks_[waiting_[at]].slot);
    if (has_agent(hosts_[static_cast<size_t>(host)]) &&
        free[static_cast<size_t>(host)][static_cast<size_t>(slot)])
      return take(at, host, slot);
  }
  for (size_t host = 0; host < hosts_.size(); ++host) {
    if (!has_agent(hosts_[host])) continue;
    const auto slot = std::ranges::find(free[host], true);
    if (slot != free[host].end())
      return take(0, static_cast<int>(host), static_cast<int>(slot - free[host].begin()));
  }
  return {};
}

int Restarts::missing_slots() const {
  auto missing = static_cast<int>(waiting_.size());
  for (const Host& host : hosts_) missing -= host.is_dialled() ? host.slots : 0;
  return missing;
}

Host* Restarts::host_to_dial(Host::Time now) {
  if (missing_slots() <= 0) return nullptr;
  Host* best = nullptr;
  for (Host& host : hosts_) {
    if (may_be_dialled(host) && host.dial_at <= now &&
        (best == nullptr || host.tries < best->tries))
      best = &host;
  }
  return best;
}

std::optional<Host::Time> Restarts::next_dial() const {
  std::optional<Host::Time> next;
  if (missing_slots() <= 0) return next;
  for (const Host& host : hosts_)
    if (may_be_dialled(host) && (!next || host.dial_at < *next)) next = host.dial_at;
  return next;
}

void Restarts::note_lost(Host& host, Host::Time now) {
  host.dial_at = now + pause_after(++host.tries);
}

bool Restarts::become_stuck() {
  if (waiting_.empty() || is_stuck_ ||
      std::ranges::any_of(hosts_, [this](const Host& host) { return is_expected(host); }))
    return false;
  return is_stuck_ = true;
}

}  // namespace ropewalk::tools
