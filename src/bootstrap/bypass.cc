#include "bootstrap/bypass.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "bootstrap/tree.h"

namespace ropewalk::bootstrap {
namespace {

/// Who needs longer to answer may be stopped.
constexpr int64_t kAnswers_ns = 200 * kMillisecond_ns;

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

void Bypass::go_around(int neighbour, int64_t now_ns) {
  assert(monitor_.failure() != nullptr);
  if (!done_.insert(neighbour).second) return;
  std::vector<int> others = neighbours_of(neighbour);
  if (!others.empty() && others.front() != rank_) others.resize(1);
  for (const int other : others) tell(other, now_ns);
}

void Bypass::hear(int peer, ConnectedSocket socket, int64_t now_ns) {
  heard_.push_back({peer, FrameStream(std::move(socket)), now_ns});
}

void Bypass::renew() {
  done_ = {rank_};
  told_.clear();
}

/// The parent first. Without those who have left. In a later epoch links may be others than at
/// first: then all are told.
std::vector<int> Bypass::neighbours_of(int rank) const {
  std::vector<int> neighbours;
  if (monitor_.epoch() > 0) {
    for (int other = 0; other < size_; ++other)
      if (other != rank && !monitor_.has_left(other)) neighbours.push_back(other);
    return neighbours;
  }
  if (rank > 0) neighbours.push_back(tree_parent(rank, size_));
  const auto [begin, end] = tree_children(rank, size_);
  for (int child = begin; child < end; ++child) neighbours.push_back(child);
  std::erase_if(neighbours, [&](int neighbour) { return monitor_.has_left(neighbour); });
  return neighbours;
}

void Bypass::tell(int peer, int64_t now_ns) {
  const std::vector<int>& culprits = monitor_.failure()->peers;
  if (std::ranges::count(culprits, peer) != 0 || !done_.insert(peer).second) return;
  if (auto dialer = dial_(peer)) told_.push_back({peer, std::move(dialer), now_ns, {}, false});
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
  std::erase_if(told_, [&](Told& told) { return is_over(told, set, now_ns); });
  std::erase_if(heard_, [&](Heard& heard) { return is_over(heard, set, now_ns); });
  go_around_silent(now_ns);
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
  return told.stream->flushed();
}

bool Bypass::is_over(Heard& heard, const PollSet& set, int64_t now_ns) {
  for (const Frame& frame : heard.stream.advance(set))
    if (frame.type == FrameType::failure)
      statements_.take_failure(frame.payload, heard.peer, Statements::Link::tree);
  return !heard.stream.is_open() || now_ns - heard.since_ns >= kHandshakeTimeoutNs;
}

void Bypass::go_around_silent(int64_t now_ns) {
  std::vector<int> silent;
  for (Told& told : told_) {
    if (told.is_silent || now_ns - told.since_ns < kAnswers_ns) continue;
    told.is_silent = true;
    silent.push_back(told.peer);
  }
  for (const int rank : silent)
    for (const int other : neighbours_of(rank)) tell(other, now_ns);
}

}  // namespace ropewalk::bootstrap
