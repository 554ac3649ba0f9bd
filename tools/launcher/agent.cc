#include "tools/launcher/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "ropewalk/status.h"
#include "tools/command/descriptors.h"
#include "tools/launcher/binding.h"
#include "tools/launcher/frames.h"
#include "tools/launcher/job_part.h"
#include "tools/launcher/leftovers.h"
#include "tools/launcher/listener.h"
#include "tools/launcher/processes.h"
#include "tools/launcher/rank_environment.h"
#include "tools/launcher/rank_process.h"

namespace ropewalk::tools {
namespace {

using std::chrono::milliseconds;

constexpr size_t kQueueBytesMax = 1 << 20;  // above it the ranks' output waits in their pipes
constexpr milliseconds kLeftoversInterval{10};
// Descriptors: three per rank (output, error, pidfd), and what the agent itself has at most.

struct Rank {
  int rank = 0;   // or, of one that was started again, its number
  int index = 0;  // of its slot among those of the part
  RankProcess process;
  UniqueFd pidfd;
  UniqueFd joined;  // of one that was started again: readable once it is in the job
  bool running = false;
};

class Agent {
 public:
  Agent(UniqueFd in, UniqueFd out, UniqueFd rank0_stdin)
      : channel_(std::move(in), std::move(out)), rank0_stdin_(std::move(rank0_stdin)) {}

  int run();

 private:
  void take_over_process();
  void poll_once();
  void handle(const Frame& frame);
  void prepare(const Frame& frame);
  void start_ranks(const std::string& coordinator);
  void start_again(const Frame& frame);
  bool start_one(int number, RankRole role);
  void give_stdin(RankStart& start, UniqueFd& stdin_read);
  void watch(Rank& rank);
  void hear_joined(Rank& rank);
  void reap();
  void rank_ended(Rank& rank, int wait_status);
  void pass_on(Rank& rank, UniqueFd& fd, FrameKind kind, size_t bytes_max);
  void drain(Rank& rank);
  bool has_room() const {
    return !held_ && !tells_done_ && channel_.queued_bytes() < kQueueBytesMax;
  }
  void feed_stdin();
  void see_to_leftovers();
  void show_life();
  void look_for_launcher();
  void finish();

