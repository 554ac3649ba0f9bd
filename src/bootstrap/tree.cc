#include "bootstrap/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <ctime>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "bootstrap/net.h"

namespace ropewalk::bootstrap {
namespace {

constexpr int64_t kBeat_ns = 100 * kMillisecond_ns;
/// The same for each rank of the host where those are many: who hears it takes some 50 us of a CPU.
constexpr int64_t kBeatPerRank_ns = 1'600'000;
constexpr int64_t kBeatsMissedMax = 8;
/// Each rank sends a failure to all its neighbours, also to those who have sent it. Who needs
/// longer may have stopped.
constexpr int64_t kFailureReturns_ns = 100 * kMillisecond_ns;
/// In so long who has lost its parent finds another.
constexpr int64_t kOrphansCome_ns = 2000 * kMillisecond_ns;
/// By so much the kernel tells of a cut path before silence does.
constexpr int64_t kKernelTells_ns = 2000 * kMillisecond_ns;
constexpr const char* kDeadAdvice =
    "look at that rank's own output and at its host's kernel log (out of memory?)";
constexpr const char* kHasEnded = "died: its process has ended";
/// All hear all answers, so of many ranks less often.
constexpr int64_t kQuestionIntervalPerRank_ns = 25'000;
/// All hear all leaves as well. In jobs of so many those that come within this time go together.
constexpr int kManyLeave = 65;
constexpr int64_t kHoldLeavesPerRank_ns = 250'000;
constexpr int64_t kHoldLeavesMax_ns = 250 * kMillisecond_ns;

/// "16:43:05 UTC".
std::string utc_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  std::array<char, 16> text;
  text[std::strftime(text.data(), text.size(), "%H:%M:%S", gmtime_r(&now, &parts))] = '\0';
  return fmt::format("{} UTC", text.data());
}

}  // namespace

// A heartbeat must be missed several times before its absence means anything, so the silence
// allowed is never shorter than that of a few.
Tree::Tree(int rank, int size, std::chrono::nanoseconds timeout,
           std::chrono::nanoseconds link_timeout, JobMonitor& monitor, Statements& statements,
           const PeerTable& table, const DeathWatch& death_watch)
    : rank_(rank),
      size_(size),
      beat_min_ns_(std::min(int64_t{link_timeout.count()} / kBeatsMissedMax, kBeat_ns)),
      silence_max_ns_(std::max(timeout.count() / 2, kBeatsMissedMax * beat_min_ns_)),
      network_silence_max_ns_(
          std::max(silence_max_ns_, std::min(int64_t{link_timeout.count()} + kKernelTells_ns,
                                             int64_t{timeout.count()} / 4 * 3))),
      monitor_(monitor),
      statements_(statements),
      table_(table),
      death_watch_(death_watch),
      gone_(static_cast<size_t>(size), false),
      hold_leaves_ns_(
          size < kManyLeave ? 0 : std::min(size * kHoldLeavesPerRank_ns, kHoldLeavesMax_ns)),
      leaves_(static_cast<size_t>(size)),
      parent_(tree_parent(rank, size)),
      awaited_(size) {
  for (int other = rank; other < size; ++other) awaited_below_ += is_below(other);
}

bool Tree::is_below(int rank) const {
  while (rank > rank_) rank = tree_parent(rank, size_);
  return rank == rank_;
}

void Tree::add(int peer, ConnectedSocket socket, int64_t now_ns) {
  const bool is_local = is_within_host(socket.fd.get());
  links_.push_back({peer, FrameStream(std::move(socket)), now_ns,
                    is_local ? silence_max_ns_ : network_silence_max_ns_, is_local});
  FrameStream& stream = links_.back().stream;
  for (const Bytes& leave : leaves_)
    if (!leave.empty()) stream.send(leave);
  if (peer < rank_) parent_ = peer;
  if (failure_spread_) stream.send(statements_.failure_frame());
  next_beat_ns_ = now_ns;  // tells the new neighbour our interval
}

