#include "bootstrap/pmi.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <mutex>
#include <sstream>

#include "base/log.h"
#include "bootstrap/net.h"

namespace ropewalk::bootstrap {
namespace {

constexpr const char* kAdvice = "set ROPEWALK_COORDINATOR=host:port on every rank";
constexpr size_t kLineBytesMax = 16 << 10;
constexpr std::chrono::nanoseconds kGoodbyeMax = std::chrono::seconds(1);

[[noreturn]] void fail(ErrorCode code, std::string reason) {
  throw Error(code, "pmi", std::move(reason), kAdvice);
}

/// A unique id has blanks, which PMI has not; and no slashes.
std::string swap_chars(std::string text, char from, char to) {
  std::ranges::replace(text, from, to);
  return text;
}

/// The launcher serves one client at each descriptor, as long as the process lives.
Pmi& pmi_of_process(int fd, std::chrono::nanoseconds timeout) {
  static Pmi pmi(fd, timeout);
  return pmi;
}

}  // namespace

Pmi::Pmi(int fd, std::chrono::nanoseconds timeout) : fd_(fd), timeout_(timeout) {
  Answer answer = ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init");
  if (answer["pmi_version"] != "1")
    fail(ErrorCode::unavailable,
         fmt::format("the launcher speaks PMI {}, and not PMI 1", answer["pmi_version"]));
  const std::string bytes = ask("cmd=get_maxes", "maxes")["vallen_max"];
  std::from_chars(bytes.data(), bytes.data() + bytes.size(), value_bytes_max_);
  store_ = ask("cmd=get_my_kvsname", "my_kvsname")["kvsname"];
}

Pmi::~Pmi() {
  if (process_.is_forked()) return;
  timeout_ = std::min(timeout_, kGoodbyeMax);
  try {
    ask("cmd=finalize", "finalize_ack");
  } catch (const Error& error) {
    log(LogLevel::debug, -1, "{}", error.what());  // it has gone
  }
}

void Pmi::put(const std::string& key, const std::string& value) {
  assert((key + value).find_first_of(" =\n") == std::string::npos);
  if (value.size() >= value_bytes_max_)
    fail(ErrorCode::unavailable,
         fmt::format("the launcher keeps values of {} bytes at most, and this has {}",
                     value_bytes_max_, value.size()));
  ask(fmt::format("cmd=put kvsname={} key={} value={}", store_, key, value), "put_result");
}

std::string Pmi::get(const std::string& key) {
  return ask(fmt::format("cmd=get kvsname={} key={}", store_, key), "get_result")["value"];
}

void Pmi::barrier() {
  ask("cmd=barrier_in", "barrier_out");
}

Pmi::Answer Pmi::ask(const std::string& request, const char* expected) {
  const std::string line = request + "\n";
  // A line is short beside any socket's buffer.
  if (::send(fd_, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
    fail(ErrorCode::unavailable,
         fmt::format("cannot ask the launcher (PMI_FD={}): {}", fd_, errno_text(errno)));
  const std::string text = read_line(request);
  Answer answer;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t equals = std::min(word.find('='), word.size());
    answer[word.substr(0, equals)] = word.substr(std::min(equals + 1, word.size()));
  }
  const std::string& result = answer["rc"];
  if (answer["cmd"] != expected || (!result.empty() && result != "0"))
    fail(ErrorCode::unavailable,
         fmt::format("the launcher answers \"{}\" with \"{}\"", request, text.substr(0, 200)));
  return answer;
}

std::string Pmi::read_line(const std::string& request) {
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  size_t end = 0;
  while ((end = received_.find('\n')) == std::string::npos) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ready{fd_, POLLIN, 0};
    const int found =
        ::poll(&ready, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1'000'000)));
    if (found < 0 && errno == EINTR) continue;
    if (found == 0 && left.count() <= 0)
      fail(ErrorCode::timeout,
           fmt::format("the launcher has not answered \"{}\" within {:.3g} s: have all ranks "
                       "started?",
                       request, std::chrono::duration<double>(timeout_).count()));
    if (found == 0) continue;
    char bytes[1024];
    const ssize_t count = ::recv(fd_, bytes, sizeof(bytes), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || received_.size() > kLineBytesMax)
      fail(ErrorCode::unavailable,
           count < 0    ? fmt::format("cannot hear the launcher: {}", errno_text(errno))
           : count == 0 ? std::string("the launcher has closed its socket (PMI_FD)")
                        : std::string("the launcher sends what is no line"));
    received_.append(bytes, static_cast<size_t>(count));
  }
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return line;
}

std::optional<Rendezvous> meet_over_pmi(JobIdentity& identity, Config& config) {
  assert(identity.pmi_fd >= 0);
  if (::dlsym(RTLD_DEFAULT, "MPI_Initialized") != nullptr)
    throw Error(ErrorCode::unavailable, "pmi",
                "MPI is loaded in this process, and talks to the launcher itself",
                "have MPI_Bcast tell all ranks what Rendezvous::unique_id() says on rank 0, or set "
                "ROPEWALK_COORDINATOR=host:port on every rank");
  static std::mutex mutex;
  static int meetings = 0;
  const std::lock_guard lock(mutex);
  Pmi& pmi = pmi_of_process(identity.pmi_fd, config.timeout);
  const std::string key = fmt::format("ropewalk-{}", meetings++);
  Options common;
  if (!config.job_key.empty()) common.key = std::string(config.job_key.text());
  std::optional<Rendezvous> rendezvous;
  if (identity.rank == 0) {
    rendezvous.emplace(common);
    pmi.put(key, swap_chars(rendezvous->unique_id(), ' ', '/'));
  }
  pmi.barrier();
  const Options met = rendezvous ? rendezvous->options(0, identity.size, common)
                                 : Rendezvous::options(swap_chars(pmi.get(key), '/', ' '),
                                                       identity.rank, identity.size, common);
  identity.coordinator = met.coordinator.value_or("");
  identity.coordinator_fd = met.coordinator_fd.value_or(-1);
  config.job_key = met.key.value();
  return rendezvous;
}

}  // namespace ropewalk::bootstrap