  FrameChannel channel_;
  UniqueFd rank0_stdin_;        // handed to rank 0
  UniqueFd rank0_stdin_write_;  // forwarded input goes here
  UniqueFd signals_, dead_;     // signalfd; epoll set of pidfds, which gives deaths in their order
  UniqueFd listener_;           // in an elastic job as long as that runs
  std::vector<int> cpus_;       // by local rank, where ranks are bound
  DescriptorLimit descriptor_limit_;
  JobPart part_;
  std::vector<Rank> ranks_;
  std::string stdin_data_;  // forwarded input that rank 0 has not taken yet
  bool prepared_ = false, started_ = false, stdin_ended_ = false;
  bool held_ = false;                   // the launcher takes no output now
  bool has_output_ = false;             // some was read in this turn
  std::optional<Leftovers> leftovers_;  // once no rank runs anywhere
  std::vector<int> cut_off_ranks_;      // whose leftovers had to be ended while they could write
  std::chrono::steady_clock::time_point next_alive_;
  std::chrono::steady_clock::time_point heard_, looked_;  // the launcher, for it
  bool tells_done_ = false, done_ = false, launcher_gone_ = false;
};

void Agent::take_over_process() {
  occupy_standard_descriptors();
  setsid();                    // fails harmlessly where the process leads a group already
  prctl(PR_SET_PDEATHSIG, 0);  // an agent must outlive its launcher to clean up
  become_subreaper();
  signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) {
    signal(number, SIG_DFL);
    sigaddset(&set, number);
  }
  sigprocmask(SIG_SETMASK, &set, nullptr);
  signals_ = UniqueFd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  dead_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
}

int Agent::run() {
  take_over_process();
  channel_.send_greeting();
  try {
    while (!done_ && !launcher_gone_) poll_once();
  } catch (const Error& error) {
    channel_.send({FrameKind::refused, -1, error.what()});
    channel_.flush();
    launcher_gone_ = true;
  }
  if (!launcher_gone_) return 0;
  kill_descendants(kKillTimeout);
  return 1;
}

void Agent::poll_once() {
  std::vector<pollfd> polled;
  polled.push_back({channel_.in_fd(), POLLIN, 0});
  polled.push_back({channel_.out_fd(), channel_.wants_to_write() ? short{POLLOUT} : short{0}, 0});
  polled.push_back({signals_.get(), POLLIN, 0});
  polled.push_back({stdin_data_.empty() ? -1 : rank0_stdin_write_.get(), POLLOUT, 0});
  for (const Rank& rank : ranks_) {
    polled.push_back({has_room() ? rank.process.out.get() : -1, POLLIN, 0});
    polled.push_back({has_room() ? rank.process.err.get() : -1, POLLIN, 0});
    polled.push_back({rank.joined.get(), POLLIN, 0});
  }
  const size_t rank_count = ranks_.size();
  const auto timeout = leftovers_ ? kLeftoversInterval : kAliveInterval;
  if (::poll(polled.data(), polled.size(), static_cast<int>(timeout.count())) < 0) return;  // EINTR

  has_output_ = false;
  if (polled[1].revents & (POLLERR | POLLHUP)) launcher_gone_ = true;
  if (polled[3].revents) feed_stdin();
  for (size_t i = 0; i < rank_count; ++i) {
    const pollfd* const of_rank = &polled[4 + 3 * i];
    if (of_rank[0].revents) pass_on(ranks_[i], ranks_[i].process.out, FrameKind::out, 1);
    if (of_rank[1].revents) pass_on(ranks_[i], ranks_[i].process.err, FrameKind::err, 1);
    if (of_rank[2].revents) hear_joined(ranks_[i]);
  }
  if (polled[2].revents) reap();
  if (polled[0].revents) {
    const bool open = channel_.receive();
    heard_ = std::chrono::steady_clock::now();
    while (auto frame = channel_.next()) handle(*frame);
    if (!open) launcher_gone_ = true;
  }
  if (leftovers_ && !tells_done_) see_to_leftovers();
  show_life();
  look_for_launcher();
  if (!channel_.flush()) launcher_gone_ = true;
  if (tells_done_ && !channel_.wants_to_write()) done_ = true;
}

void Agent::show_life() {
  const auto now = std::chrono::steady_clock::now();
  if (!prepared_ || now < next_alive_) return;
  next_alive_ = now + kAliveInterval;
  if (!channel_.wants_to_write()) channel_.send({FrameKind::alive, -1, {}});  // else that tells
}

// A network that is cut ends no connection: without the launcher nobody would end the ranks here.
void Agent::look_for_launcher() {
  const auto now = std::chrono::steady_clock::now();
  const bool was_suspended =
      now - std::exchange(looked_, now) > 4 * kAliveInterval;  // stopped itself
  if (was_suspended) heard_ = now;
  const milliseconds timeout(part_.launcher_timeout_ms);
  if (timeout.count() > 0 && now - heard_ > timeout) launcher_gone_ = true;
}

void Agent::handle(const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::job:
      return prepare(frame);
    case FrameKind::start:
      return start_ranks(frame.payload);
    case FrameKind::signal:
      for (const Rank& rank : ranks_) {
        const bool meant = frame.rank < 0 || frame.rank == rank.rank;
        if (!meant || !rank.running) continue;
        const int number = number_in(frame.payload);
        // To the rank and what it runs, as a terminal would; unless it has left its own group.
        if (kill(-rank.process.pid, number) != 0) kill(rank.process.pid, number);
      }
      return;
    case FrameKind::stdin_data:
      stdin_data_ += frame.payload;
      return feed_stdin();
    case FrameKind::stdin_end:
      stdin_ended_ = true;
      return feed_stdin();
    case FrameKind::hold:
      held_ = true;
      return;
    case FrameKind::resume:
      held_ = false;
      return;
    case FrameKind::restart:
      return start_again(frame);
    case FrameKind::alive:
      return;
    case FrameKind::finish:
      leftovers_.emplace(milliseconds(number_in(frame.payload)));
      return;
    default:
      throw Error(ErrorCode::protocol, "agent", "a frame that only agents send");
  }
}