bool Tree::has(int peer) const {
  return std::ranges::count(links_, peer, &Edge::peer) != 0;
}

std::set<int> Tree::neighbours() const {
  std::set<int> peers;
  for (const Edge& link : links_)
    if (!link.given_up) peers.insert(link.peer);
  return peers;
}

void Tree::acknowledge(int peer) const {
  for (const Edge& link : links_)
    if (link.peer == peer) link.stream.acknowledge();
}

bool Tree::note_died(int peer) {
  const auto link = std::ranges::find(links_, peer, &Edge::peer);
  if (link == links_.end()) return false;
  close(*link, kHasEnded);
  links_.erase(link);
  return true;
}

void Tree::report_death(int rank) {
  monitor_.report(failure_at_end_of(rank, fmt::format("{} {}", describe(rank), kHasEnded)));
}

Failure Tree::failure_at_end_of(int peer, std::string reason) const {
  auto known = death_watch_.failure_known_to(peer, monitor_.epoch());
  const bool was_lost = known && known->code == ErrorCode::peer_lost;
  const bool is_cause = !known || known->peer == rank_ || (was_lost && known->peer == peer);
  if (is_cause)
    return {ErrorCode::peer_lost, "control", std::move(reason), kDeadAdvice, rank_, peer};
  if (was_lost && known->peer >= 0)
    reason = fmt::format("{} was lost, as {} found, which has ended since", describe(known->peer),
                         describe(peer));
  else
    reason =
        fmt::format("{} had failed, and has ended since: {}", describe(peer), name_of(known->code));
  return {known->code, "control", std::move(reason), kDeadAdvice, rank_, known->peer};
}

void Tree::send(int peer, const Bytes& frame) {
  for (Edge& link : links_)
    if (link.peer == peer) link.stream.send(frame);
}

void Tree::flood(const Bytes& frame, int except) {
  for (Edge& link : links_)
    if (link.peer != except) link.stream.send(frame);
}

void Tree::prepare(PollSet& set) {
  for (Edge& link : links_) {
    link.stream.prepare(set);
    if (!failure_spread_ && !link.given_up) set.wake_at(link.heard_ns + link.silence_max_ns);
    if (!link.held_leaves.empty()) set.wake_at(link.held_since_ns + hold_leaves_ns_);
    if (failure_spread_ && !link.knows && !link.is_uninformed)
      set.wake_at(spread_ns_ + kFailureReturns_ns);
  }
  if (!links_.empty() && !failure_spread_) set.wake_at(next_beat_ns_);
  if (const int64_t at_ns = gone_ns_ + kOrphansCome_ns; advanced_ns_ <= at_ns)
    set.wake_at(at_ns + kMillisecond_ns);
}

void Tree::flush() {
  for (Edge& link : links_) link.stream.flush();
}

std::vector<Tree::Inbound> Tree::advance(const PollSet& set, int64_t now_ns) {
  std::vector<Inbound> others;
  // While this process itself was stopped or starved, its neighbours were not silent: it was deaf.
  const int64_t late_ns = links_.empty() ? 0 : now_ns - next_beat_ns_;
  const int64_t deaf_ns = late_ns > beat_min_ns_ ? late_ns : 0;
  advanced_ns_ = now_ns;
  for (Edge& link : links_) {
    link.heard_ns = std::min(link.heard_ns + deaf_ns, now_ns);
    std::vector<Frame> frames = link.stream.advance(set);
    if (!frames.empty()) link.heard_ns = now_ns;
    for (Frame& frame : frames) handle(link, frame, others);
    if (link.stream.is_open()) {
      check_silence(link, now_ns);
    } else if (link.stream.forged()) {
      monitor_.report({ErrorCode::protocol, "control",
                       fmt::format("{}: {}", describe(link.peer), link.stream.why()), kForgedAdvice,
                       rank_, link.peer});
      link.stream.send(statements_.failure_frame());  // its other direction may be sound
      link.open = false;
    } else if (link.stream.nonsense()) {
      protocol_fault(link.peer);
      link.open = false;
    } else {
      close(link, (link.stream.cut_off() ? "is cut off: " : "died: ") + link.stream.why());
    }
  }
  links_.remove_if([](const Edge& link) { return !link.open; });
  spread_leaves();
  if (std::exchange(heard_leaves_, false)) monitor_.wake();  // once, where many leave together
  beat(now_ns);
  return others;
}

