#include "bootstrap/newcomers.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/log.h"
#include "base/start_thread.h"

namespace ropewalk::bootstrap {
namespace {

/// A member tells who waits that it is there, and tries to listen where another process does.
constexpr int64_t kNewcomerBeat_ns = 1000 * kMillisecond_ns;
/// Of a member that says nothing.
constexpr int64_t kSilenceMax_ns = 5 * kNewcomerBeat_ns;
/// A member looks whether one of the addresses has become this host's.
constexpr int64_t kLookUpInterval_ns = 60 * kNewcomerBeat_ns;
/// Between two tries of a newcomer where there is nobody, or no address.
constexpr int64_t kLookPause_ns = 100 * kMillisecond_ns;

std::vector<UniqueFd> only_if_open(UniqueFd fd) {
  std::vector<UniqueFd> fds;
  if (fd) fds.push_back(std::move(fd));
  return fds;
}

bool is_of_this_host(const Endpoint& endpoint) {
  std::string why;
  return std::ranges::any_of(resolve(endpoint, why), [](const SocketAddress& address) {
    return bootstrap::is_of_this_host(address);
  });
}

}  // namespace

// ---- Members ----

NewcomerListener::NewcomerListener(const std::string& coordinator, UniqueFd inherited,
                                   const Secret& key, const Config& config)
    : coordinators_(parse_endpoints(coordinator)),
      socket_ifname_(config.socket_ifname),
      link_timeout_(config.link_timeout),
      listens_(inherited),
      acceptor_({}, only_if_open(std::move(inherited)), -1, job_key(key.text())) {
  thread_ = start_thread("newcomers", "ropewalk-new", [this] { run(); });
}

NewcomerListener::~NewcomerListener() {
  stop_ = true;
  wake_.set();
  thread_.join();
}

void NewcomerListener::serve(const std::shared_ptr<World>& world, bool is_first) {
  const std::lock_guard lock(mutex_);
  world_ = world;
  is_told_ = false;
  may_listen_ = is_first;
  wake_.set();
}

void NewcomerListener::admit(uint32_t number, Admission admission,
                             std::shared_ptr<Predecessor> predecessor) {
  const std::lock_guard lock(mutex_);
  admitted_.push_back({number, std::move(admission), std::move(predecessor), std::nullopt});
  wake_.set();
}

void NewcomerListener::forget_admitted() {
  const std::lock_guard lock(mutex_);
  admitted_.clear();
  wake_.set();
}

void NewcomerListener::run() {
  while (!stop_) {
    const int64_t now_ns = clock_.now_ns();
    set_.clear();
    set_.add(wake_.fd(), POLLIN);
    listen_where_missing(now_ns);
    if (!waiting_.empty()) set_.wake_at(beat_at_ns_);
    acceptor_.prepare(set_, now_ns);
    for (Waiting& one : waiting_) one.stream.prepare(set_);
    {
      const std::lock_guard lock(mutex_);
      for (Admitted& one : admitted_)
        if (one.stream) one.stream->prepare(set_);
    }
    set_.wait(now_ns);
    if (set_.take_ready(wake_.fd())) wake_.clear();
    for (AuthenticatedSocket& incoming : acceptor_.advance(set_, clock_.now_ns())) take(incoming);
    advance_waiting(clock_.now_ns());
    send_admissions();
    tell_world();
  }
}

void NewcomerListener::listen_where_missing(int64_t now_ns) {
  bool may_listen = false;
  {
    const std::lock_guard lock(mutex_);
    may_listen = may_listen_;
  }
  if (listens_ || !may_listen) return;
  set_.wake_at(listen_at_ns_);
  if (now_ns < listen_at_ns_) return;
  listen_at_ns_ = now_ns + kLookUpInterval_ns;
  for (const Endpoint& endpoint : coordinators_) {
    if (!is_of_this_host(endpoint)) continue;
    listen_at_ns_ = now_ns + kNewcomerBeat_ns;
    try {
      for (UniqueFd& listener : listen_at_coordinator(endpoint, socket_ifname_))
        acceptor_.listen_for_joins(std::move(listener));
      listens_ = true;
    } catch (const Error& error) {
      log(LogLevel::debug, -1, "cannot listen for newcomers yet: {}", error.what());
    }
  }
  set_.wake_at(listen_at_ns_);
}

void NewcomerListener::take(AuthenticatedSocket& incoming) {
  const bool is_newcomer = incoming.hello.purpose == Purpose::join_running;
  const HandshakeResult result =
      !is_newcomer || waiting_.size() >= kNewcomersMax ? HandshakeResult::busy
      : incoming.hello.version != kProtocolVersion     ? HandshakeResult::wrong_version
                                                       : HandshakeResult::accepted;
  if (!send_result(incoming, result) || result != HandshakeResult::accepted) return;
  tune_control_stream(incoming.fd.get(), link_timeout_);
  waiting_.push_back({++last_number_, FrameStream(incoming.connected())});
  beat_at_ns_ = 0;
  log(LogLevel::info, -1, "a process at {} waits to join", incoming.source);
  const std::lock_guard lock(mutex_);
  is_told_ = false;
}

void NewcomerListener::advance_waiting(int64_t now_ns) {
  const bool is_time = now_ns >= beat_at_ns_;
  if (is_time) beat_at_ns_ = now_ns + kNewcomerBeat_ns;
  const std::lock_guard lock(mutex_);
  for (auto one = waiting_.begin(); one != waiting_.end();) {
    one->stream.advance(set_);  // it has nothing to say
    if (is_time) one->stream.send(frame(Heartbeat{kNewcomerBeat_ns / kMillisecond_ns}));
    one->stream.flush();
    if (!one->stream.is_open()) is_told_ = false;
    one = one->stream.is_open() ? std::next(one) : waiting_.erase(one);
  }
  for (Admitted& one : admitted_) {
    if (!one.stream) continue;
    one.stream->advance(set_);
    if (!one.stream->is_open()) one.predecessor->note_absent(one.admission.rank);
  }
}

void NewcomerListener::send_admissions() {
  const std::lock_guard lock(mutex_);
  for (Admitted& one : admitted_) {
    if (one.stream) continue;
    const auto waits = std::ranges::find(waiting_, one.number, &Waiting::number);
    if (waits == waiting_.end()) {
      one.predecessor->note_absent(one.admission.rank);
      continue;
    }
    waits->stream.send(frame(one.admission));
    waits->stream.flush();
    one.stream.emplace(std::move(waits->stream));
    waiting_.erase(waits);
    is_told_ = false;
  }
}

void NewcomerListener::tell_world() {
  std::shared_ptr<World> world;
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(is_told_, true)) world = world_.lock();
  }
  if (!world) return;
  std::vector<uint32_t> numbers;
  for (const Waiting& one : waiting_) numbers.push_back(one.number);
  world->tell_newcomers(std::move(numbers));
}

