#include "bootstrap/control.h"

#include <algorithm>
#include <cassert>
#include <exception>
#include <tuple>
#include <utility>

#include "base/descriptors.h"
#include "base/log.h"
#include "base/start_thread.h"

namespace ropewalk::bootstrap {
namespace {

constexpr int64_t kClosingPollNs = 1'000'000;
/// So long after the last that came late rank 0 waits for another: less than launchers leave it.
constexpr int64_t kTellLateNs = 1'000'000'000;
constexpr int64_t kExhaustedMaxNs = 1'000'000'000;
/// So long after a death its neighbours may take to say what they know of it.
constexpr int64_t kPropagationMax_ns = 5'000'000;

}  // namespace

Control::Control(ControlSetup setup, JobMonitor& monitor, Parts& parts, SocketBroker& socket_broker)
    : setup_(std::move(setup)),
      monitor_(monitor),
      socket_broker_(socket_broker),
      job_key_(job_key(setup_.config.job_key.text())),
      table_(static_cast<size_t>(setup_.size)),
      statements_(setup_.rank, random_signing_keys(), monitor, table_),
      acceptor_(std::move(setup_.listeners), std::move(setup_.coordinator_listeners), setup_.rank,
                job_key_),
      tree_(setup_.rank, setup_.size, setup_.config.timeout, setup_.config.link_timeout, monitor,
            statements_, table_, *setup_.death_watch),
      bypass_(
          setup_.rank, setup_.size, setup_.flush_limit(),
          [this](int peer) { return dial(Purpose::failure, peer, 0); }, statements_, monitor),
      part_control_(setup_.rank, setup_.size, monitor, statements_, tree_, parts),
      agreements_([this](int peer) { return dial(Purpose::agreement, peer, 0); },
                  setup_.config.link_timeout, tree_),
      start_ns_(clock_.now_ns()),
      phase_start_ns_(start_ns_) {
  setup_.record.verify_key = statements_.verify_key();
  setup_.record.leave_commitment = statements_.leave_commitment();
  start_joining();
  monitor_.set_before_failure([this](const Failure& failure, uint32_t epoch) {
    setup_.death_watch->note_failure(failure, epoch);
  });
  thread_ = start_thread("bootstrap", "ropewalk-ctl", [this] { run(); });
}

void Control::close() {
  stop_ = true;
  wake_.set();
}

Control::~Control() {
  close();
  thread_.join();
  monitor_.set_before_failure(nullptr);
}

void Control::wait_joined() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return joined_ || over_; });
  // A failure after joining is for the first operation to throw.
  if (!joined_) throw Error(*monitor_.failure());
}

void Control::leave(const CallsMade& calls) {
  calls_ = calls;
  leave_ = true;
  wake_.set();
  std::unique_lock lock(mutex_);
  const bool ended =
      changed_.wait_for(lock, setup_.config.timeout, [this] { return all_left_ || over_; });
  if (over_) {  // who leaves may end this process at once
    changed_.wait_for(lock, setup_.flush_limit(), [this] { return told_; });
    return;
  }
  if (ended) return;
  std::vector<int> working;
  for (int r = 0; r < setup_.size; ++r)
    if (!monitor_.has_left(r)) working.push_back(r);
  log(LogLevel::warn, setup_.rank, "left without rank {}: still working after {} s",
      fmt::join(working, ", "), setup_.timeout_s());
}

void Control::run() {
  try {
    std::unique_lock turn(turn_);
    for (int64_t now_ns = clock_.now_ns(); !finished(now_ns); now_ns = clock_.now_ns()) {
      prepare(now_ns);
      turn.unlock();
      set_.wait(now_ns);
      turn.lock();
      if (std::exchange(is_renewed_, false)) set_.forget();
      advance(clock_.now_ns());
      notify_waiters();
    }
  } catch (const Error& error) {
    monitor_.report(error.failure());
  } catch (const std::exception& error) {
    monitor_.report({ErrorCode::system, "control", error.what(), {}, setup_.rank, -1});
  }
  setup_.death_watch->leave();
  const std::lock_guard lock(mutex_);
  over_ = told_ = has_ended_ = true;
  changed_.notify_all();
}

