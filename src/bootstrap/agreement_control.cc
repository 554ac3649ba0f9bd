#include "bootstrap/agreement_control.h"

#include <algorithm>
#include <cassert>

namespace ropewalk::bootstrap {

void AgreementControl::begin(Agreement::Setup setup, int64_t deadline_ns) {
  assert(is_over_ && !end_);
  setup.instance = ++begun_;
  decisions_.note_members(setup.members);
  deadline_ns_ = deadline_ns;
  is_over_ = false;
  const int64_t now_ns = setup.begun_ns;
  agreement_.emplace(std::move(setup));
  for (const int rank : ended_) agreement_->note_ended(rank);
  neighbours_ = tree_.neighbours();
  for (const int peer : neighbours_) agreement_->note_linked(peer);
  for (const AgreementConnection& link : connections_)
    if (link.stream) agreement_->note_linked(link.peer);
  for (const auto& [peer, message] : std::exchange(early_, {}))
    agreement_->hear(peer, message, now_ns);
}

void AgreementControl::hear(int peer, ConnectedSocket socket) {
  connections_.push_back({peer, nullptr, std::nullopt});
  add_connection(connections_.back(), std::move(socket));
}

void AgreementControl::add_connection(AgreementConnection& link, ConnectedSocket socket) {
  tune_control_stream(socket.fd.get(), link_timeout_);
  link.stream.emplace(std::move(socket));
  if (agreement_) agreement_->note_linked(link.peer);
  if (const Decision* before = decisions_.find(begun_ - 1))
    tell_decision(*link.stream, begun_ - 1, *before);
}

/// A member may have missed it, and the others are in the next agreement already.
void AgreementControl::tell_decision(FrameStream& stream, uint32_t instance,
                                     const Decision& decision) {
  stream.send(frame(AgreementMessage{
      .kind = AgreementMessage::Kind::decided, .instance = instance, .decision = decision}));
}

void AgreementControl::prepare(PollSet& set) {
  for (AgreementConnection& link : connections_)
    if (link.stream)
      link.stream->prepare(set);
    else
      link.dialer->prepare(set);
  if (is_over_) return;
  set.wake_at(agreement_->wake_at_ns());
  set.wake_at(deadline_ns_);
}

void AgreementControl::advance(const PollSet& set, int64_t now_ns) {
  if (!is_over_) look_at_tree();
  for (auto link = connections_.begin(); link != connections_.end();) {
    const auto it = link++;
    if (!is_over(*it, set, now_ns)) continue;
    const int peer = it->peer;
    const bool is_lost = it->stream && !ended_.contains(peer);
    connections_.erase(it);
    if (agreement_ && !has_connection(peer, true)) agreement_->note_unlinked(peer);
    if (is_lost) dial(peer);
  }
  if (agreement_ && !is_over_) {
    agreement_->advance(now_ns);
    for (const int peer : agreement_->links_wanted()) dial(peer);
  }
  send_messages();
  check_end(now_ns);
}

/// A connection that its other end closed tells that this rank's world there is over: it keeps
/// them. Where it was lost otherwise another is made, or its host tells that nothing listens.
bool AgreementControl::is_over(AgreementConnection& link, const PollSet& set, int64_t now_ns) {
  if (ended_.contains(link.peer)) return true;
  if (!link.stream) {
    link.dialer->advance(set, now_ns);
    if (link.dialer->state() == Dialer::State::connected) {
      add_connection(link, link.dialer->take());
    } else if (link.dialer->is_gone()) {
      note_ended(link.peer);
      return true;
    }
    return link.dialer->state() != Dialer::State::working && !link.stream;
  }
  for (const Frame& frame : link.stream->advance(set)) take(link.peer, frame, now_ns);
  if (link.stream->is_open()) return ended_.contains(link.peer);
  if (link.stream->was_closed()) note_ended(link.peer);
  return true;
}

/// Where a link has gone its peer may be there still.
void AgreementControl::look_at_tree() {
  const std::set<int> in_touch = tree_.neighbours();
  for (auto peer = neighbours_.begin(); peer != neighbours_.end();) {
    const int lost = *peer++;
    if (in_touch.contains(lost)) continue;
    neighbours_.erase(lost);
    if (has_connection(lost, true)) continue;
    agreement_->note_unlinked(lost);
    if (!ended_.contains(lost)) dial(lost);
  }
}

void AgreementControl::take(int peer, const Frame& frame, int64_t now_ns) {
  const auto message =
      frame.type == FrameType::agreement ? decode<AgreementMessage>(frame.payload) : std::nullopt;
  using Kind = AgreementMessage::Kind;
  if (message && (message->kind == Kind::decided || message->kind == Kind::gave_up))
    acknowledge(peer);  // who goes waits for that
  // Neither is a member that others could go on with.
  if (!message || message->kind == Kind::gave_up) return note_ended(peer);
  if (message->instance == begun_ && agreement_)
    agreement_->hear(peer, *message, now_ns);
  else if (message->instance <= begun_ || is_closed_)
    answer_alone(peer, *message);
  else if (message->instance == begun_ + 1)
    early_[peer] = *message;
  // What is of later ones will be said again: this rank is told that it is late.
}

void AgreementControl::acknowledge(int peer) const {
  for (const AgreementConnection& link : connections_)
    if (link.peer == peer && link.stream) link.stream->acknowledge();
  tree_.acknowledge(peer);
}

/// Another rank asks about what is over here, or will never begin.
void AgreementControl::answer_alone(int peer, const AgreementMessage& message) {
  if (const auto answer = decisions_.answer(message)) send(peer, *answer);
}

void AgreementControl::note_ended(int peer) {
  ended_.insert(peer);
  if (agreement_) agreement_->note_ended(peer);
}

bool AgreementControl::has_connection(int peer, bool open) const {
  return neighbours_.contains(peer) ||
         std::ranges::any_of(connections_, [&](const AgreementConnection& link) {
           return link.peer == peer && (!open || link.stream);
         });
}

void AgreementControl::dial(int peer) {
  if (has_connection(peer, false)) return;
  if (auto dialer = dial_(peer)) connections_.push_back({peer, std::move(dialer), std::nullopt});
}

/// Over the last: both may have dialed, and one that was cut may not have ended yet. Over the tree
/// where there is none.
void AgreementControl::send(int peer, const AgreementMessage& message) {
  const auto link = std::find_if(
      connections_.rbegin(), connections_.rend(),
      [peer](const AgreementConnection& link) { return link.peer == peer && link.stream; });
  if (link != connections_.rend())
    link->stream->send(frame(message));
  else
    tree_.send(peer, frame(message));
}

void AgreementControl::send_messages() {
  if (agreement_)
    for (const auto& [peer, message] : agreement_->take_messages()) send(peer, message);
  for (AgreementConnection& link : connections_)
    if (link.stream) link.stream->flush();
}

void AgreementControl::check_end(int64_t now_ns) {
  if (is_over_) return;
  if (agreement_->decision()) {
    decisions_.add(begun_, *agreement_->decision());
    end_ = AgreementEnd{agreement_->decision(), {}};
  } else if (agreement_->is_hopeless() || now_ns >= deadline_ns_) {
    end_ = AgreementEnd{{}, agreement_->seen()};
    agreement_->give_up();
    send_messages();
  } else {
    return;
  }
  is_over_ = true;
}

bool AgreementControl::flushed() const {
  return std::ranges::all_of(connections_, [](const AgreementConnection& link) {
    return !link.stream || link.stream->flushed();
  });
}

}  // namespace ropewalk::bootstrap
