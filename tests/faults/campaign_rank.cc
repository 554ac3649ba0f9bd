// One rank of a job of tests/campaign: makes the same call again and again, looks at what it gives,
// brings faults upon itself, and says on a line of JSON how it ended.
//
//   campaign_rank CALL COUNT ITERATIONS [FAULT...]
//   FAULT = KIND:RANK:ITERATION:DELAY_US:SECONDS    iteration -1: while it joins
#include <fmt/format.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "bootstrap/net.h"
#include "ropewalk/policies.h"
#include "tests/support/descriptors.h"

namespace ropewalk {
namespace {

using std::chrono::duration;
using std::chrono::microseconds;

struct Fault {
  std::string kind;
  int rank, iteration;
  microseconds delay;
  double seconds;
};

Fault parse(std::string_view text) {
  const auto parts = split(text, ':');
  if (parts.size() != 5) throw std::invalid_argument(std::string(text));
  return {std::string(parts[0]), parse_number<int>(parts[1]).value(),
          parse_number<int>(parts[2]).value(), microseconds(parse_number<int>(parts[3]).value()),
          parse_number<double>(parts[4]).value()};
}

/// Wakes this process after it has stopped itself. Forked before there is anything to inherit.
class Waker {
 public:
  Waker() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    const pid_t parent = ::getpid();
    if (::fork() == 0) {
      ::close(ends[1]);
      for (double seconds = 0; ::read(ends[0], &seconds, sizeof seconds) == sizeof seconds;) {
        std::this_thread::sleep_for(duration<double>(seconds));
        ::kill(parent, SIGCONT);
      }
      ::_exit(0);
    }
    ::close(ends[0]);
    fd_ = ends[1];
  }
  ~Waker() { ::close(fd_); }
  void stop_for(double seconds) const {
    if (::write(fd_, &seconds, sizeof seconds) == sizeof seconds) ::raise(SIGSTOP);
  }

 private:
  int fd_;
};

/// Nonsense, at each port of this process.
void send_strangers() {
  std::vector<bootstrap::SocketAddress> ports;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    int listens = 0;
    socklen_t length = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0)
      ports.push_back(bootstrap::local_address(fd));
  }
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 300 && !ports.empty(); ++i) {
    UniqueFd& stranger = strangers.emplace_back();
    if (bootstrap::begin_connect(ports[static_cast<size_t>(i) % ports.size()], stranger) != 0)
      continue;
    std::this_thread::sleep_for(microseconds(200));
    const std::string nonsense(static_cast<size_t>(i) % 97, static_cast<char>(i));
    ::send(stranger.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
  }
}

/// Little more for this process than it has.
void use_up_memory() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = pages * static_cast<size_t>(::getpagesize()) + (64 << 10);
  ::setrlimit(RLIMIT_AS, &limit);
}

/// Also for root.
void forbid_locked_memory() {
  const rlimit none{};
  ::setrlimit(RLIMIT_MEMLOCK, &none);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> rights{};
  ::syscall(SYS_capget, &header, rights.data());
  rights[0].effective &= ~(1u << CAP_IPC_LOCK);
  ::syscall(SYS_capset, &header, rights.data());
}

class Faults {
 public:
  Faults(int rank, std::vector<Fault> all) {
    for (Fault& fault : all)
      if (fault.rank == rank) by_iteration_[fault.iteration].push_back(std::move(fault));
  }
  ~Faults() { await(); }

  /// Until all that have begun are over.
  void await() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  /// What is due in this iteration: at once, or after its delay while the rank goes on.
  void begin(int iteration, Communicator* comm) {
    for (const Fault& fault : by_iteration_[iteration]) {
      if (fault.kind == "slow") std::this_thread::sleep_for(duration<double>(fault.seconds));
      if (fault.kind == "descriptors") testing::use_up_descriptors();
      if (fault.kind == "memory") use_up_memory();
      if (fault.kind == "memlock") forbid_locked_memory();
      if (fault.kind == "abort" && comm != nullptr) comm->abort("the campaign wants it");
      if (fault.kind == "exception") throw std::runtime_error("the campaign wants it");
      threads_.emplace_back([this, fault] {
        std::this_thread::sleep_for(fault.delay);
        strike(fault);
      });
    }
  }

 private:
  void strike(const Fault& fault) const {
    const auto shell = [](const std::string& command) {
      if (std::system(command.c_str()) != 0) fmt::print(stderr, "failed: {}\n", command);
    };
    if (fault.kind == "kill") ::raise(SIGKILL);
    if (fault.kind == "stop") ::raise(SIGSTOP);
    if (fault.kind == "pause") waker_.stop_for(fault.seconds);
    if (fault.kind == "strangers") send_strangers();
    if (fault.kind == "cut") shell("ip link set eth0 down");
    if (fault.kind == "data path") shell("ip link set eth1 down");
    if (fault.kind.starts_with("lose+"))
      for (const auto host : split(std::string_view(fault.kind).substr(5), '+'))
        shell(fmt::format(
            "ip neigh replace 10.77.0.{} lladdr 02:00:00:00:00:01 dev eth0 nud permanent",
            parse_number<int>(host).value() + 1));
    if (fault.kind == "outage")
      shell(fmt::format("ip link set eth0 down; sleep {}; ip link set eth0 up", fault.seconds));
  }

  const Waker waker_;
  std::map<int, std::vector<Fault>> by_iteration_;
  std::vector<std::thread> threads_;
};

/// What rank `rank` brings; sums of it are exact.
float brought(int rank, size_t index) {
  return static_cast<float>(rank + 1) + static_cast<float>(index % 7);
}

