#include "launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "agent_link.h"
#include "job_key.h"
#include "job_part.h"
#include "launcher_state.h"
#include "output.h"
#include "processes.h"
#include "rank_environment.h"
#include "ropewalk/status.h"
#include "signals.h"

namespace ropewalk::tools {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kStartTimeout{30000};   // for all agents to answer
constexpr milliseconds kSignalGrace{5000};     // from a signal passed on to SIGKILL
constexpr milliseconds kAbandonTimeout{8000};  // from SIGKILL, or finish, to giving agents up
constexpr milliseconds kFlushTimeout{2000};    // for the reader of our output, once stopped
constexpr size_t kOutputBytesMax = 4 << 20;    // above it the agents have to wait
constexpr size_t kStdinBytes = 32 << 10;
constexpr int kStatusTimeLimit = 124;  // as timeout(1)
constexpr int kStatusHostLost = 255;   // as ssh(1)

class Launcher {
 public:
  explicit Launcher(const JobSpec& job);
  int run();

 private:
  void start_agents();
  JobPart part_for(const Host& host, const std::string& key) const;
  void start_ranks();
  void loop();
  int poll_timeout_ms() const;
  void on_deadline();
  void on_signal();
  void on_frame(Host& host, const Frame& frame);
  void on_exited(Host& host, int rank, int wait_status);
  void on_start_failed(const Host& host, const Frame& frame);
  void on_output(int rank, bool is_err, std::string_view text);
  void serve(Host& host, short in_events);
  void lose(Host& host);
  void forward_stdin();
  void enter(Phase phase, std::optional<milliseconds> time);
  void stop(int signal_number, milliseconds time);
  void signal_ranks(int signal_number);
  void fail(int status, const std::string& text);
  void say(const std::string& text) { err_.append(job_.command + ": " + text + "\n"); }
  std::vector<int> running_ranks() const;
  bool any_running() const;
  void flush_output();
  bool all_closed() const;

  const JobSpec& job_;
  SignalScope signals_;
  std::vector<Host> hosts_;
  std::vector<RankState> ranks_;
  std::string listener_text_;  // "port address" of rank 0's listener, from its agent
  OutputQueue out_{STDOUT_FILENO}, err_{STDERR_FILENO};
  Phase phase_ = Phase::starting;
  std::optional<Clock::time_point> deadline_, time_limit_;
  std::optional<int> failure_;    // the job's exit status, once something has failed
  int stop_signal_ = 0;           // the signal that a user sent
  bool forwards_stdin_ = false;   // rank 0 is remote and its input not at its end yet
  bool stdin_in_flight_ = false;  // rank 0 has not taken the last piece yet
};

bool stdin_is_ours() {
  // A background job that reads the terminal would be stopped, or steal the shell's input.
  return fcntl(STDIN_FILENO, F_GETFD) >= 0 &&
         (!isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) == getpgrp());
}

Launcher::Launcher(const JobSpec& job) : job_(job) {
  std::vector<HostSlots> slots = job.hosts;
  if (slots.empty()) slots.push_back({"localhost", job.ranks});
  int first = 0;
  for (const HostSlots& entry : slots) {
    hosts_.push_back({entry.host, !is_this_machine(entry.host), first, entry.slots, {}});
    first += entry.slots;
  }
  for (Host& host : hosts_) {
    for (int i = 0; i < host.slots; ++i) {
      const std::string prefix = fmt::format("[{}] ", ranks_.size());
      ranks_.push_back({-1, false, LinePrefixer(prefix), LinePrefixer(prefix)});
    }
  }
  if (hosts_.size() > 1 && hosts_[0].name == "localhost") {
    throw Error(ErrorCode::invalid_argument, "--hosts",
                "the first of several hosts is \"localhost\", which others cannot reach",
                "use the name by which the other hosts know this machine");
  }
}

int Launcher::run() {
  become_subreaper();
  start_agents();
  if (job_.time_limit) time_limit_ = Clock::now() + *job_.time_limit;
  while (!all_closed()) loop();
  if (!kill_descendants(kAbandonTimeout)) say("some processes could not be killed");
  for (RankState& rank : ranks_) {
    rank.out.end(out_);
    rank.err.end(err_);
  }
  flush_output();
  if (failure_) return *failure_;
  return 0;
}

void Launcher::start_agents() {
  enter(Phase::starting, kStartTimeout);
  const std::string key = job_key();
  const bool has_stdin = job_.give_stdin && stdin_is_ours();
  const std::string path = job_.remote_ropewalk.empty() ? own_path() : job_.remote_ropewalk;
  for (Host& host : hosts_) {
    const bool is_first = &host == &hosts_[0];
    host.agent = host.is_remote ? start_remote_agent(host.name, path)
                                : start_local_agent(is_first && has_stdin ? STDIN_FILENO : -1);
    JobPart part = part_for(host, key);
    part.forward_stdin = is_first && host.is_remote && has_stdin;
    if (part.forward_stdin) forwards_stdin_ = true;
    host.agent.channel.send({FrameKind::job, -1, encode(part)});
  }
}

