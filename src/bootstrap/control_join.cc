#include <algorithm>
#include <cassert>
#include <set>
#include <utility>

#include "base/log.h"
#include "bootstrap/control.h"

namespace ropewalk::bootstrap {
namespace {

/// So long a local registrar may take to answer, and no more than a quarter of the time there is.
constexpr int64_t kLocalMaxNs = 5000 * kMillisecond_ns;
/// Before it passes on what came, a local registrar waits for another: so many times as long as was
/// between those that came, within these limits, and so long in all.
constexpr int64_t kGatherIntervals = 8;
constexpr int64_t kGatherPauseMinNs = 4 * kMillisecond_ns, kGatherPauseMaxNs = 40 * kMillisecond_ns;
constexpr int64_t kGatherMaxNs = 250 * kMillisecond_ns;
/// What rank 0 says at the end of the time to join comes later through a local registrar.
constexpr int64_t kPassedOnNs = 500 * kMillisecond_ns;
/// So long after joining ranks are done with their first calls.
constexpr int64_t kQuietAfterNs = 50 * kMillisecond_ns;
constexpr int64_t kLookUpIntervalNs = 5000 * kMillisecond_ns;

double milliseconds(int64_t time_ns) {
  return static_cast<double>(time_ns) / 1e6;
}

}  // namespace

bool ControlSetup::look_up_coordinator(std::string& why) {
  std::vector<SocketAddress> addresses;
  std::vector<size_t> names;
  const auto endpoints = parse_endpoints(coordinator_text);
  for (size_t name = 0; name < endpoints.size(); ++name) {
    std::ranges::copy(resolve(endpoints[name], why), std::back_inserter(addresses));
    names.resize(addresses.size(), name);
  }
  if (addresses.empty()) return false;
  coordinator = std::move(addresses);
  coordinator_names = std::move(names);
  return true;
}

void Control::start_joining() {
  const auto [begin, end] = tree_children(setup_.rank, setup_.size);
  for (int rank = begin; rank < end; ++rank) children_not_ready_.insert(rank);
  if (setup_.rank == 0) {
    table_.set(0, setup_.record);
    registrar_.emplace(table_, 0, setup_.deadline_ns, monitor_, statements_);
  } else {
    if (setup_.size > kJoinGroupMin)
      local_until_ns_ = start_ns_ + std::min(kLocalMaxNs, setup_.config.time_to_join().count() / 4);
    find_registrar(start_ns_);
  }
}

/// Of the ranks of a group that are on one host, the first to listen there is the local registrar
/// of the others. Where it goes away, as if it had never been there, another follows.
void Control::find_registrar(int64_t now_ns) {
  const bool is_before = std::exchange(is_dialing_local_, false);
  if (now_ns < local_until_ns_ && !local_registrar_) {
    const SocketAddress local = SocketAddress::abstract(local_registrar_name(
        job_key_, setup_.coordinator_text, setup_.size, join_group(setup_.rank, setup_.size)));
    UniqueFd listener;
    const int error = try_listen(local, listener);
    is_dialing_local_ = error == EADDRINUSE;
    if (is_dialing_local_ && is_before) return;  // it dials again by itself
    if (is_dialing_local_) {
      coordinator_dial_ =
          std::make_unique<Dialer>(std::vector{local}, hello_for(Purpose::join, 0, 0), job_key_);
      return;
    }
    if (error != 0) {
      log(LogLevel::info, setup_.rank, "no local registrar: {}", errno_text(error));
      local_until_ns_ = 0;
      return dial_coordinator();
    }
    acceptor_.listen_for_joins(std::move(listener));
    acceptor_.take_joins();
    local_table_.emplace(table_.size());
    local_table_->set(static_cast<size_t>(setup_.rank), setup_.record);
    local_registrar_.emplace(*local_table_, setup_.rank, setup_.deadline_ns, monitor_, statements_);
    listening_since_ns_ = now_ns;
  }
  dial_coordinator();
}

void Control::dial_coordinator() {
  look_up_next_ns_ = clock_.now_ns() + kLookUpIntervalNs;
  coordinator_dial_ = std::make_unique<Dialer>(setup_.coordinator, hello_for(Purpose::join, 0, 0),
                                               job_key_, setup_.coordinator_names);
}

/// Where nothing answers, the name may mean another address by now: a pod's that was replaced. The
/// resolver may block this thread: others that join through it wait as well.
void Control::look_up_again(int64_t now_ns) {
  const Dialer& dial = *coordinator_dial_;
  const bool is_unanswered =
      dial.state() == Dialer::State::working && dial.is_pausing() && dial.unanswered_rounds() > 0;
  if (now_ns < look_up_next_ns_ || !is_unanswered) return;
  look_up_next_ns_ = now_ns + kLookUpIntervalNs;
  if (!std::exchange(waiting_told_, true))
    log(LogLevel::warn, setup_.rank, "waiting for rank 0 at {} ({})", setup_.coordinator_text,
        dial.why());
  const std::vector<SocketAddress> before = setup_.coordinator;
  const auto is_known = [&](const SocketAddress& address) {
    return std::ranges::any_of(
        before, [&](const SocketAddress& known) { return known.text() == address.text(); });
  };
  std::string why;
  if (!setup_.look_up_coordinator(why) || std::ranges::all_of(setup_.coordinator, is_known)) return;
  log(LogLevel::info, setup_.rank, "{} has another address now: {}", setup_.coordinator_text,
      setup_.coordinator[0].text());
  dial_coordinator();
}

void Control::advance_joining(int64_t now_ns) {
  if (registrar_) advance_registrar(now_ns);
  if (local_registrar_) advance_local_registrar(now_ns);
  if (coordinator_dial_)
    advance_coordinator_dial(now_ns);
  else if (registration_)
    advance_registration(now_ns);
  if (parent_dial_) advance_parent_dial(now_ns);
  pass_on_readiness(now_ns);
  check_join_deadline(now_ns);
}

void Control::advance_registrar(int64_t now_ns) {
  registrar_->advance(set_, now_ns);
  if (monitor_.failure() != nullptr || session_key_ || !registrar_->complete()) return;
  mark_phase("registered");
  const WorldId world = random_world_id();
  session_key_ = session_key(job_key_, world);
  acceptor_.set_session_key(*session_key_);
  statements_.set_world(world);
  statements_.trust_table();
  records_known_ = setup_.size;
  for (Bytes& frame : record_frames(table_)) {
    known_digest_ = digest_with(known_digest_, ByteSpan(frame).subspan(kFrameHeaderBytes));
    record_frames_.push_back(std::make_shared<const Bytes>(std::move(frame)));
  }
  registrar_->send_places(world, known_digest_);
}

/// What others of this host have said is passed on once rank 0 is found. Launchers start ranks one
/// after the other: those that come close together go together, or rank 0 would wake for each.
void Control::advance_local_registrar(int64_t now_ns) {
  local_registrar_->advance(set_, now_ns);
  if (const size_t came = local_registrar_->joined_here(); came != gathered_) {
    if (gathered_ == 0) gathered_first_ns_ = now_ns;
    gathered_ = came;
    gathered_last_ns_ = now_ns;
  }
  if (!registration_ || gathered_ == 0 || now_ns < gathered_until_ns()) return;
  gathered_ = 0;
  send_joined(local_registrar_->take_joined(), now_ns);
}

/// Keeps what it sends: should this rank be sent to another, that has to hear of it, too.
void Control::send_joined(std::vector<Registrar::Joined> joined, int64_t now_ns) {
  std::vector<Joiner> joiners;
  for (auto& [joiner, deadline_ns, entry] : joined) {
    prefer(joiner.record.addresses, coordinator_seen_from_);
    joiner.remaining_ms =
        static_cast<uint32_t>(std::max<int64_t>((deadline_ns - now_ns) / kMillisecond_ns, 0));
    joiners.push_back(joiner);
  }
  std::ranges::move(joined, std::back_inserter(passed_on_));
  std::ranges::sort(joiners, {}, [](const Joiner& joiner) { return joiner.record.rank; });
  for (const Bytes& frame : join_frames(static_cast<uint32_t>(setup_.size), joiners))
    registration_->send(frame);
}

int64_t Control::gathered_until_ns() const {
  assert(local_registrar_ && gathered_ > 0);
  if (local_registrar_->has_group()) return gathered_first_ns_;
  const auto others = static_cast<int64_t>(local_registrar_->others());
  const int64_t between_ns =
      (gathered_last_ns_ - listening_since_ns_) / std::max<int64_t>(others, 1);
  const int64_t pause_ns =
      std::clamp(kGatherIntervals * between_ns, kGatherPauseMinNs, kGatherPauseMaxNs);
  return std::min(gathered_last_ns_ + pause_ns, gathered_first_ns_ + kGatherMaxNs);
}

void Control::advance_coordinator_dial(int64_t now_ns) {
  coordinator_dial_->advance(set_, now_ns);
  const bool is_refused = coordinator_dial_->state() == Dialer::State::refused;
  if (is_dialing_local_ && (is_refused || coordinator_dial_->is_denied())) {
    local_until_ns_ = 0;  // what listens there is none of this job's
    return find_registrar(now_ns);
  }
  const bool is_dialing_leader = leader_until_ns_ != 0;
  if (is_dialing_leader &&
      (is_refused || coordinator_dial_->rounds() > 0 || now_ns >= leader_until_ns_)) {
    log(LogLevel::info, setup_.rank, "rank {} does not take this rank ({})", leader_,
        coordinator_dial_->why());
    leader_until_ns_ = 0;
    return dial_coordinator();
  }
  if (!is_dialing_local_ && !is_dialing_leader) look_up_again(now_ns);
  if (is_refused) {
    const bool key = !coordinator_dial_->found_job();
    return fail(ErrorCode::refused,
                key ? "the coordinator refused the job key; is ROPEWALK_JOB_KEY the same on every "
                      "rank?"
                    : fmt::format("the coordinator has {}", coordinator_dial_->why()),
                key ? "another job may also be listening at " + setup_.coordinator_text
                    : "install the same Ropewalk on every rank",
                0);
  }
  if (coordinator_dial_->state() != Dialer::State::connected) {
    const bool is_gone = coordinator_dial_->is_pausing() || now_ns >= local_until_ns_;
    if (is_dialing_local_ && is_gone) find_registrar(now_ns);
    return;
  }
  const SocketAddress address = coordinator_dial_->address();
  ConnectedSocket socket = coordinator_dial_->take();
  coordinator_dial_.reset();
  if (!is_dialing_local_ && !is_dialing_leader) coordinator_ = address;
  join_at_registrar(std::move(socket), now_ns);
}

void Control::join_at_registrar(ConnectedSocket socket, int64_t now_ns) {
  is_through_local_ = std::exchange(is_dialing_local_, false);
  is_through_leader_ = std::exchange(leader_until_ns_, 0) != 0;
  PeerRecord record = setup_.record;
  if (!is_through_local_) {
    tune_control_stream(socket.fd.get(), setup_.config.link_timeout);
    if (!is_through_leader_) coordinator_seen_from_ = local_address(socket.fd.get());
    prefer(record.addresses, coordinator_seen_from_);
  }
  registrar_text_ = is_through_local_    ? fmt::format("the local registrar (pid {} of this host)",
                                                       peer_pid(socket.fd.get()))
                    : is_through_leader_ ? fmt::format("rank {}", leader_)
                                         : "rank 0";
  registration_.emplace(std::move(socket));
  const int64_t remaining_ms =
      std::max<int64_t>((setup_.deadline_ns - now_ns) / kMillisecond_ns, 0);
  registration_->send(frame(Join{static_cast<uint32_t>(setup_.size),
                                 {{static_cast<uint32_t>(remaining_ms), std::move(record)}}}));
  send_joined(std::exchange(passed_on_, {}), now_ns);
  mark_phase(is_through_local_    ? "found the local registrar"
             : is_through_leader_ ? "found another rank to join through"
                                  : "found the coordinator");
}

/// Rank 0 has connections enough: this rank joins through one that it has taken already. Once:
/// where that one does not take it rank 0 does.
void Control::follow_redirect(const Frame& frame, int64_t now_ns) {
  const auto redirect = decode<Redirect>(frame.payload);
  const int to = redirect ? redirect->to.rank : -1;
  if (is_through_other() || session_key_ || leader_ >= 0 || to <= 0 || to >= setup_.size ||
      to == setup_.rank)
    return fail_protocol("rank 0 sent this rank to one that makes no sense", 0);
  leader_ = to;
  leader_until_ns_ = now_ns + std::min(kLocalMaxNs, setup_.config.time_to_join().count() / 4);
  registration_.reset();
  std::vector<SocketAddress> addresses;
  for (const std::string& text : redirect->to.addresses)
    if (const auto address = numeric_address(text)) addresses.push_back(*address);
  if (addresses.empty()) {
    leader_until_ns_ = 0;
    return dial_coordinator();
  }
  coordinator_dial_ =
      std::make_unique<Dialer>(std::move(addresses), hello_for(Purpose::join, 0, 0), job_key_);
}

/// Once joined, too: where this rank has joined through another, that closes first, so that it can
/// tell the end of joining from that of this rank.
void Control::advance_registration(int64_t now_ns) {
  for (const Frame& frame : registration_->advance(set_)) {
    if (frame.type == FrameType::redirect) return follow_redirect(frame, now_ns);
    if (frame.type == FrameType::place) {
      take_place(frame);
    } else if (frame.type != FrameType::failure ||
               statements_.take_failure(frame.payload, 0, Statements::Origin::join) ==
                   Statements::AcceptResult::nonsense) {
      fail_protocol(registrar_text_ + " sent a message that makes no sense", registrar_rank());
    }
  }
  if (registration_->is_open()) return;
  // With its place this rank needs rank 0 no more, which closes when all are linked.
  const bool is_placed = session_key_.has_value();
  const bool is_forged = registration_->forged();
  if (is_forged) {
    fail(ErrorCode::protocol, registrar_text_ + ": " + registration_->why(), kForgedAdvice,
         registrar_rank());
    registration_->send(statements_.failure_frame());  // its other direction may be sound
  } else if (!is_placed && !is_through_other()) {
    fail(ErrorCode::peer_lost, "rank 0 died or gave up while joining: " + registration_->why(),
         "look at rank 0's own output", 0);
  }
  registration_.reset();
  // Rank 0 knows why the local registrar has gone, where that had come so far.
  if (is_placed || is_forged || !is_through_other()) return;
  if (is_through_leader_) return dial_coordinator();
  find_registrar(now_ns);
}

void Control::take_place(const Frame& frame) {
  auto place = decode<Place>(frame.payload);
  const auto makes_no_sense = [this] {
    fail_protocol(registrar_text_ + " sent a place that makes no sense", registrar_rank());
  };
  const auto rank_beyond = [](const Place& of) { return of.rank + of.ranks; };
  if (!place || rank_beyond(*place) > setup_.size) return makes_no_sense();
  bool is_own = false;
  Place one = *place;
  one.ranks = 1;
  if (coordinator_) one.coordinator = coordinator_->text();
  for (; one.rank < rank_beyond(*place); ++one.rank) {
    if (one.rank == setup_.rank)
      is_own = true;
    else if (!local_registrar_ || !local_registrar_->pass_on(one))
      return makes_no_sense();
  }
  const int parent = own_parent();
  if (!is_own) return;
  if (session_key_ || place->parent.rank != parent) return makes_no_sense();
  mark_phase("all registered");
  session_key_ = session_key(job_key_, place->world);
  acceptor_.set_session_key(*session_key_);
  acceptor_.close_coordinator();
  statements_.set_world(place->world);
  whole_digest_ = place->table;
  if (is_through_local_) coordinator_ = numeric_address(place->coordinator);
  passed_on_.clear();
  table_.set(static_cast<size_t>(parent), place->parent);
  parent_dial_ = dial(Purpose::tree, parent, 0);
}

void Control::advance_parent_dial(int64_t now_ns) {
  parent_dial_->advance(set_, now_ns);
  if (parent_dial_->state() != Dialer::State::connected) return;
  link(own_parent(), parent_dial_->take(), now_ns);
  parent_dial_.reset();
}

void Control::handle_join_frame(int peer, const Frame& frame) {
  const bool from_parent = peer == own_parent();
  const FrameType type = frame.type;
  if (type == FrameType::records && from_parent && records_known_ < setup_.size) {
    take_records(frame);
  } else if (type == FrameType::ready && !from_parent) {
    children_not_ready_.erase(peer);
  } else if (type == FrameType::go && from_parent && ready_sent_ && !is_joined_) {
    finish_joining(clock_.now_ns());
  } else {
    fail_protocol(tree_.describe(peer) + " sent a message out of place", peer);
  }
}

void Control::take_records(const Frame& frame) {
  known_digest_ = digest_with(known_digest_, frame.payload);
  const auto [begin, end] = tree_children(setup_.rank, setup_.size);
  const RecordsFrame came = share_records(known_digest_, frame, begin < end);
  const auto makes_no_sense = [this] {
    fail_protocol("a record came that makes no sense", own_parent());
  };
  if (!came.records) return makes_no_sense();
  for (const PeerRecord& record : *came.records) {
    if (record.rank != records_known_ || records_known_ == setup_.size) return makes_no_sense();
    table_.share(static_cast<size_t>(records_known_++), {came.records, &record});
  }
  const bool is_complete = records_known_ == setup_.size;
  // Before the last is passed on: so that nobody below this rank takes it for who has changed them.
  if (is_complete && known_digest_ != whole_digest_)
    return fail(ErrorCode::protocol,
                fmt::format("{} has changed records of other ranks", tree_.describe(own_parent())),
                kForgerAdvice, own_parent());
  if (is_complete && !is_same_record(table_[static_cast<size_t>(setup_.rank)], setup_.record))
    return fail(ErrorCode::protocol,
                fmt::format("this rank's record was changed on the way to rank 0, by rank 0{}",
                            is_through_other() ? " or " + registrar_text_ : ""),
                kForgerAdvice, registrar_rank());
  if (is_complete) statements_.trust_table();
  if (came.frame) tree_.flood(*came.frame, own_parent());
  if (!children_not_ready_.empty()) record_frames_.push_back(came.frame);
}

void Control::pass_on_readiness(int64_t now_ns) {
  const bool linked = records_known_ == setup_.size && children_not_ready_.empty();
  if (is_joined_ || ready_sent_ || !linked) return;
  ready_sent_ = true;
  setup_.death_watch->enter(table_, setup_.rank);
  if (setup_.rank != 0) {
    mark_phase("linked");
    return tree_.send(own_parent(), frame(FrameType::ready));
  }
  mark_phase("all linked");
  finish_joining(now_ns);
}

void Control::finish_joining(int64_t now_ns) {
  tree_.flood(frame(FrameType::go), own_parent());
  is_joined_ = true;
  setup_.death_watch->begin();
  if (setup_.config.elastic) key_pairs_at_ns_ = now_ns + kQuietAfterNs;
  registrar_.reset();
  local_registrar_.reset();
  local_table_.reset();
  if (!is_through_other()) registration_.reset();
  record_frames_ = {};
  acceptor_.close_coordinator();
  log(LogLevel::info, setup_.rank, "joined {} ranks in {:.2f} ms ({})", setup_.size,
      milliseconds(now_ns - start_ns_), phases_);
}

int64_t Control::join_deadline_ns() const {
  if (registrar_) return registrar_->deadline_ns();
  return setup_.deadline_ns + (is_through_other() ? kPassedOnNs : 0);
}

void Control::check_join_deadline(int64_t now_ns) {
  if (is_joined_ || monitor_.failure() != nullptr || now_ns < join_deadline_ns()) return;
  const std::string limit = fmt::format(
      "within {:.3g} s", std::chrono::duration<double>(setup_.config.time_to_join()).count());
  const auto late = [this](std::string reason, std::string advice, std::vector<int> peers) {
    monitor_.report({ErrorCode::timeout, "bootstrap", std::move(reason), std::move(advice),
                     setup_.rank, -1, std::move(peers)});
  };
  if (coordinator_dial_) {
    const std::string& at = setup_.coordinator_text;
    const std::string& other_job = coordinator_dial_->other_job();
    if (leader_ >= 0)
      return late(fmt::format("rank 0 at {} sent this rank to rank {}, and neither took it {} ({})",
                              at, leader_, limit, coordinator_dial_->why()),
                  fmt::format("look at the output of rank {}, and at rank 0's", leader_),
                  {0, leader_});
    if (coordinator_dial_->found_job())
      return late(fmt::format("rank 0 at {} did not take this rank {} ({})", at, limit,
                              coordinator_dial_->why()),
                  "does an earlier job still run there?", {0});
    return late(
        fmt::format("rank 0 never listened at {} {} ({})", at, limit, coordinator_dial_->why()),
        other_job.empty() ? "is rank 0 running, and is the address reachable from this host?"
                          : "another job listens at " + other_job +
                                "; is ROPEWALK_JOB_KEY the same on every rank?",
        {0});
  }
  if (registrar_ && !registrar_->complete()) {
    std::vector<int> missing = registrar_->missing();
    const std::string ranks = fmt::format("{}", fmt::join(missing, ", "));
    std::string advice = "look at those ranks' own output: were they started, can they reach ";
    advice += setup_.coordinator_text + "?";
    if (acceptor_.refused() > 0)
      advice += fmt::format(" {} connections were refused, the last from {}", acceptor_.refused(),
                            acceptor_.last_refused());
    std::set<int> leaders;
    for (const int rank : missing)
      if (const int leader = registrar_->leader_of(rank); leader >= 0) leaders.insert(leader);
    if (!leaders.empty()) {
      advice += fmt::format(" Some of them were to join through rank {}, which may be stuck",
                            fmt::join(leaders, ", "));
      missing.insert(missing.end(), leaders.begin(), leaders.end());
    }
    return late(fmt::format("rank {} never came {}", ranks, limit), advice, missing);
  }
  if (registration_ && !session_key_)
    return late(
        fmt::format("{} took this rank but did not start the job {}", registrar_text_, limit),
        is_through_other() ? "look at its output, and at rank 0's" : "look at rank 0's own output",
        is_through_other() ? std::vector<int>() : std::vector{0});
  if (parent_dial_)
    return late(
        fmt::format("cannot reach {} ({})", tree_.describe(own_parent()), parent_dial_->why()),
        kFirewallAdvice, {own_parent()});
  const auto& missing = children_not_ready_;
  late(missing.empty()
           ? "the other ranks did not finish joining " + limit
           : fmt::format("rank {} did not link with this rank, its parent in the tree, {}",
                         fmt::join(missing, ", "), limit),
       "look at those ranks' own output", {missing.begin(), missing.end()});
}

void Control::spread_join_failure() {
  if (!std::exchange(join_failure_spread_, true))
    for (auto* registrar : {&registrar_, &local_registrar_})
      if (*registrar) (*registrar)->broadcast(statements_.failure_frame());
  if (registration_ && !std::exchange(registrar_told_, true)) {
    registration_->send(statements_.failure_frame());
    registration_->flush();  // it is read no more, nor prepared
  }
}

void Control::mark_phase(std::string name) {
  const int64_t now_ns = clock_.now_ns();
  phases_ += fmt::format("{}{} after {:.2f} ms", phases_.empty() ? "" : ", ", name,
                         milliseconds(now_ns - phase_start_ns_));
  phase_start_ns_ = now_ns;
}

}  // namespace ropewalk::bootstrap