void Agent::prepare(const Frame& frame) {
  if (prepared_) throw Error(ErrorCode::protocol, "agent", "two jobs");
  prepared_ = true;
  part_ = decode_job_part(frame.payload);
  const auto ranks = static_cast<rlim_t>(part_.slots);
  descriptor_limit_.raise_to(
      kAgentDescriptors + kDescriptorsPerRank * ranks,
      fmt::format("the agent that starts {} rank{}", ranks, ranks == 1 ? "" : "s"));
  std::string where;
  if (part_.listen) {
    Listener listener = listen_for_ranks(part_.loopback);
    where = fmt::format("{} {}", listener.port, listener.address);
    listener_ = std::move(listener.socket);
  }
  channel_.send({FrameKind::ready, -1, where});
}

void Agent::start_ranks(const std::string& coordinator) {
  if (!prepared_ || started_) throw Error(ErrorCode::protocol, "agent", "start out of order");
  started_ = true;
  if (part_.bind) cpus_ = cpus_for_ranks(part_.local_slots);
  ranks_.reserve(static_cast<size_t>(part_.slots));
  for (int i = 0; i < part_.ranks; ++i) {
    if (!start_one(part_.first_rank + i, {.index = i, .coordinator = coordinator})) break;
  }
  if (!part_.elastic) listener_.reset();  // rank 0 has it now
  rank0_stdin_.reset();
}

void Agent::start_again(const Frame& frame) {
  const int slot = number_in(frame.payload);
  if (!started_ || slot < 0 || slot >= part_.slots)
    throw Error(ErrorCode::protocol, "agent", "there is no such slot");
  const auto former = std::find_if(ranks_.rbegin(), ranks_.rend(),
                                   [slot](const Rank& rank) { return rank.index == slot; });
  if (former != ranks_.rend()) {
    if (former->running) throw Error(ErrorCode::protocol, "agent", "the slot is not free");
    kill(-former->process.pid, SIGKILL);  // what it left behind is not to go on without it
  }
  start_one(frame.rank,
            {.index = slot, .coordinator = frame.payload.substr(frame.payload.find(' ') + 1)});
}

bool Agent::start_one(int number, RankRole role) {
  RankStart start;
  start.program = part_.program;
  start.workdir = part_.workdir;
  if (!cpus_.empty()) start.cpu = cpus_[static_cast<size_t>(part_.first_local_rank + role.index)];
  start.descriptor_limit = descriptor_limit_;
  if ((number == 0 || part_.elastic) && listener_) {
    role.coordinator_fd = listener_.get();
    start.inherited_fds.push_back(listener_.get());
  }
  UniqueFd stdin_read, joined_read, joined_write;
  if (number == 0) give_stdin(start, stdin_read);
  if (role.index >= part_.ranks ||
      number != part_.first_rank + role.index) {  // of one that is lost
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
      channel_.send({FrameKind::start_failed, number, fmt::format("{} pipe", errno)});
      return false;
    }
    joined_read = UniqueFd(ends[0]);
    joined_write = UniqueFd(ends[1]);
    role.joined_fd = ends[1];
    start.inherited_fds.push_back(ends[1]);
  }
  start.environment = rank_environment(part_, role);

  Rank started{number, role.index, start_rank(start), UniqueFd(), std::move(joined_read), true};
  if (started.process.error != 0) {
    channel_.send({FrameKind::start_failed, number,
                   fmt::format("{} {}", started.process.error, started.process.failed_step)});
    return false;
  }
  watch(started);
  channel_.send({FrameKind::started, number, std::to_string(started.process.pid)});
  ranks_.push_back(std::move(started));
  return true;
}

void Agent::give_stdin(RankStart& start, UniqueFd& stdin_read) {
  int ends[2];
  if (part_.forward_stdin && pipe2(ends, O_CLOEXEC) == 0) {
    stdin_read = UniqueFd(ends[0]);
    rank0_stdin_write_ = UniqueFd(ends[1]);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
  }
  start.stdin_fd = stdin_read ? stdin_read.get() : rank0_stdin_.get();
}

// Where the kernel has no pidfd the rank is still reaped, only not in the exact order.
void Agent::watch(Rank& rank) {
  rank.pidfd = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, rank.process.pid, 0)));
  if (!rank.pidfd) return;
  epoll_event event{EPOLLIN, {.u64 = ranks_.size()}};
  epoll_ctl(dead_.get(), EPOLL_CTL_ADD, rank.pidfd.get(), &event);
}