void Tree::handle(Edge& link, Frame& frame, std::vector<Inbound>& others) {
  switch (frame.type) {
    case FrameType::heartbeat:
      if (const auto beat = decode<Heartbeat>(frame.payload))
        link.silence_max_ns =
            std::max(link.silence_max_ns, kBeatsMissedMax * kMillisecond_ns * beat->interval_ms);
      else
        protocol_fault(link.peer);
      return;
    case FrameType::failure:
      return handle_failure(link, frame);
    case FrameType::leave:
      return handle_leave(link, frame);
    case FrameType::who_waits:
      return frame.payload.empty() ? answer_question(link.peer) : protocol_fault(link.peer);
    case FrameType::waits:
      return handle_waits(link, frame);
    default:
      others.push_back({link.peer, std::move(frame)});
  }
}

void Tree::handle_failure(Edge& link, const Frame& frame) {
  using AcceptResult = Statements::AcceptResult;
  const AcceptResult result =
      statements_.take_failure(frame.payload, link.peer, Statements::Origin::tree);
  if (result == AcceptResult::nonsense) protocol_fault(link.peer);
  if (result == AcceptResult::nonsense || result == AcceptResult::current) link.knows = true;
  link.stream.acknowledge();  // who goes waits for that
}

void Tree::handle_leave(const Edge& link, const Frame& frame) {
  const auto leave = decode<Signed<Leave>>(frame.payload);
  if (!leave || static_cast<int>(leave->message.rank) >= size_) return protocol_fault(link.peer);
  const auto rank = static_cast<int>(leave->message.rank);
  if (monitor_.has_left(rank)) return;
  if (!statements_.is_genuine_leave(*leave, link.peer)) return;
  leaves_[leave->message.rank] = bootstrap::frame(frame.type, frame.payload);
  monitor_.note_left(rank, leave->message.calls);
  heard_leaves_ = true;
  hold_leave(rank, link.peer);
  if (awaited_ == 0) link.stream.acknowledge();
  if (gone_ns_ != 0) gone_ns_ = advanced_ns_;
}

void Tree::hold_leave(int rank, int from) {
  --awaited_;
  if (is_below(rank)) --awaited_below_;
  for (Edge& link : links_) {
    if (link.peer == from) continue;
    if (link.held_leaves.empty()) link.held_since_ns = advanced_ns_;
    link.held_leaves.push_back(rank);
  }
}

/// Where all leave at once each link carries their leaves in one piece: up from whoever knows those
/// of all below it, down from whoever knows all.
void Tree::spread_leaves() {
  for (Edge& link : links_) {
    const bool is_whole = awaited_ == 0 || (awaited_below_ == 0 && link.peer == parent_);
    if (!is_whole && advanced_ns_ < link.held_since_ns + hold_leaves_ns_) continue;
    for (const int rank : std::exchange(link.held_leaves, {}))
      link.stream.send(leaves_[static_cast<size_t>(rank)]);
  }
}

void Tree::handle_waits(const Edge& link, const Frame& frame) {
  auto told = decode<Signed<Waits>>(frame.payload);
  const auto is_rank = [&](int rank) { return rank < size_; };
  const bool makes_sense = told && is_rank(static_cast<int>(told->message.rank)) &&
                           std::ranges::all_of(told->message.answer.waits, [&](const Wait& wait) {
                             return std::ranges::all_of(wait.waits_for(), is_rank);
                           });
  if (!makes_sense) return protocol_fault(link.peer);
  const auto rank = static_cast<int>(told->message.rank);
  if (!statements_.is_genuine(*told, link.peer)) return;
  flood(bootstrap::frame(*told), link.peer);
  monitor_.note_answer(rank, std::move(told->message.answer));
}