// ---- Newcomers ----

AdmissionRequest::AdmissionRequest(std::string coordinator, const Config& config)
    : coordinator_(std::move(coordinator)), config_(config), stop_(config.stop) {
  if (parse_endpoints(coordinator_).empty())
    throw Error(ErrorCode::invalid_argument, "join",
                coordinator_.empty() ? "nothing says where the job is that runs"
                                     : fmt::format("\"{}\" is no address", coordinator_),
                "set ROPEWALK_COORDINATOR=host:port, as the job's first ranks have it");
}

bool AdmissionRequest::finds_job(std::chrono::nanoseconds limit) {
  int64_t until_ns = clock_.now_ns() + limit.count();
  std::string why;
  for (bool is_first = true; is_first || clock_.now_ns() < until_ns; is_first = false) {
    const auto dialer = dial(why);
    while (dialer && dialer->state() == Dialer::State::working && dialer->rounds() == 0 &&
           (is_first || clock_.now_ns() < until_ns)) {
      PollSet set;
      dialer->prepare(set);
      sleep(set, std::numeric_limits<int64_t>::max());
      dialer->advance(set, clock_.now_ns());
    }
    if (dialer && dialer->state() == Dialer::State::connected) {
      take_stream(*dialer);
      return is_found_ = true;
    }
    // Another key is an error of who joins; who has the key, and does not take newcomers, begins.
    if (dialer && (dialer->state() == Dialer::State::refused || dialer->found_job())) return false;
    PollSet set;
    sleep(set, std::min(until_ns, clock_.now_ns() + kLookPause_ns));
  }
  return false;
}

