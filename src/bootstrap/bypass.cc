#include "bootstrap/bypass.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "bootstrap/tree.h"

namespace ropewalk::bootstrap {
namespace {

/// Who needs longer to answer may be stopped.
constexpr int64_t kAnswers_ns = 200 * kMillisecond_ns;
/// In a later epoch a rank may have any number of neighbours: the lowest has all whose ancestors
/// have gone. So many are told by one rank.
constexpr size_t kToldByFirstMax = 2 * kTreeArity;

}  // namespace

Bypass::Bypass(int rank, int size, std::chrono::nanoseconds limit, Dial dial,
               Statements& statements, const JobMonitor& monitor)
    : rank_(rank),
      size_(size),
      limit_ns_(limit.count()),
      dial_(std::move(dial)),
      statements_(statements),
      monitor_(monitor),
      done_{rank} {}

void Bypass::relay_around(int neighbour, int64_t now_ns) {
  assert(monitor_.failure() != nullptr);
  if (!done_.insert(neighbour).second) return;
  const std::vector<int> others = neighbours_of(neighbour);
  if (others.empty()) return;
  const bool is_first = others.front() == rank_;
  if (is_first && (is_first_epoch() || others.size() <= kToldByFirstMax)) {
    for (const int other : others) tell(other, now_ns);
  } else {
    tell(others.front(), now_ns);
    if (!is_first_epoch()) notify_ring(others, now_ns);
  }
}

void Bypass::hear(int peer, ConnectedSocket socket, int64_t now_ns) {
  heard_.push_back({peer, FrameStream(std::move(socket)), now_ns});
}

void Bypass::renew() {
  done_ = {rank_};
  told_.clear();
  rings_.clear();
}

/// In ascending order: the parent first. Those who have left are passed over, as where their
/// children link with others.
std::vector<int> Bypass::neighbours_of(int rank) const {
  const auto is_there = [&](int other) { return other == rank || !monitor_.has_left(other); };
  std::vector<int> neighbours;
  if (const int parent = parent_among(rank, size_, is_there); parent >= 0)
    neighbours.push_back(parent);
  for (int other = rank + 1; other < size_; ++other)
    if (is_there(other) && parent_among(other, size_, is_there) == rank)
      neighbours.push_back(other);
  return neighbours;
}

bool Bypass::is_culprit(int rank) const {
  return std::ranges::count(monitor_.failure()->peers, rank) != 0;
}

void Bypass::tell(int peer, int64_t now_ns) {
  if (is_culprit(peer) || !done_.insert(peer).second) return;
  if (auto dialer = dial_(peer)) told_.push_back({peer, std::move(dialer), now_ns, {}, false});
}

/// Those at the places 1, 2, 4, ... behind this rank's, which may not be in it.
void Bypass::notify_ring(const std::vector<int>& ring, int64_t now_ns) {
  const auto behind = static_cast<size_t>(std::ranges::upper_bound(ring, rank_) - ring.begin());
  for (size_t step = 1; step <= ring.size(); step *= 2) tell_next(ring, behind + step - 1, now_ns);
  rings_.push_back(ring);
}

/// The first from `place` on that is no culprit.
void Bypass::tell_next(const std::vector<int>& ring, size_t place, int64_t now_ns) {
  for (size_t i = 0; i < ring.size(); ++i)
    if (const int other = ring[(place + i) % ring.size()]; !is_culprit(other))
      return tell(other, now_ns);
}

void Bypass::prepare(PollSet& set) {
  for (Told& told : told_) {
    set.wake_at(told.since_ns + (told.is_silent ? limit_ns_ : kAnswers_ns));
    if (told.stream)
      told.stream->prepare(set);
    else
      told.dialer->prepare(set);
  }
  for (Heard& heard : heard_) {
    set.wake_at(heard.since_ns + kHandshakeTimeoutNs);
    heard.stream.prepare(set);
  }
}

void Bypass::advance(const PollSet& set, int64_t now_ns) {
  std::vector<int> silent;
  std::erase_if(told_, [&](Told& told) {
    const bool is_over = this->is_over(told, set, now_ns);
    const bool is_late = is_over || now_ns - told.since_ns >= kAnswers_ns;
    if (is_late && !told.has_heard() && !std::exchange(told.is_silent, true))
      silent.push_back(told.peer);
    return is_over;
  });
  std::erase_if(heard_, [&](Heard& heard) { return is_over(heard, set, now_ns); });
  for (const int rank : silent) relay_around_silent(rank, now_ns);
}

bool Bypass::is_over(Told& told, const PollSet& set, int64_t now_ns) const {
  if (now_ns - told.since_ns >= limit_ns_) return true;
  if (!told.stream) {
    told.dialer->advance(set, now_ns);
    if (told.dialer->unanswered_rounds() >= kRoundsToGone) return true;  // it has ended
    if (told.dialer->state() == Dialer::State::working) return false;
    if (told.dialer->state() != Dialer::State::connected) return true;
    told.stream.emplace(told.dialer->take());
    told.stream->send(statements_.failure_frame());
  } else {
    told.stream->advance(set);
  }
  return told.has_heard();
}

bool Bypass::is_over(Heard& heard, const PollSet& set, int64_t now_ns) {
  for (const Frame& frame : heard.stream.advance(set))
    if (frame.type == FrameType::failure)
      statements_.take_failure(frame.payload, heard.peer, Statements::Origin::tree);
  return !heard.stream.is_open() || now_ns - heard.since_ns >= kHandshakeTimeoutNs;
}

void Bypass::relay_around_silent(int rank, int64_t now_ns) {
  const std::vector<int> others = neighbours_of(rank);
  if (is_first_epoch()) {
    for (const int other : others) tell(other, now_ns);
    return;
  }
  for (const std::vector<int>& ring : rings_)
    if (const auto at = std::ranges::find(ring, rank); at != ring.end())
      tell_next(ring, static_cast<size_t>(at - ring.begin()) + 1, now_ns);
  if (!others.empty()) tell(others.front(), now_ns);
  notify_ring(others, now_ns);
}

}  // namespace ropewalk::bootstrap