JobPart Launcher::part_for(const Host& host, const std::string& key) const {
  JobPart part;
  part.size = static_cast<int>(ranks_.size());
  part.first_rank = host.first_rank;
  part.local_size = host.slots;
  part.listen = host.first_rank == 0;
  part.loopback = hosts_.size() == 1 && !host.is_remote;
  part.bind = job_.bind;
  part.job_key = key;
  part.workdir = job_.workdir;
  if (part.workdir.empty() && host.is_remote) part.workdir = std::filesystem::current_path();
  part.program = job_.program;
  if (host.is_remote) part.environment = ropewalk_environment();
  part.environment.insert(part.environment.end(), job_.environment.begin(), job_.environment.end());
  return part;
}

bool Launcher::all_closed() const {
  for (const Host& host : hosts_) {
    if (!host.closed) return false;
  }
  return true;
}

std::vector<int> Launcher::running_ranks() const {
  std::vector<int> running;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].running) running.push_back(static_cast<int>(i));
  }
  return running;
}

bool Launcher::any_running() const {
  return !running_ranks().empty();
}

void Launcher::enter(Phase phase, std::optional<milliseconds> time) {
  phase_ = phase;
  deadline_.reset();
  if (time) deadline_ = Clock::now() + *time;
}

int Launcher::poll_timeout_ms() const {
  std::optional<Clock::time_point> next = deadline_;
  if (time_limit_ && (!next || *time_limit_ < *next)) next = time_limit_;
  if (!next) return -1;
  const auto left = std::chrono::ceil<milliseconds>(*next - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(0, left));
}

void Launcher::loop() {
  // Once ranks are being killed a stuck reader of our output must not hold the end up.
  const bool may_drop = phase_ >= Phase::killing;
  const bool has_room =
      may_drop || std::max(out_.queued_bytes(), err_.queued_bytes()) < kOutputBytesMax;
  std::vector<pollfd> polled;
  polled.push_back({signals_.fd(), POLLIN, 0});
  polled.push_back({out_.empty() ? -1 : out_.fd(), POLLOUT, 0});
  polled.push_back({err_.empty() ? -1 : err_.fd(), POLLOUT, 0});
  const bool reads_stdin = forwards_stdin_ && !stdin_in_flight_ && phase_ == Phase::running;
  polled.push_back({reads_stdin ? STDIN_FILENO : -1, POLLIN, 0});
  for (Host& host : hosts_) {
    FrameChannel& channel = host.agent.channel;
    polled.push_back({host.closed || !has_room ? -1 : channel.in_fd(), POLLIN, 0});
    polled.push_back({channel.wants_to_write() ? channel.out_fd() : -1, POLLOUT, 0});
  }
  if (::poll(polled.data(), polled.size(), poll_timeout_ms()) < 0) return;  // EINTR

  if (polled[0].revents) on_signal();
  if (polled[1].revents) out_.write_some();
  if (polled[2].revents) err_.write_some();
  if (out_.broken() && !failure_ && phase_ < Phase::terminating) {
    fail(128 + SIGPIPE, "standard output was closed; ending the job");
    stop(SIGTERM, job_.grace);
  }
  if (polled[3].revents) forward_stdin();
  for (size_t i = 0; i < hosts_.size(); ++i) serve(hosts_[i], polled[4 + 2 * i].revents);
  if (may_drop && out_.queued_bytes() > kOutputBytesMax) out_.drop();
  if (may_drop && err_.queued_bytes() > kOutputBytesMax) err_.drop();

  const auto now = Clock::now();
  if (time_limit_ && now >= *time_limit_) {
    time_limit_.reset();
    if (phase_ < Phase::terminating) {
      fail(kStatusTimeLimit, fmt::format("the job has reached its time limit of {:g} s",
                                         static_cast<double>(job_.time_limit->count()) / 1e3));
      stop(SIGTERM, job_.grace);
    }
  }
  if (deadline_ && now >= *deadline_) on_deadline();
  if (phase_ != Phase::starting && phase_ != Phase::finishing && !any_running()) {
    enter(Phase::finishing, kAbandonTimeout);
    for (Host& host : hosts_) host.agent.channel.send({FrameKind::finish, -1, {}});
  }
}