void Agent::hear_joined(Rank& rank) {
  char byte;
  const ssize_t n = rank.joined ? ::read(rank.joined.get(), &byte, 1) : 0;
  if (n == 1) channel_.send({FrameKind::joined, rank.rank, {}});
  if (n == 0) rank.joined.reset();  // not before: it may write again
}

void Agent::reap() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGCHLD) launcher_gone_ = true;  // told to end: end everything
  }
  // epoll lists what became ready in the order in which it did: the first to die comes first.
  std::array<epoll_event, 64> deaths;
  int wait_status = 0;
  int count;
  while ((count = epoll_wait(dead_.get(), deaths.data(), deaths.size(), 0)) > 0) {
    for (int i = 0; i < count; ++i) {
      Rank& rank = ranks_[deaths[static_cast<size_t>(i)].data.u64];
      if (waitpid(rank.process.pid, &wait_status, WNOHANG) == rank.process.pid) {
        rank_ended(rank, wait_status);
      }
    }
  }
  pid_t pid;
  while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
    for (Rank& rank : ranks_) {
      if (rank.running && rank.process.pid == pid) rank_ended(rank, wait_status);
    }
  }
}

void Agent::rank_ended(Rank& rank, int wait_status) {
  rank.running = false;
  rank.pidfd.reset();
  drain(rank);  // before its end is told
  hear_joined(rank);
  channel_.send({FrameKind::exited, rank.rank, std::to_string(wait_status)});
  if (rank.rank == 0 && rank0_stdin_write_) {
    stdin_ended_ = true;
    rank0_stdin_write_.reset();
    feed_stdin();
  }
}

// Reads once, then on until `bytes_max` or nothing is left.
void Agent::pass_on(Rank& rank, UniqueFd& fd, FrameKind kind, size_t bytes_max) {
  char bytes[32 << 10];
  size_t total = 0;
  while (fd && total < bytes_max) {
    const ssize_t n = ::read(fd.get(), bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    channel_.send(
        {kind, rank.rank, std::string(bytes, static_cast<size_t>(std::max<ssize_t>(n, 0)))});
    if (n <= 0) return fd.reset();
    total += static_cast<size_t>(n);
    has_output_ = true;
  }
}

// What its pipes hold now, whether there is room or not. More may come of what it has left behind.
void Agent::drain(Rank& rank) {
  const auto held_bytes = [](const UniqueFd& fd) {
    int bytes = 0;
    return fd && ioctl(fd.get(), FIONREAD, &bytes) == 0 ? static_cast<size_t>(bytes) : 0;
  };
  pass_on(rank, rank.process.out, FrameKind::out, held_bytes(rank.process.out));
  pass_on(rank, rank.process.err, FrameKind::err, held_bytes(rank.process.err));
}

void Agent::feed_stdin() {
  if (!rank0_stdin_write_) {
    if (!stdin_data_.empty()) channel_.send({FrameKind::stdin_taken, 0, {}});
    stdin_data_.clear();
    return;
  }
  while (!stdin_data_.empty()) {
    const ssize_t n = ::write(rank0_stdin_write_.get(), stdin_data_.data(), stdin_data_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) {  // rank 0 has closed its input
      rank0_stdin_write_.reset();
      return feed_stdin();
    }
    stdin_data_.erase(0, static_cast<size_t>(n));
    if (stdin_data_.empty()) channel_.send({FrameKind::stdin_taken, 0, {}});
  }
  if (stdin_ended_) rank0_stdin_write_.reset();
}

void Agent::see_to_leftovers() {
  std::vector<int> writers;
  for (const Rank& rank : ranks_) {
    if (rank.process.out || rank.process.err) writers.push_back(rank.rank);
  }
  const bool cut_off_before = leftovers_->were_cut_off();
  const bool all_gone = leftovers_->advance({!writers.empty(), has_output_, !has_room()});
  if (!cut_off_before && leftovers_->were_cut_off()) cut_off_ranks_ = writers;
  if (all_gone) finish();
}

void Agent::finish() {
  for (Rank& rank : ranks_) drain(rank);  // who wrote has ended
  channel_.send({FrameKind::done, -1, fmt::format("{}", fmt::join(cut_off_ranks_, ", "))});
  tells_done_ = true;
}

}  // namespace

int run_agent(UniqueFd in, UniqueFd out, UniqueFd rank0_stdin) {
  return Agent(std::move(in), std::move(out), std::move(rank0_stdin)).run();
}

}  // namespace ropewalk::tools
