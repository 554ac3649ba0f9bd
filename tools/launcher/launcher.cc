#include "tools/launcher/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "ropewalk/status.h"
#include "tools/command/descriptors.h"
#include "tools/launcher/launcher_loop.h"
#include "tools/launcher/processes.h"

namespace ropewalk::tools {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAbandonTimeout{8000};  // from SIGKILL, or a sign of life, to giving up
constexpr milliseconds kFlushTimeout{2000};    // for the reader of our output, once stopped
constexpr size_t kStdinBytes = 32 << 10;
constexpr int kStatusTimeLimit = 124;  // as timeout(1)

}  // namespace

Launcher::Launcher(const JobSpec& job)
    : job_(job), agents_(job), ranks_(job.elastic), output_(job.command, job.prefix) {
  for (int rank = 0; rank < hosts_[0].first_rank; ++rank) ranks_.add(-1, 0);
  for (size_t i = 0; i < hosts_.size(); ++i)
    for (int slot = 0; slot < hosts_[i].ranks; ++slot) ranks_.add(static_cast<int>(i), slot);
  for (int i = 0; i < ranks_.count(); ++i) output_.add_rank(ranks_[i].label);
}

int Launcher::run() {
  become_subreaper();
  enter(Phase::starting, kStartTimeout);
  agents_.start_first();
  if (job_.time_limit) time_limit_ = Clock::now() + *job_.time_limit;
  while (!agents_.all_closed()) loop();
  if (!kill_descendants(kAbandonTimeout)) say("some processes could not be killed");
  for (int i = 0; i < ranks_.count(); ++i) output_.end_lines(i);
  tell_losses();
  enter(Phase::finishing, {});
  while (!output_.out().empty()) loop();
  output_.tell_losses();
  while (!output_.err().empty()) loop();
  return exit_status();
}

int Launcher::exit_status() const {
  if (failure_) return *failure_;
  if (!output_.lost()) return 0;
  if (stop_signal_ != 0) return 128 + stop_signal_;
  return output_.out().reader_gone() ? 128 + SIGPIPE : kStatusOutputLost;
}

void Launcher::enter(Phase phase, std::optional<milliseconds> time) {
  phase_ = phase;
  deadline_.reset();
  if (time) deadline_ = Clock::now() + *time;
}

int Launcher::poll_timeout_ms() const {
  std::optional<Clock::time_point> next = deadline_;
  for (const auto& other :
       {time_limit_, output_.empty() ? std::nullopt : give_up_, restarts_.next_dial()}) {
    if (other && (!next || *other < *next)) next = other;
  }
  const auto is_remote = [](const Host& host) { return host.is_remote && !host.closed; };
  const auto look = Clock::now() + kAliveInterval;
  if (std::ranges::any_of(hosts_, is_remote) && (!next || look < *next)) next = look;
  if (!next) return -1;
  const auto left = std::chrono::ceil<milliseconds>(*next - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, std::numeric_limits<int>::max()));
}

void Launcher::loop() {
  OutputQueue& out = output_.out();
  OutputQueue& err = output_.err();
  std::vector<pollfd> polled;
  polled.push_back({signals_.fd(), POLLIN, 0});
  polled.push_back({out.empty() ? -1 : out.fd(), POLLOUT, 0});
  polled.push_back({err.empty() ? -1 : err.fd(), POLLOUT, 0});
  const bool reads_stdin =
      agents_.forwards_stdin() && !stdin_ended_ && !stdin_in_flight_ && phase_ == Phase::running;
  polled.push_back({reads_stdin ? STDIN_FILENO : -1, POLLIN, 0});
  for (Host& host : hosts_) {
    FrameChannel& channel = host.agent.channel;
    polled.push_back({channel.in_fd(), POLLIN, 0});
    polled.push_back({channel.wants_to_write() ? channel.out_fd() : -1, POLLOUT, 0});
  }
  if (::poll(polled.data(), polled.size(), poll_timeout_ms()) < 0) return;  // EINTR

  if (polled[0].revents) on_signal();
  if (polled[1].revents) out.write_some();
  if (polled[2].revents) err.write_some();
  if (polled[3].revents) forward_stdin();
  for (size_t i = 0; i < hosts_.size(); ++i) serve(hosts_[i], polled[4 + 2 * i].revents);
  watch_output();
  on_time();
  start_waiting();
  if (phase_ == Phase::running && ranks_.has_only_latecomers()) enter(Phase::grace, job_.grace);
  if (phase_ != Phase::starting && phase_ != Phase::finishing && ranks_.running().empty()) finish();
}