void Tree::answer_question(int from) {
  const int64_t interval_ns = kQuestionInterval_ns + size_ * kQuestionIntervalPerRank_ns;
  if (advanced_ns_ - answered_ns_ < interval_ns) return;
  answered_ns_ = advanced_ns_;
  flood(frame(FrameType::who_waits), from);
  flood(frame(statements_.sign(Waits{static_cast<uint32_t>(rank_), monitor_.answer()})));
}

void Tree::spread_question() {
  if (monitor_.take_question()) answer_question(-1);
}

void Tree::beat(int64_t now_ns) {
  if (failure_spread_ || now_ns < next_beat_ns_) return;  // then silence means nothing any more
  beat_ns_ = find_beat_ns();
  next_beat_ns_ = now_ns + beat_ns_;
  const auto interval_ms = static_cast<uint32_t>(std::max<int64_t>(beat_ns_ / kMillisecond_ns, 1));
  const Bytes heartbeat = frame(Heartbeat{interval_ms});
  for (Edge& link : links_)
    if (link.stream.idle()) link.stream.send(heartbeat);
}

int64_t Tree::find_beat_ns() const {
  const std::string& host = table_[static_cast<size_t>(rank_)].host_id;
  const int64_t wanted_ns =
      kBeatPerRank_ns * std::ranges::count(table_, host, &PeerRecord::host_id);
  return std::clamp(wanted_ns, beat_min_ns_, silence_max_ns_ / kBeatsMissedMax);
}

std::vector<int> Tree::take_uninformed(int64_t now_ns) {
  std::vector<int> unaware = std::exchange(uninformed_, {});
  if (!failure_spread_) return unaware;
  for (Edge& link : links_) {
    if (link.is_uninformed || link.knows || now_ns - spread_ns_ < kFailureReturns_ns) continue;
    link.is_uninformed = true;
    unaware.push_back(link.peer);
  }
  return unaware;
}

/// The link stays: should the neighbour come back, it finds there why it was given up.
void Tree::check_silence(Edge& link, int64_t now_ns) {
  const int64_t silent_ns = now_ns - link.heard_ns;
  if (silent_ns < link.silence_max_ns || link.given_up || monitor_.failure() != nullptr) return;
  link.given_up = true;
  report_silent(link,
                fmt::format("at {} rank {} gave {} up, which had not answered for {:.3g} s: "
                            "stopped, or its host hangs",
                            utc_text(), monitor_.rank_in_epoch(rank_), describe(link.peer),
                            static_cast<double>(silent_ns) / 1e9),
                kDeadAdvice);
}

void Tree::close(Edge& link, std::string reason) {
  link.open = false;
  if (!link.knows && !link.is_uninformed && !monitor_.has_left(link.peer))
    uninformed_.push_back(link.peer);
  if (monitor_.failure() != nullptr) return void(lost_.insert(link.peer));
  if (monitor_.has_left(link.peer)) return note_gone(link.peer);
  reason = describe(link.peer) + " " + reason;
  if (link.stream.cut_off()) return report_silent(link, std::move(reason), kNetworkAdvice);
  monitor_.report(failure_at_end_of(link.peer, std::move(reason)));
}

void Tree::report_silent(const Edge& link, std::string reason, const char* advice) {
  const Failure failure{
      ErrorCode::peer_lost, "control", std::move(reason), advice, rank_, link.peer};
  if (link.is_local)
    monitor_.report(failure);
  else
    monitor_.report_silent(failure);
}