void Control::prepare(int64_t now_ns) {
  set_.clear();
  for (Event* event : {&wake_, &monitor_.news(), &socket_broker_.news()})
    set_.add(event->fd(), POLLIN);
  set_.add(setup_.death_watch->event_fd(), POLLIN);
  if (!deaths_.empty()) set_.wake_at(now_ns);
  for (const auto& [rank, since_ns] : distant_deaths_) set_.wake_at(since_ns + kPropagationMax_ns);
  acceptor_.prepare(set_, now_ns);
  tree_.prepare(set_);
  bypass_.prepare(set_);
  agreements_.prepare(set_);
  if (!is_joined_ && setup_.predecessor && monitor_.failure() == nullptr)
    set_.add(setup_.predecessor->event_fd(), POLLIN);
  for (auto* registrar : {&registrar_, &local_registrar_})
    if (*registrar) (*registrar)->prepare(set_, now_ns);
  if (monitor_.failure() == nullptr) {
    if (coordinator_dial_ && is_dialing_local_) set_.wake_at(local_until_ns_);
    if (coordinator_dial_ && leader_until_ns_ != 0) set_.wake_at(leader_until_ns_);
    if (local_registrar_ && registration_ && gathered_ > 0) set_.wake_at(gathered_until_ns());
    if (coordinator_dial_) coordinator_dial_->prepare(set_);
    if (registration_) registration_->prepare(set_);
    if (parent_dial_) parent_dial_->prepare(set_);
    if (host_probe_) host_probe_->prepare(set_);
    for (auto& [link, dialer] : dials_) dialer->prepare(set_);
    if (is_joined_ && parent_dial_) set_.wake_at(new_parent_deadline_ns_);
    if (!is_joined_) set_.wake_at(join_deadline_ns());
    set_.wake_at(socket_broker_.next_deadline().first);
  }
  if (monitor_.failure() != nullptr && parent_dial_ && (is_half_linked() || monitor_.epoch() > 0))
    parent_dial_->prepare(set_);
  if (owes_rank_zero()) coordinator_dial_->prepare(set_);
  if (key_pairs_at_ns_ != 0) set_.wake_at(key_pairs_at_ns_);
  // That something is acknowledged wakes nobody.
  // Until told_ says so: it may have come true since that was looked at.
  const bool tells = leave_ && tree_.failure_is_spread() && !told_;
  if (closing_since_ns_ != 0 || tells) set_.wake_at(now_ns + kClosingPollNs);
}

void Control::advance(int64_t now_ns) {
  for (Event* event : {&wake_, &monitor_.news(), &socket_broker_.news()})
    if (set_.take_ready(event->fd())) event->clear();
  for (AuthenticatedSocket& incoming : acceptor_.advance(set_, now_ns)) admit(incoming, now_ns);
  const auto inbound = tree_.advance(set_, now_ns);
  for (const auto& [peer, frame] : inbound)
    if (PartControl::is_of_part(frame.type))
      part_control_.handle(peer, frame, now_ns);
    else if (frame.type == FrameType::newcomers)
      take_newcomers(peer, frame);
    else if (frame.type == FrameType::agreement && is_joined_)
      agreements_.take(peer, frame, now_ns);
    else
      handle_join_frame(peer, frame);
  note_deaths(now_ns);
  check_predecessor();
  const bool has_failed = monitor_.failure() != nullptr;
  if (!is_joined_ && !has_failed) advance_joining(now_ns);
  for (auto* registrar : {&registrar_, &local_registrar_})  // those who come late
    if (*registrar && has_failed) (*registrar)->advance(set_, now_ns);
  if (is_joined_ && registration_) advance_registration(now_ns);
  // A parent that has taken this rank's link hears why it goes, or it would name this rank.
  if (!is_joined_ && has_failed && is_half_linked()) advance_parent_dial(now_ns);
  if (owes_rank_zero()) advance_coordinator_dial(now_ns);
  advance_dials(now_ns);
  if (is_joined_ && (monitor_.failure() == nullptr || is_half_linked() || monitor_.epoch() > 0))
    advance_new_parent(now_ns);
  check_descriptors(now_ns);
  advance_host_probe(now_ns);
  advance_bypass(now_ns);
  advance_agreements(now_ns);
  draw_key_pairs(now_ns);
  if (leave_ && is_joined_ && monitor_.failure() == nullptr) tree_.announce_leave(calls_);
  if (is_joined_) tree_.spread_question();
  if (is_joined_) spread_newcomers();
  part_control_.advance(now_ns);
  if (monitor_.failure() != nullptr) {
    tree_.spread_failure();
    if (!is_joined_) spread_join_failure();
    dials_.clear();
  }
  tree_.flush();
}