void Launcher::watch_output() {
  output_.tell_errors();
  if (output_.out().reader_gone() && !failure_ && phase_ < Phase::terminating) {
    fail(128 + SIGPIPE, "standard output was closed; ending the job");
    stop(SIGTERM, job_.grace);
  }
  if (phase_ == Phase::finishing && holds_) expect_end();  // agents wait for us
  if (phase_ == Phase::finishing && is_ending_early_ && !give_up_) {
    give_up_ = Clock::now() + kFlushTimeout;
  }
  if (give_up_ && Clock::now() >= *give_up_) output_.give_up();
  if (holds_ ? output_.has_room() : output_.is_full()) {
    holds_ = !holds_;
    agents_.send_to_all({holds_ ? FrameKind::hold : FrameKind::resume, -1, {}});
  }
}

void Launcher::on_time() {
  const auto now = Clock::now();
  if (time_limit_ && now >= *time_limit_) {
    time_limit_.reset();
    end_early();
    if (phase_ < Phase::terminating) {
      fail(kStatusTimeLimit, fmt::format("the job has reached its time limit of {:g} s",
                                         static_cast<double>(job_.time_limit->count()) / 1e3));
      stop(SIGTERM, job_.grace);
    }
  }
  check_silence(now);
  agents_.show_life(now);
  if (deadline_ && now >= *deadline_) on_deadline();
}

// No rank runs any more.
void Launcher::finish() {
  phase_ = Phase::finishing;
  expect_end();
  const milliseconds grace = is_ending_early_ ? milliseconds(0) : job_.grace;
  restarts_.forget();
  for (Host& host : hosts_) {
    if (!job_.elastic || !host.is_dialled()) continue;
    kill(host.agent.pid, SIGKILL);  // nobody needs it any more
    agents_.close(host);
  }
  agents_.send_to_all({FrameKind::finish, -1, std::to_string(grace.count())});
}

void Launcher::expect_end() {
  deadline_ = Clock::now() + job_.grace + kAbandonTimeout;
}

void Launcher::end_early() {
  is_ending_early_ = true;
  if (phase_ == Phase::finishing) finish();
}

void Launcher::serve(Host& host, short in_events) {
  if (host.closed) return;
  FrameChannel& channel = host.agent.channel;
  bool is_open = true;
  std::string why;
  channel.flush();  // where it has gone, what it has sent is read first
  try {
    if (in_events) is_open = channel.receive();
    if (in_events) host.heard = Clock::now(), host.silence_told = false;
    while (auto frame = channel.next()) on_frame(host, *frame);
  } catch (const Error& error) {
    why = error.what();
    is_open = false;
  }
  if (!is_open) lose(host, why);
}

void Launcher::on_frame(Host& host, const Frame& frame) {
  const bool is_of_rank = frame.rank >= 0 && frame.rank < ranks_.count() &&
                          ranks_[frame.rank].host == &host - hosts_.data();
  if (phase_ == Phase::finishing && frame.kind != FrameKind::alive) expect_end();  // it goes on
  switch (frame.kind) {
    case FrameKind::out:
    case FrameKind::err:
      if (is_of_rank) output_.append(frame.rank, frame.kind == FrameKind::err, frame.payload);
      return;
    case FrameKind::ready:
      return on_ready(host, frame.payload);
    case FrameKind::started:
      if (is_of_rank) ranks_[frame.rank].pid = number_in(frame.payload);
      return;
    case FrameKind::joined:
      if (is_of_rank) ranks_[frame.rank].is_member = true;
      return;
    case FrameKind::start_failed:
      return on_start_failed(host, frame);
    case FrameKind::exited:
      if (is_of_rank) on_exited(host, frame.rank, number_in(frame.payload));
      return;
    case FrameKind::stdin_taken:
      stdin_in_flight_ = false;
      return;
    case FrameKind::alive:
      return;
    case FrameKind::refused:
      if (phase_ == Phase::starting || !job_.elastic)
        return fail(1, fmt::format("host {}: {}", host.name, frame.payload));
      throw Error(ErrorCode::refused, "agent", frame.payload);
    case FrameKind::done:
      host.done = true;
      if (!frame.payload.empty()) {
        say(fmt::format(
            "host {}: ended the processes that ranks {} had left behind and that still held "
            "their output; --grace gives them more time",
            host.name, ranks_.labels_in(frame.payload)));
      }
      return;
    default:
      throw Error(ErrorCode::protocol, "agent", "a frame that only launchers send");
  }
}