void Tree::note_gone(int peer) {
  assert(monitor_.has_left(peer) || monitor_.has_left(rank_));
  gone_[static_cast<size_t>(peer)] = true;
  // Who goes after all has been quiet has waited for the same, and nobody is behind it.
  const bool was_quiet = gone_ns_ != 0 && advanced_ns_ - gone_ns_ > kOrphansCome_ns / 2;
  if (!was_quiet || !monitor_.has_left(rank_)) gone_ns_ = advanced_ns_;
  if (peer == parent_) parent_ = -1;
}

std::set<int> Tree::renew(const std::vector<int>& departed, int64_t now_ns) {
  const auto has_departed = [&](int rank) { return std::ranges::count(departed, rank) != 0; };
  for (const int rank : departed) {
    if (gone_[static_cast<size_t>(rank)]) continue;
    gone_[static_cast<size_t>(rank)] = true;
    if (!leaves_[static_cast<size_t>(rank)].empty()) continue;  // it has left before
    --awaited_;
    if (is_below(rank)) --awaited_below_;
  }
  links_.remove_if([&](const Edge& link) { return has_departed(link.peer); });
  for (Edge& link : links_) {
    link.knows = link.is_uninformed = link.given_up = false;
    link.heard_ns = now_ns;
  }
  if (parent_ >= 0 && !has(parent_)) parent_ = -1;
  uninformed_.clear();
  failure_spread_ = false;
  gone_ns_ = now_ns;  // who has lost its parent comes
  next_beat_ns_ = now_ns + beat_min_ns_;
  return std::exchange(lost_, {});
}

void Tree::note_informed(int peer) {
  for (Edge& link : links_) link.knows |= link.peer == peer;
}

std::vector<int> Tree::parents_wanted() const {
  std::vector<int> candidates;
  if (parent_ >= 0 || rank_ == 0) return candidates;
  const auto add = [&](int rank) {
    const bool is_there = !gone_[static_cast<size_t>(rank)];
    if (is_there && std::ranges::count(candidates, rank) == 0) candidates.push_back(rank);
  };
  for (int rank = tree_parent(rank_, size_); rank >= 0; rank = tree_parent(rank, size_)) add(rank);
  for (int rank = 0; rank < rank_; ++rank) add(rank);
  return candidates;
}

bool Tree::is_alone() const {
  const auto has_left = [&](const Edge& link) { return monitor_.has_left(link.peer); };
  return (links_.empty() || gone_ns_ != 0) && std::ranges::all_of(links_, has_left) &&
         parents_wanted().empty() && !monitor_.silence() &&
         advanced_ns_ - gone_ns_ > kOrphansCome_ns;
}

void Tree::protocol_fault(int peer) {
  monitor_.report({ErrorCode::protocol, "control",
                   describe(peer) + " sent a control message that makes no sense",
                   "install the same Ropewalk on every rank", rank_, peer});
}

void Tree::spread_failure() {
  if (failure_spread_ || monitor_.failure() == nullptr) return;
  failure_spread_ = true;
  spread_ns_ = advanced_ns_;
  flood(statements_.failure_frame());
}

void Tree::announce_leave(const CallsMade& calls) {
  if (!monitor_.mark_left(rank_, calls)) return;
  leaves_[static_cast<size_t>(rank_)] = frame(
      statements_.sign(Leave{static_cast<uint32_t>(rank_), calls, statements_.leave_token()}));
  hold_leave(rank_, -1);
  spread_leaves();
}

bool Tree::flushed() const {
  return std::ranges::all_of(links_, [&](const Edge& link) {
    return link.held_leaves.empty() && link.stream.flushed() &&
           (!failure_spread_ || link.knows || link.is_uninformed);
  });
}

std::string Tree::describe(int rank) const {
  const PeerRecord& record = table_[static_cast<size_t>(rank)];
  const int number = monitor_.rank_in_epoch(rank);
  return record.rank == rank ? bootstrap::describe(record, number) : fmt::format("rank {}", number);
}

}  // namespace ropewalk::bootstrap
