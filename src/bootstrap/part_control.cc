#include "bootstrap/part_control.h"

#include <algorithm>
#include <utility>

namespace ropewalk::bootstrap {
namespace {

/// Of frames that a new neighbour may have missed.
constexpr size_t kPassedMax = 1024;

}  // namespace

PartControl::PartControl(int rank, int size, JobMonitor& monitor, Statements& statements,
                         Tree& tree, Parts& parts)
    : rank_(rank),
      size_(size),
      monitor_(monitor),
      statements_(statements),
      tree_(tree),
      parts_(parts) {}

void PartControl::handle(int peer, const Frame& frame, int64_t now_ns) {
  switch (frame.type) {
    case FrameType::part_failure:
      return take<PartFailure>(peer, frame);
    case FrameType::part_leave:
      return take<PartLeave>(peer, frame);
    case FrameType::part_waits:
      return take<PartWaits>(peer, frame);
    default:
      return take_question(peer, frame, now_ns);
  }
}

template <class Message>
void PartControl::take(int peer, const Frame& received) {
  auto said = decode<Signed<Message>>(received.payload);
  if (!said || said->message.rank >= static_cast<uint32_t>(size_))
    return tree_.protocol_fault(peer);
  const auto part = parts_.find(said->message.part);
  // None: it is of another part of the same number, of other ranks.
  const int rank =
      part == nullptr ? -1 : rank_among(part->members(), static_cast<int>(said->message.rank));
  if (rank >= 0 && !statements_.is_genuine(*said, peer)) return;
  pass_on(frame(*said), peer);
  if (rank >= 0) take(*part, rank, said->message);
}

void PartControl::take(Part& part, int rank, PartFailure& said) {
  Failure& failure = said.failure;
  const auto is_rank = [&](int peer) { return peer < static_cast<int>(part.members().size()); };
  if (!std::ranges::all_of(failure.peers, is_rank))
    return tree_.protocol_fault(static_cast<int>(said.rank));
  failure.rank = rank;
  part.failure_told_ = true;  // once is enough
  part.monitor().keep(failure);
}

void PartControl::take(Part& part, int rank, PartLeave& leave) {
  part.monitor().mark_left(rank, std::move(leave.calls));
}

void PartControl::take(Part& part, int rank, PartWaits& waits) {
  const auto is_rank = [&](int peer) { return peer < static_cast<int>(part.members().size()); };
  for (const Wait& wait : waits.answer.waits)
    if (!std::ranges::all_of(wait.waits_for(), is_rank))
      return tree_.protocol_fault(static_cast<int>(waits.rank));
  part.monitor().note_answer(rank, std::move(waits.answer));
}

void PartControl::take_question(int peer, const Frame& received, int64_t now_ns) {
  const auto question = decode<PartQuestion>(received.payload);
  if (!question) return tree_.protocol_fault(peer);
  pass_on(frame(*question), peer);
  if (const auto part = parts_.find(question->part)) answer(*part, now_ns);
}

void PartControl::answer(Part& part, int64_t now_ns) {
  if (now_ns - part.answered_ns_ < kQuestionInterval_ns) return;
  part.answered_ns_ = now_ns;
  say(PartWaits{part.number(), static_cast<uint32_t>(rank_), part.monitor().answer()});
}

template <class Message>
void PartControl::say(Message message) {
  pass_on(frame(statements_.sign(std::move(message))), -1);
}

void PartControl::pass_on(const Bytes& frame, int from) {
  tree_.flood(frame, from);
  passed_.push_back(frame);
  if (passed_.size() > kPassedMax) passed_.pop_front();
}

void PartControl::greet(int new_neighbour) {
  for (const Bytes& frame : passed_) tree_.send(new_neighbour, frame);
}

void PartControl::advance(int64_t now_ns) {
  const Failure* const of_job = monitor_.failure();
  const bool is_new = of_job != nullptr && !std::exchange(told_of_job_, true);
  for (const auto& part : is_new ? parts_.all() : parts_.find(monitor_.take_changed_parts())) {
    JobMonitor& monitor = part->monitor();
    const bool has_ended = part->has_ended_;  // what is said below was to be said before
    if (has_ended) parts_.remove(*part);
    if (of_job != nullptr) {
      Failure seen = seen_from_part(*of_job, part->members());
      seen.reason = "in the job, by the numbers that ranks have there: " + seen.reason;
      monitor.keep(seen);
    }
    if (monitor.failure() != nullptr && !std::exchange(part->on_failure_called_, true)) {
      const std::lock_guard lock(part->mutex_);
      if (part->on_failure_) part->on_failure_();
    }
    if (of_job != nullptr) continue;
    const auto own = static_cast<uint32_t>(rank_);
    if (const Failure* failure = monitor.failure();
        failure != nullptr && !std::exchange(part->failure_told_, true))
      say(PartFailure{part->number(), own, *failure});
    if (const auto calls = monitor.calls_of(monitor.rank());
        calls && !std::exchange(part->leave_told_, true))
      say(PartLeave{part->number(), own, *calls});
    if (monitor.take_question()) {
      pass_on(frame(PartQuestion{part->number()}), -1);
      answer(*part, now_ns);
    }
  }
}

}  // namespace ropewalk::bootstrap