void Launcher::serve(Host& host, short in_events) {
  if (host.closed) return;
  FrameChannel& channel = host.agent.channel;
  bool is_open = channel.flush();
  try {
    if (in_events) is_open = channel.receive() && is_open;
    while (auto frame = channel.next()) on_frame(host, *frame);
  } catch (const Error& error) {
    fail(kStatusHostLost, fmt::format("host {}: {}", host.name, error.what()));
    is_open = false;
  }
  if (!is_open) lose(host);
}

void Launcher::on_frame(Host& host, const Frame& frame) {
  const bool is_of_rank =
      frame.rank >= host.first_rank && frame.rank < host.first_rank + host.slots;
  switch (frame.kind) {
    case FrameKind::out:
    case FrameKind::err:
      if (is_of_rank) on_output(frame.rank, frame.kind == FrameKind::err, frame.payload);
      return;
    case FrameKind::ready:
      host.ready = true;
      if (&host == &hosts_[0]) listener_text_ = frame.payload;
      for (const Host& other : hosts_) {
        if (!other.ready) return;
      }
      return start_ranks();
    case FrameKind::started:
      if (is_of_rank) ranks_[static_cast<size_t>(frame.rank)].pid = number_in(frame.payload);
      return;
    case FrameKind::start_failed:
      return on_start_failed(host, frame);
    case FrameKind::exited:
      if (is_of_rank) on_exited(host, frame.rank, number_in(frame.payload));
      return;
    case FrameKind::stdin_taken:
      stdin_in_flight_ = false;
      return;
    case FrameKind::refused:
      return fail(1, fmt::format("host {}: {}", host.name, frame.payload));
    case FrameKind::done:
      host.done = true;
      return;
    default:
      throw Error(ErrorCode::protocol, "agent", "a frame that only launchers send");
  }
}

void Launcher::start_ranks() {
  if (phase_ != Phase::starting) return;
  const size_t blank = std::min(listener_text_.find(' '), listener_text_.size());
  std::string address = listener_text_.substr(std::min(blank + 1, listener_text_.size()));
  if (address.empty()) address = hosts_[0].name.substr(hosts_[0].name.find('@') + 1);
  if (address.find(':') != std::string::npos) address = "[" + address + "]";
  const std::string coordinator =
      fmt::format("{}:{}", address, number_in(listener_text_.substr(0, blank)));
  for (RankState& rank : ranks_) rank.running = true;
  for (Host& host : hosts_) host.agent.channel.send({FrameKind::start, -1, coordinator});
  enter(Phase::running, {});
}

void Launcher::on_output(int rank, bool is_err, std::string_view text) {
  RankState& state = ranks_[static_cast<size_t>(rank)];
  OutputQueue& queue = is_err ? err_ : out_;
  if (!job_.prefix) return queue.append(text);
  (is_err ? state.err : state.out).feed(text, queue);
}

void Launcher::on_exited(Host& host, int rank, int wait_status) {
  RankState& state = ranks_[static_cast<size_t>(rank)];
  state.running = false;
  state.out.end(out_);
  state.err.end(err_);
  int status = exit_status_of(wait_status);
  if (status == 0 || failure_) return;
  if (stop_signal_ != 0) {  // what the user asked for is no failure that needs telling
    failure_ = status == 128 + SIGKILL ? 128 + stop_signal_ : status;
    return;
  }
  fail(status, fmt::format("rank {} (pid {}, host {}) {}", rank, state.pid, host.name,
                           describe_exit(wait_status)));
}

void Launcher::on_start_failed(const Host& host, const Frame& frame) {
  for (int rank = std::max(0, frame.rank); rank < host.first_rank + host.slots; ++rank) {
    ranks_[static_cast<size_t>(rank)].running = false;
  }
  const int error = number_in(frame.payload);
  const std::string step = frame.payload.substr(frame.payload.find(' ') + 1);
  const bool is_program = step == "start";
  const bool is_directory = step == "enter directory";
  const std::string what = is_program ? fmt::format("\"{}\"", job_.program[0])
                           : is_directory
                               ? fmt::format("(directory {})", part_for(host, "").workdir)
                               : fmt::format("a process ({})", step);
  const char* advice = is_directory  ? "; choose one that exists there: --workdir DIR"
                       : !is_program ? "; check the limits: ulimit -u; ulimit -n"
                       : error == ENOENT
                           ? "; give its path, or put it on PATH (a script: check its first line)"
                           : "; see that it is an executable file";
  const int status = is_program && error == ENOENT ? 127 : 126;
  fail(status, fmt::format("rank {}: cannot start {} on host {}: {}{}", frame.rank, what, host.name,
                           strerror(error), advice));
  stop(SIGTERM, job_.grace);  // the job can never be complete: no need to wait for errors
}