/// After stop: sees to it that the last words are acknowledged, for at most a second. (A close with
/// unread input resets the connection and would drop them.)
bool Control::finished(int64_t now_ns) {
  if (!stop_) return false;
  if (closing_since_ns_ == 0) {
    closing_since_ns_ = now_ns;
    if (const auto silence = monitor_.silence()) monitor_.report(*silence);
    if (!monitor_.has_left(setup_.rank) && monitor_.failure() == nullptr)
      fail(ErrorCode::peer_lost,
           tree_.describe(setup_.rank) + " gave up: it closed its communicator without leaving",
           "look at that rank's own output", setup_.rank);
    agreements_.close();
    if (HostAgreements* here = setup_.death_watch->agreements()) here->close();
    tree_.spread_failure();  // also one that was reported since the last advance
  }
  if (owes_late_ranks(now_ns)) return false;
  return flushed() || now_ns >= closing_since_ns_ + setup_.flush_limit().count();
}

bool Control::flushed() const {
  return tree_.flushed() && !is_half_linked() && !owes_rank_zero() && bypass_.all_told() &&
         agreements_.flushed() && (!registrar_ || registrar_->flushed()) &&
         (!local_registrar_ || local_registrar_->flushed()) &&
         (!registration_ || registration_->flushed());
}

/// Of a next epoch, this rank may be the only one that knows of a newcomer's end. Rank 0 waits for
/// all, and so hears of it, though this rank had not come so far as to find it.
bool Control::owes_rank_zero() const {
  const Failure* failure = monitor_.failure();
  return setup_.predecessor && !is_joined_ && failure != nullptr &&
         failure->code != ErrorCode::timeout && coordinator_dial_ &&
         coordinator_dial_->state() == Dialer::State::working &&
         !setup_.predecessor->ended().contains(0);
}

/// Ranks start at different times: when joining fails early, rank 0 stays while others still come,
/// to tell them why. Not those who are known to have ended.
bool Control::owes_late_ranks(int64_t now_ns) const {
  const auto ended = setup_.predecessor ? setup_.predecessor->ended() : std::set<int>();
  const Failure* failure = monitor_.failure();
  return registrar_ && failure != nullptr && failure->code != ErrorCode::timeout &&
         !registrar_->all_have_come_but(ended) && now_ns < registrar_->deadline_ns() &&
         (now_ns < closing_since_ns_ + kTellLateNs || acceptor_.has_half_open());
}

void Control::notify_waiters() {
  const std::lock_guard lock(mutex_);
  const auto before = std::tuple(joined_, over_, told_, all_left_);
  joined_ = is_joined_;
  over_ = monitor_.failure() != nullptr;
  told_ = tree_.failure_is_spread() && flushed();
  all_left_ = is_joined_ && !over_ && tree_.all_left();
  if (all_left_) setup_.death_watch->leave();  // this process may end at once
  if (before != std::tuple(joined_, over_, told_, all_left_)) changed_.notify_all();
}

// ---- The next epoch ----

