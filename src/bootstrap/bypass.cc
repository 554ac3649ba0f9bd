#include "bootstrap/bypass.h"

#include <algorithm>
#include <utility>

#include "bootstrap/tree.h"

namespace ropewalk::bootstrap {

void Bypass::tell(std::unique_ptr<Dialer> dialer, int64_t deadline_ns) {
  told_.push_back({std::move(dialer), {}, deadline_ns});
}

void Bypass::hear(int peer, ConnectedSocket socket, int64_t deadline_ns) {
  heard_.push_back({peer, FrameStream(std::move(socket)), deadline_ns});
}

void Bypass::prepare(PollSet& set) {
  for (Told& told : told_) {
    set.wake_at(told.deadline_ns);
    if (told.stream)
      told.stream->prepare(set);
    else
      told.dialer->prepare(set);
  }
  for (Heard& heard : heard_) {
    set.wake_at(heard.deadline_ns);
    heard.stream.prepare(set);
  }
}

void Bypass::advance(const PollSet& set, int64_t now_ns) {
  std::erase_if(told_, [&](Told& told) { return is_told(told, set, now_ns); });
  std::erase_if(heard_, [&](Heard& heard) { return is_heard(heard, set, now_ns); });
}

bool Bypass::is_told(Told& told, const PollSet& set, int64_t now_ns) const {
  if (now_ns >= told.deadline_ns) return true;
  if (!told.stream) {
    told.dialer->advance(set, now_ns);
    if (told.dialer->unanswered_rounds() >= kRoundsToGone) return true;
    if (told.dialer->state() == Dialer::State::working) return false;
    if (told.dialer->state() != Dialer::State::connected) return true;
    told.stream.emplace(told.dialer->take());
    told.stream->send(statements_.failure_frame());
  } else {
    told.stream->advance(set);
  }
  return told.stream->flushed();
}

bool Bypass::is_heard(Heard& heard, const PollSet& set, int64_t now_ns) {
  for (const Frame& frame : heard.stream.advance(set))
    if (frame.type == FrameType::failure)
      statements_.take_failure(frame.payload, heard.peer, Statements::Link::tree);
  return !heard.stream.is_open() || now_ns >= heard.deadline_ns;
}

std::vector<int> told_around(int silent, int rank, int size, const JobMonitor& monitor) {
  std::vector<int> neighbours;
  if (silent > 0) neighbours.push_back(tree_parent(silent));
  for (int child = kTreeArity * silent + 1; child <= kTreeArity * (silent + 1); ++child)
    if (child < size) neighbours.push_back(child);
  std::erase_if(neighbours, [&](int neighbour) { return monitor.has_left(neighbour); });
  if (!neighbours.empty() && neighbours.front() != rank) return {neighbours.front()};
  std::erase(neighbours, rank);
  return neighbours;
}

}  // namespace ropewalk::bootstrap