void Launcher::lose(Host& host) {
  host.closed = true;
  host.agent.channel.close();
  int wait_status = 0;
  if (!wait_for(host.agent.pid, milliseconds(1000), wait_status)) {
    kill(host.agent.pid, SIGKILL);
    wait_for(host.agent.pid, milliseconds(1000), wait_status);
  }
  for (int i = 0; i < host.slots; ++i) {
    RankState& rank = ranks_[static_cast<size_t>(host.first_rank + i)];
    rank.running = false;
  }
  if (host.done) return;
  if (!host.is_remote) {
    return fail(kStatusHostLost,
                fmt::format("the agent of this machine (pid {}) {}, and its ranks with it",
                            host.agent.pid, describe_exit(wait_status)));
  }
  std::string advice;
  if (!host.agent.channel.greeted()) {
    advice = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 127
                 ? "; install ropewalk there, or say where it is: --remote-ropewalk PATH"
                 : fmt::format("; try: ssh -o BatchMode=yes {} true", host.name);
  }
  fail(kStatusHostLost,
       fmt::format("host {} is lost: ssh {}{}", host.name, describe_exit(wait_status), advice));
}

void Launcher::forward_stdin() {
  char bytes[kStdinBytes];
  const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n <= 0) {
    forwards_stdin_ = false;
    return hosts_[0].agent.channel.send({FrameKind::stdin_end, 0, {}});
  }
  stdin_in_flight_ = true;
  hosts_[0].agent.channel.send(
      {FrameKind::stdin_data, 0, std::string(bytes, static_cast<size_t>(n))});
}

void Launcher::signal_ranks(int signal_number) {
  for (Host& host : hosts_) {
    if (!host.closed) {
      host.agent.channel.send({FrameKind::signal, -1, std::to_string(signal_number)});
    }
  }
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
  if (phase_ >= Phase::killing) return;
  const bool is_second = stop_signal_ != 0;
  stop_signal_ = number;
  if (phase_ == Phase::starting) {
    fail(128 + number, fmt::format("{} before the ranks had started", strsignal(number)));
  } else if (is_second) {
    say(fmt::format("{} again: killing the ranks", strsignal(number)));
    signal_ranks(SIGKILL);
    enter(Phase::killing, kAbandonTimeout);
  } else {
    say(fmt::format("{}: passed on to the ranks; they have {} s", strsignal(number),
                    kSignalGrace.count() / 1000));
    stop(number, kSignalGrace);
  }
}

void Launcher::on_deadline() {
  const auto running = running_ranks();
  switch (phase_) {
    case Phase::starting:
      for (const Host& host : hosts_) {
        if (!host.ready) {
          return fail(kStatusHostLost,
                      fmt::format("host {}: no agent answered within {} s; try: ssh -o "
                                  "BatchMode=yes {} true",
                                  host.name, kStartTimeout.count() / 1000, host.name));
        }
      }
      return enter(Phase::running, {});
    case Phase::grace:
      say(fmt::format("still running: ranks {}; sending them SIGTERM", fmt::join(running, ", ")));
      return stop(SIGTERM, job_.grace);
    case Phase::terminating:
      say(fmt::format("still running: ranks {}; killing them", fmt::join(running, ", ")));
      signal_ranks(SIGKILL);
      return enter(Phase::killing, kAbandonTimeout);
    case Phase::running:
      return enter(Phase::running, {});
    case Phase::killing:
    case Phase::finishing:
      for (Host& host : hosts_) {
        if (host.closed) continue;
        kill(host.agent.pid, SIGKILL);
        lose(host);
      }
      return;
  }
}

// What the job printed last; a reader that has stopped reading holds us up only when we were not
// told to stop.
void Launcher::flush_output() {
  const auto deadline = Clock::now() + kFlushTimeout;
  while (!out_.empty() || !err_.empty()) {
    pollfd polled[3] = {{out_.empty() ? -1 : out_.fd(), POLLOUT, 0},
                        {err_.empty() ? -1 : err_.fd(), POLLOUT, 0},
                        {signals_.fd(), POLLIN, 0}};
    ::poll(polled, 3, stop_signal_ != 0 ? 100 : -1);
    if (polled[0].revents) out_.write_some();
    if (polled[1].revents) err_.write_some();
    if (polled[2].revents && stop_signal_ == 0) stop_signal_ = signals_.next();
    if (stop_signal_ != 0 && Clock::now() > deadline) return;
  }
}

}  // namespace

int launch(const JobSpec& job) {
  return Launcher(job).run();
}

std::string own_path() {
  std::error_code error;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error || path.ends_with(" (deleted)") ? "/proc/self/exe" : path;
}

}  // namespace ropewalk::tools