AgreementEnd Control::agree(Agreement::Setup setup, int64_t deadline_ns) {
  if (HostAgreements* here = setup_.death_watch->agreements())
    return here->agree(std::move(setup), deadline_ns, clock_);
  std::unique_lock lock(mutex_);
  assert(!agreement_call_ && !agreement_end_);
  agreement_call_ = {std::move(setup), deadline_ns};
  wake_.set();
  changed_.wait(lock, [this] { return agreement_end_ || has_ended_; });
  agreement_call_.reset();
  if (!agreement_end_) throw Error(*monitor_.failure());
  return *std::exchange(agreement_end_, std::nullopt);
}

std::shared_ptr<EpochMonitor> Control::renew(std::vector<int> members) {
  const std::lock_guard turn(turn_);
  const std::lock_guard lock(mutex_);
  assert(!has_ended_ || monitor_.failure() != nullptr);
  if (has_ended_) throw Error(*monitor_.failure());
  auto renewed = monitor_.renew(members);
  begin_epoch(members, clock_.now_ns());
  is_renewed_ = true;
  wake_.set();
  return renewed;
}

/// What of this rank's state was of the epoch that has failed begins anew. Where others are in the
/// next one already, and that has failed as well, it begins with that.
void Control::begin_epoch(const std::vector<int>& members, int64_t now_ns) {
  std::vector<int> departed;
  for (int rank = 0; rank < setup_.size; ++rank)
    if (rank_among(members, rank) < 0) departed.push_back(rank);
  std::set<int> ended = tree_.renew(departed, now_ns);
  ended.insert(agreements_.ended().begin(), agreements_.ended().end());
  bypass_.renew();
  part_control_.renew();
  socket_broker_.forget(departed);
  host_probe_.reset();
  for (const int rank : departed) {
    newcomers_.erase(static_cast<uint32_t>(rank));
    newcomers_told_.erase(static_cast<uint32_t>(rank));
    distant_deaths_.erase(rank);
  }
  for (const int peer : statements_.renew()) tree_.note_informed(peer);
  for (const int rank : ended)  // since that was agreed
    if (!monitor_.has_left(rank)) tree_.report_death(rank);
  over_ = told_ = false;
}

void Control::set_successor(std::shared_ptr<Predecessor> successor) {
  const std::lock_guard lock(mutex_);
  successor_ = std::move(successor);
  wake_.set();
}

void Control::advance_agreements(int64_t now_ns) {
  std::optional<AgreementCall> call;
  std::shared_ptr<Predecessor> successor;
  {
    const std::lock_guard lock(mutex_);
    call = std::exchange(agreement_call_, std::nullopt);
    successor = successor_;
  }
  if (call) agreements_.begin(std::move(call->setup), call->deadline_ns);
  agreements_.advance(set_, now_ns);
  if (!deaths_.empty()) {
    for (const int rank : std::exchange(deaths_, {})) agreements_.note_ended(rank);
    agreements_.advance(set_, now_ns);
  }
  if (set_.take_ready(setup_.death_watch->event_fd())) deaths_ = setup_.death_watch->take_deaths();
  if (successor) successor->note_ended(agreements_.ended());
  if (auto end = agreements_.take_end()) {
    const std::lock_guard lock(mutex_);
    agreement_end_ = std::move(end);
    changed_.notify_all();
  }
}

/// Where another epoch is likely to follow, while nobody waits: the more handshakes, the more.
void Control::draw_key_pairs(int64_t now_ns) {
  constexpr int kMost = 32;
  if (key_pairs_at_ns_ == 0 || now_ns < key_pairs_at_ns_) return;
  key_pairs_at_ns_ = 0;
  if (monitor_.failure() != nullptr) return;
  draw_key_pairs_ahead(static_cast<size_t>(std::min(2 * setup_.size, kMost)));
}

/// This rank joins a next epoch, of which one has ended meanwhile.
void Control::check_predecessor() {
  if (is_joined_ || !setup_.predecessor || monitor_.failure() != nullptr) return;
  const std::set<int> ended = setup_.predecessor->ended();
  if (!ended.empty())
    fail(ErrorCode::peer_lost,
         fmt::format("rank {} ended as the epoch was joined", fmt::join(ended, ", ")), {},
         *ended.begin());
}