std::optional<Admission> AdmissionRequest::wait() {
  for (;;) {
    if (!std::exchange(is_found_, false)) connect();
    int64_t heard_ns = clock_.now_ns();
    while (stream_->is_open() && clock_.now_ns() < heard_ns + kSilenceMax_ns) {
      PollSet set;
      stream_->prepare(set);
      sleep(set, heard_ns + kSilenceMax_ns);
      for (const Frame& frame : stream_->advance(set)) {
        heard_ns = clock_.now_ns();
        if (frame.type != FrameType::admission) continue;
        if (auto admission = decode<Admission>(frame.payload)) return admission;
      }
    }
    log(LogLevel::info, -1, "waits to join elsewhere: {}",
        stream_->is_open() ? "the member has fallen silent" : stream_->why());
    stream_.reset();
    if (config_.join_if_running && !finds_job(kLookForJob)) return {};
  }
}

/// Names may have other addresses later, but each has its turn: one where nobody answers takes as
/// long as a handshake may.
std::unique_ptr<Dialer> AdmissionRequest::dial(std::string& why) const {
  std::vector<SocketAddress> addresses;
  std::vector<size_t> names;
  const auto endpoints = parse_endpoints(coordinator_);
  for (size_t name = 0; name < endpoints.size(); ++name) {
    std::ranges::copy(resolve(endpoints[name], why), std::back_inserter(addresses));
    names.resize(addresses.size(), name);
  }
  if (addresses.empty()) return nullptr;
  return std::make_unique<Dialer>(std::move(addresses), Hello{.purpose = Purpose::join_running},
                                  job_key(config_.job_key.text()), std::move(names));
}

void AdmissionRequest::connect() {
  stream_.reset();
  const int64_t deadline_ns = clock_.now_ns() + config_.time_to_join().count();
  std::unique_ptr<Dialer> dialer;
  std::string why;
  while (clock_.now_ns() < deadline_ns) {
    const int64_t again_ns = std::min(deadline_ns, clock_.now_ns() + kSilenceMax_ns);
    dialer = dial(why);
    const auto until_ns = [&] { return dialer->unanswered_rounds() == 0 ? deadline_ns : again_ns; };
    while (dialer && dialer->state() == Dialer::State::working && clock_.now_ns() < until_ns()) {
      PollSet set;
      dialer->prepare(set);
      sleep(set, until_ns());
      dialer->advance(set, clock_.now_ns());
    }
    if (!dialer) {
      PollSet set;
      sleep(set, clock_.now_ns() + kLookPause_ns);
      continue;
    }
    why = dialer->why();
    if (dialer->state() == Dialer::State::refused)
      throw Error(ErrorCode::refused, "join", fmt::format("{} has {}", coordinator_, why),
                  "is ROPEWALK_JOB_KEY, and the version, the same as the job's?");
    if (dialer->state() == Dialer::State::connected) return take_stream(*dialer);
  }
  throw Error(
      ErrorCode::timeout, "join",
      fmt::format("no member of a job listened for newcomers at {} within {:.3g} s ({})",
                  coordinator_, 1e-9 * static_cast<double>(config_.time_to_join().count()), why),
      "does the job still run, with ROPEWALK_ELASTIC=1?");
}

void AdmissionRequest::take_stream(Dialer& dialer) {
  listener_ = dialer.address().text();
  stream_.emplace(dialer.take());
}

/// Throws once nobody wants to join any more, or the time for it is over.
void AdmissionRequest::sleep(PollSet& set, int64_t until_ns) const {
  int64_t deadline_ns = std::numeric_limits<int64_t>::max();
  if (config_.admission_timeout) deadline_ns = begun_ns_ + config_.admission_timeout->count();
  set.add(stop_.fd(), POLLIN);
  set.wake_at(std::min(until_ns, deadline_ns));
  set.wait(clock_.now_ns());
  if (stop_.is_set())
    throw Error(ErrorCode::aborted, "join",
                fmt::format("stopped by its caller, as it waited {}", what_it_waits_for()));
  if (clock_.now_ns() >= deadline_ns)
    throw Error(ErrorCode::timeout, "join",
                fmt::format("waited {} for {:.3g} s", what_it_waits_for(),
                            1e-9 * static_cast<double>(config_.admission_timeout->count())),
                "do the job's ranks call grow? Else a longer ROPEWALK_ADMISSION_TIMEOUT");
}

std::string AdmissionRequest::what_it_waits_for() const {
  return stream_ && stream_->is_open()
             ? fmt::format("for the members of the job at {} to call grow (one, at {}, listens)",
                           coordinator_, listener_)
             : fmt::format("for a member of a job to listen at {}", coordinator_);
}

}  // namespace ropewalk::bootstrap