std::vector<float> bring(int rank, size_t count, size_t first = 0) {
  std::vector<float> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = brought(rank, first + i);
  return data;
}

/// The sum of what all bring.
float sum_of(int ranks, size_t index) {
  const auto n = static_cast<float>(ranks);
  return n * (n + 1) / 2 + n * static_cast<float>(index % 7);
}

class Calls {
 public:
  Calls(Communicator& comm, std::string call, size_t count)
      : comm_(comm), call_(std::move(call)), count_(count) {
    if (call_ == "async_ea") {
      ea_.emplace(comm, 1, 0.5);
      parameters_.assign(count, 1);
      const std::array<std::span<float>, 1> all = {parameters_};
      ea_->synchronize_parameters(all);
    }
  }

  /// How many elements are wrong.
  size_t make(int iteration) {
    if (call_ == "all_reduce") return all_reduce(comm_);
    if (call_ == "split") return all_reduce_in_part();
    if (call_ == "broadcast") return broadcast(iteration % comm_.size());
    if (call_ == "all_gather") return all_gather();
    if (call_ == "messages") return messages();
    if (call_ == "async_ea") return async_ea();
    throw std::invalid_argument(call_);
  }

 private:
  size_t all_reduce(Communicator& comm) {
    std::vector<float> data = bring(comm.rank(), count_);
    comm.all_reduce(data);
    return wrong(data, [&](size_t i) { return sum_of(comm.size(), i); });
  }
  /// Errors of the part number its ranks, those of the split the ranks of the whole. Where the job
  /// has failed by a rank that is not in the part, the whole can name it.
  size_t all_reduce_in_part() {
    const int color = comm_.rank() % 2;
    const auto part = comm_.split(color);
    try {
      return all_reduce(*part);
    } catch (const Error& error) {
      if (error.peers().empty()) comm_.barrier();
      Failure failure = error.failure();
      for (int& peer : failure.peers) peer = 2 * peer + color;
      throw Error(failure);
    }
  }
  size_t broadcast(int root) {
    std::vector<float> data = bring(comm_.rank(), count_);
    comm_.broadcast(data, root);
    return wrong(data, [&](size_t i) { return brought(root, i); });
  }
  size_t all_gather() {
    const std::vector<float> data = bring(comm_.rank(), count_);
    std::vector<float> all(count_ * static_cast<size_t>(comm_.size()));
    comm_.all_gather(data, all);
    return wrong(all, [&](size_t i) { return brought(static_cast<int>(i / count_), i % count_); });
  }
  /// To the next rank, from the one before.
  size_t messages() {
    const int ranks = comm_.size(), before = (comm_.rank() + ranks - 1) % ranks;
    const std::vector<float> data = bring(comm_.rank(), count_);
    std::vector<float> theirs(count_);
    Work works[] = {comm_.start(Call::send(data, (comm_.rank() + 1) % ranks)),
                    comm_.start(Call::recv(theirs, before))};
    for (Work& work : works) work.wait();
    return wrong(theirs, [&](size_t i) { return brought(before, i); });
  }
  /// All begin with the same and stay there.
  size_t async_ea() {
    const std::array<std::span<float>, 1> all = {parameters_};
    ea_->average_parameters(all);
    return wrong(parameters_, [](size_t) { return 1.0f; });
  }
  static size_t wrong(const std::vector<float>& data, auto expected) {
    size_t count = 0;
    for (size_t i = 0; i < data.size(); ++i) count += data[i] != expected(i) ? 1 : 0;
    return count;
  }

  Communicator& comm_;
  const std::string call_;
  const size_t count_;
  std::optional<AsyncEa<float>> ea_;
  std::vector<float> parameters_;
};

int run(const std::vector<std::string>& words) {
  const int rank = std::atoi(std::getenv("ROPEWALK_RANK"));
  std::vector<Fault> all;
  for (size_t i = 3; i < words.size(); ++i) all.push_back(parse(words[i]));
  nlohmann::json said = {{"rank", rank}, {"code", 0}, {"wrong", 0}, {"text", ""}};
  said["peers"] = nlohmann::json::array();
  const int descriptors = testing::open_descriptors();
  {
    Faults faults(rank, std::move(all));
    int iteration = -1;
    try {
      faults.begin(iteration, nullptr);
      const auto comm = Communicator::create();
      Calls calls(*comm, words[0], parse_number<size_t>(words[1]).value());
      size_t wrong = 0;
      const int iterations = parse_number<int>(words[2]).value();
      for (iteration = 0; iteration < iterations; ++iteration) {
        faults.begin(iteration, comm.get());
        wrong += calls.make(iteration);
        said["wrong"] = wrong;
      }
      faults.await();
      // Nobody leaves before all faults have struck. Who is not heard finds out in the second: the
      // others do not come to it.
      comm->barrier();
      comm->barrier();
      faults.begin(iterations, comm.get());
    } catch (const Error& error) {
      said["code"] = static_cast<int>(error.code());
      said["peers"] = error.peers();
      said["text"] = error.what();
    } catch (const std::exception& error) {
      said["code"] = -1;
      said["text"] = error.what();
    }
    said["iteration"] = iteration;
  }
  said["descriptors_left"] = testing::open_descriptors() - descriptors;
  const std::string line = said.dump() + "\n";
  return ::write(STDOUT_FILENO, line.data(), line.size()) > 0 && said["code"] == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ropewalk

int main(int count, char** words) {
  if (count < 4) return 2;
  return ropewalk::run({words + 1, words + count});
}