void Control::tell_newcomers(std::vector<uint32_t> numbers) {
  const std::lock_guard lock(mutex_);
  Newcomers& own = newcomers_[static_cast<uint32_t>(setup_.rank)];
  if (own.numbers == numbers) return;  // all know, as where nobody waits; an epoch begins with this
  own.rank = static_cast<uint32_t>(setup_.rank);
  own.numbers = std::move(numbers);
  ++own.revision;
  newcomers_are_new_ = true;
  wake_.set();
}

std::vector<Newcomer> Control::newcomers() {
  const std::lock_guard lock(mutex_);
  std::vector<Newcomer> all;
  for (const auto& [rank, there] : newcomers_)
    for (const uint32_t number : there.numbers) all.push_back({static_cast<int>(rank), number});
  return all;
}

void Control::spread_newcomers() {
  Newcomers own;
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(newcomers_are_new_, false)) return;
    own = newcomers_[static_cast<uint32_t>(setup_.rank)];
  }
  Bytes& told = newcomers_told_[own.rank];
  told = frame(statements_.sign(std::move(own)));
  tree_.flood(told);
}

void Control::take_newcomers(int peer, const Frame& received) {
  const auto said = decode<Signed<Newcomers>>(received.payload);
  if (!said || said->message.rank >= static_cast<uint32_t>(setup_.size))
    return tree_.protocol_fault(peer);
  if (!statements_.is_genuine(*said, peer)) return;
  {
    const std::lock_guard lock(mutex_);
    Newcomers& known = newcomers_[said->message.rank];
    if (said->message.revision <= known.revision) return;
    known = said->message;
  }
  Bytes& told = newcomers_told_[said->message.rank];
  told = frame(*said);
  tree_.flood(told, peer);
}

// ---- Failures ----

void Control::fail(ErrorCode code, std::string reason, std::string advice, int peer) {
  monitor_.report({code, "bootstrap", std::move(reason), std::move(advice), setup_.rank, peer});
}

/// What the last round has found, so that all has been read that came before: a rank may say why
/// it ends. Its neighbours know first. Where there is none on this host, or none gets to run,
/// another rank tells.
void Control::note_deaths(int64_t now_ns) {
  for (const int rank : deaths_)
    if (!tree_.note_died(rank)) distant_deaths_.emplace(rank, now_ns);
  std::erase_if(distant_deaths_, [&](const auto& death) {
    const auto [rank, since_ns] = death;
    if (now_ns < since_ns + kPropagationMax_ns) return false;
    if (!monitor_.has_left(rank)) tree_.report_death(rank);
    return true;
  });
}

/// The others wait for a link with this rank: they hear why there is none, unless it was a moment.
void Control::check_descriptors(int64_t now_ns) {
  const auto is_late = [&](const auto& link) {
    const int64_t since_ns = link.exhausted_since_ns();
    return since_ns != 0 && now_ns - since_ns > kExhaustedMaxNs;
  };
  bool late = is_late(acceptor_);
  for (const auto* dial : {&coordinator_dial_, &parent_dial_}) late |= *dial && is_late(**dial);
  for (const auto& [link, dial] : dials_) late |= is_late(*dial);
  if (!late || monitor_.failure() != nullptr) return;
  const auto limits = descriptor_limits();
  fail(ErrorCode::exhausted,
       fmt::format("{} has no file descriptor left to link with another: all {} are open",
                   tree_.describe(setup_.rank), limits.rlim_cur),
       limits.rlim_cur < limits.rlim_max
           ? fmt::format("ulimit -n {}", limits.rlim_max)
           : fmt::format("ulimit -Hn {}, as root or in the service's or container's settings",
                         2 * limits.rlim_max),
       setup_.rank);
}

void Control::fail_protocol(std::string reason, int peer) {
  fail(ErrorCode::protocol, std::move(reason), "install the same Ropewalk on every rank", peer);
}

}  // namespace ropewalk::bootstrap