void Launcher::start_ranks() {
  if (phase_ != Phase::starting) return;
  ranks_.note_started();
  for (Host& host : hosts_) host.had_ranks = !host.closed;
  agents_.send_to_all({FrameKind::start, -1, coordinator_of(job_, hosts_[0])});
  enter(Phase::running, {});
}

void Launcher::on_ready(Host& host, const std::string& listener_text) {
  host.ready = true;
  host.listener_text = listener_text;
  if (phase_ == Phase::starting && agents_.all_ready()) return start_ranks();
  if (phase_ == Phase::starting) return;
  if (host.tries > 0) say(fmt::format("host {} is there again", host.name));
  host.tries = 0;
  host.agent.channel.send({FrameKind::start, -1, {}});  // of none yet
  if (holds_) host.agent.channel.send({FrameKind::hold, -1, {}});
}

void Launcher::on_exited(Host& host, int rank, int wait_status) {
  ranks_[rank].running = false;
  const int status = exit_status_of(wait_status);
  if (status == 0) ranks_.note_success(rank);
  if (ranks_.has_success() && !success_) success_ = Clock::now();
  if (status == 0 || failure_) return;
  if (stop_signal_ != 0) {  // what the user asked for is no failure that needs telling
    failure_ = status == 128 + SIGKILL ? 128 + stop_signal_ : status;
    return;
  }
  output_.end_lines(rank);
  lose_ranks({rank}, status,
             fmt::format("rank {} (pid {}, host {}) {}", ranks_[rank].label, ranks_[rank].pid,
                         host.name, describe_exit(wait_status)));
}

void Launcher::forward_stdin() {
  char bytes[kStdinBytes];
  const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n <= 0) {
    stdin_ended_ = true;
    return hosts_[0].agent.channel.send({FrameKind::stdin_end, 0, {}});
  }
  stdin_in_flight_ = true;
  hosts_[0].agent.channel.send(
      {FrameKind::stdin_data, 0, std::string(bytes, static_cast<size_t>(n))});
}

void Launcher::signal_ranks(int signal_number) {
  agents_.send_to_all({FrameKind::signal, -1, std::to_string(signal_number)});
}

void Launcher::stop(int signal_number, milliseconds time) {
  if (phase_ >= Phase::killing) return;
  signal_ranks(signal_number);
  enter(Phase::terminating, time);
}

// The first failure is the job's; those that follow are mostly its consequences.
void Launcher::fail(int status, const std::string& text) {
  if (failure_) return;
  failure_ = status;
  say(text);
  if (phase_ <= Phase::running) enter(Phase::grace, job_.grace);
}

void Launcher::on_signal() {
  const int number = signals_.next();
  if (number == 0) return;
  const bool is_second = stop_signal_ != 0;
  stop_signal_ = number;
  end_early();
  if (phase_ >= Phase::killing) return;
  if (phase_ == Phase::starting) {
    fail(128 + number, fmt::format("{} before the ranks had started", strsignal(number)));
  } else if (is_second) {
    say(fmt::format("{} again: killing the ranks", strsignal(number)));
    signal_ranks(SIGKILL);
    enter(Phase::killing, kAbandonTimeout);
  } else {
    say(fmt::format("{}: passed on to the ranks; they have {:g} s (--grace)", strsignal(number),
                    static_cast<double>(job_.grace.count()) / 1e3));
    stop(number, job_.grace);
  }
}

void Launcher::on_deadline() {
  const std::string running = ranks_.labels_of(ranks_.running());
  switch (phase_) {
    case Phase::starting:
      for (const Host& host : hosts_) {
        if (host.is_dialled()) {
          return fail(kStatusHostLost,
                      fmt::format("host {}: no agent answered within {} s; try: ssh -o "
                                  "BatchMode=yes {} true",
                                  host.name, kStartTimeout.count() / 1000, host.name));
        }
      }
      return enter(Phase::running, {});
    case Phase::grace:
      say(fmt::format("still running: ranks {}; sending them SIGTERM", running));
      return stop(SIGTERM, job_.grace);
    case Phase::terminating:
      say(fmt::format("still running: ranks {}; killing them", running));
      signal_ranks(SIGKILL);
      return enter(Phase::killing, kAbandonTimeout);
    case Phase::running:
      return enter(Phase::running, {});
    case Phase::killing:
    case Phase::finishing:
      enter(phase_, {});
      for (Host& host : hosts_) {
        if (host.closed) continue;
        kill(host.agent.pid, SIGKILL);
        lose(host, {});
      }
      return;
  }
}

int launch(const JobSpec& job) {
  occupy_standard_descriptors();
  return Launcher(job).run();
}

}  // namespace ropewalk::tools
