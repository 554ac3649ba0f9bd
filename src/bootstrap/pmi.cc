#include "bootstrap/pmi.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <sstream>

#include "base/log.h"
#include "bootstrap/net.h"

namespace ropewalk::bootstrap {
namespace {

constexpr const char* kPmiAdvice = "set ROPEWALK_COORDINATOR=host:port on every rank";
constexpr size_t kAnswerBytesMax = 16 << 10;
constexpr std::chrono::nanoseconds kFinalizeTimeout = std::chrono::seconds(1);

[[noreturn]] void fail_pmi(ErrorCode code, std::string reason) {
  throw Error(code, "pmi", std::move(reason), kPmiAdvice);
}

/// The longest value that PMI-2 must take; it is not asked for.
constexpr size_t kPmi2ValueBytesMax = 1024;
constexpr size_t kLengthDigits = 6;

}  // namespace

Pmi::Pmi(int fd, int rank, std::string job, std::chrono::nanoseconds timeout)
    : fd_(fd), job_(std::move(job)), timeout_(timeout) {
  speaks_pmi2() ? begin_pmi2(rank) : begin_pmi1();
}

void Pmi::begin_pmi1() {
  Answer answer = ask("init", {{"pmi_version", "1"}, {"pmi_subversion", "1"}}, "response_to_init");
  if (answer["pmi_version"] != "1")
    fail_pmi(ErrorCode::unavailable,
             fmt::format("the launcher speaks PMI {}, and not PMI 1", answer["pmi_version"]));
  const std::string bytes = ask("get_maxes", {}, "maxes")["vallen_max"];
  std::from_chars(bytes.data(), bytes.data() + bytes.size(), value_bytes_max_);
  store_ = ask("get_my_kvsname", {}, "my_kvsname")["kvsname"];
}

/// The first words are PMI-1's in both.
void Pmi::begin_pmi2(int rank) {
  Answer answer = ask("init", {{"pmi_version", "2"}, {"pmi_subversion", "0"}}, "response_to_init");
  if (answer["pmi_version"] != "2")
    fail_pmi(ErrorCode::unavailable,
             fmt::format("the launcher speaks PMI {}, and not PMI 2, as PMI_JOBID tells",
                         answer["pmi_version"]));
  ask("fullinit", {{"pmijobid", job_}, {"pmirank", std::to_string(rank)}, {"threaded", "FALSE"}});
  value_bytes_max_ = kPmi2ValueBytesMax;
}

Pmi::~Pmi() {
  if (process_.is_forked()) return;
  timeout_ = std::min(timeout_, kFinalizeTimeout);
  try {
    speaks_pmi2() ? ask("finalize", {}) : ask("finalize", {}, "finalize_ack");
  } catch (const Error& error) {
    log(LogLevel::debug, -1, "{}", error.what());  // it has gone
  }
}

void Pmi::put(const std::string& key, const std::string& value) {
  assert((key + value).find_first_of(" =;\n") == std::string::npos);
  if (value.size() >= value_bytes_max_)
    fail_pmi(ErrorCode::unavailable,
             fmt::format("the launcher keeps values of {} bytes at most, and this has {}",
                         value_bytes_max_, value.size()));
  if (speaks_pmi2())
    ask("kvs-put", {{"key", key}, {"value", value}});
  else
    ask("put", {{"kvsname", store_}, {"key", key}, {"value", value}}, "put_result");
}

std::string Pmi::get(const std::string& key) {
  if (!speaks_pmi2()) return ask("get", {{"kvsname", store_}, {"key", key}}, "get_result")["value"];
  Answer answer = ask("kvs-get", {{"jobid", job_}, {"srcid", "-1"}, {"key", key}});
  if (answer["found"] != "TRUE")
    fail_pmi(ErrorCode::unavailable, fmt::format("the launcher does not have rank 0's {}", key));
  return answer["value"];
}

void Pmi::barrier() {
  speaks_pmi2() ? ask("kvs-fence", {}) : ask("barrier_in", {}, "barrier_out");
}

Pmi::Answer Pmi::ask(const std::string& command, const Fields& fields, const char* expected) {
  std::string line = "cmd=" + command;
  for (const auto& [key, value] : fields) line += fmt::format(" {}={}", key, value);
  return exchange(line + "\n", expected, kPmi1);
}

Pmi::Answer Pmi::ask(const std::string& command, const Fields& fields) {
  std::string text = fmt::format("cmd={};", command);
  for (const auto& [key, value] : fields) text += fmt::format("{}={};", key, value);
  return exchange(fmt::format("{:6}{}", text.size(), text), (command + "-response").c_str(), kPmi2);
}

Pmi::Answer Pmi::exchange(const std::string& request, const char* expected, const Format& format) {
  const std::string shown = request.substr(0, request.find('\n'));
  // A request is short beside any socket's buffer.
  if (::send(fd_, request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size()))
    fail_pmi(ErrorCode::unavailable,
             fmt::format("cannot ask the launcher (PMI_FD={}): {}", fd_, errno_text(errno)));
  const std::string text = read_answer(shown, format);
  Answer answer;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, format.separator);) {
    const size_t equals = std::min(word.find('='), word.size());
    answer[word.substr(0, equals)] = word.substr(std::min(equals + 1, word.size()));
  }
  const std::string& result = answer["rc"];
  if (answer["cmd"] != expected || (!result.empty() && result != "0"))
    fail_pmi(ErrorCode::unavailable,
             fmt::format("the launcher answers \"{}\" with \"{}\"", shown, text.substr(0, 200)));
  return answer;
}

std::string Pmi::read_answer(const std::string& request, const Format& format) {
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  const auto take = [this](size_t from, size_t bytes, size_t end) {
    std::string answer = received_.substr(from, bytes);
    received_.erase(0, end);
    return answer;
  };
  for (;; read_some(request, deadline)) {
    if (!format.begins_with_length) {
      const size_t end = received_.find('\n');
      if (end != std::string::npos) return take(0, end, end + 1);
    } else if (received_.size() >= kLengthDigits) {
      size_t bytes = 0;
      const char* const begin = received_.data();
      const char* const first =
          std::find_if_not(begin, begin + kLengthDigits, [](char c) { return c == ' '; });
      if (std::from_chars(first, begin + kLengthDigits, bytes).ec != std::errc() || bytes == 0)
        fail_pmi(ErrorCode::unavailable, "the launcher sends what is no PMI-2");
      if (received_.size() >= kLengthDigits + bytes)
        return take(kLengthDigits, bytes, kLengthDigits + bytes);
    }
  }
}

void Pmi::read_some(const std::string& request, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ready{fd_, POLLIN, 0};
    const int found =
        ::poll(&ready, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1'000'000)));
    if (found < 0 && errno == EINTR) continue;
    if (found == 0 && left.count() <= 0)
      fail_pmi(ErrorCode::timeout,
               fmt::format("the launcher has not answered \"{}\" within {:.3g} s: have all ranks "
                           "started?",
                           request, std::chrono::duration<double>(timeout_).count()));
    if (found == 0) continue;
    char bytes[1024];
    const ssize_t count = ::recv(fd_, bytes, sizeof(bytes), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || received_.size() > kAnswerBytesMax)
      fail_pmi(ErrorCode::unavailable,
               count < 0    ? fmt::format("cannot hear the launcher: {}", errno_text(errno))
               : count == 0 ? std::string("the launcher has closed its socket (PMI_FD)")
                            : std::string("the launcher sends what is no line"));
    received_.append(bytes, static_cast<size_t>(count));
    return;
  }
}

}  // namespace ropewalk::bootstrap
