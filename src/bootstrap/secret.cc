#include "bootstrap/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/unique_fd.h"
#include "bootstrap/auth.h"
#include "bootstrap/net.h"
#include "ropewalk/status.h"

namespace ropewalk {
namespace {

constexpr size_t kBytesMax = 4096;

[[noreturn]] void refuse(std::string reason, std::string advice) {
  throw Error(ErrorCode::invalid_argument, "environment", std::move(reason), std::move(advice));
}

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

Secret::Secret(std::string_view text) : size_(text.size()) {
  if (text.empty()) return;
  bootstrap::start_cryptography();
  // Pages of its own: what is said of them holds for nothing else.
  void* const pages =
      ::mmap(nullptr, text.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    throw Error(ErrorCode::system, "bootstrap", "no memory for the job's key", {});
  sodium_mlock(pages, text.size());  // and not dumped, even where the limit forbids to lock
  char* const bytes = static_cast<char*>(pages);
  std::ranges::copy(text, bytes);
  bytes_ = std::shared_ptr<const char>(bytes, [size = size_](char* gone) {
    sodium_munlock(gone, size);  // wipes it
    ::munmap(gone, size);
  });
}

bool Secret::is_strong() const {
  const auto count = [this](auto is) {
    return static_cast<size_t>(std::ranges::count_if(text(), is));
  };
  const auto between = [](char low, char high) {
    return [=](char c) { return low <= c && c <= high; };
  };
  const size_t digits = count(between('0', '9'));
  const size_t small = count(between('a', 'z')), capital = count(between('A', 'Z'));
  const size_t hex = digits + count(between('a', 'f')) + count(between('A', 'F'));
  if (hex == size_) return size_ >= 32;
  constexpr double kBitsMin = 125;  // 22 letters of base64 among which no digit is
  const double alphabet = (digits > 0 ? 10 : 0) + (small > 0 ? 26 : 0) + (capital > 0 ? 26 : 0);
  return alphabet > 26 && count(between(' ', ' ')) == 0 &&
         static_cast<double>(size_) * std::log2(alphabet) >= kBitsMin;
}

void refuse_weak_key(int rank) {
  throw Error(Failure{ErrorCode::invalid_argument, "bootstrap",
                      "ROPEWALK_JOB_KEY can be guessed, and rank 0 can be reached from other hosts",
                      fmt::format("use 128 random bits or more: {}", kKeyAdvice), rank, -1});
}

Secret read_secret(const std::string& path) {
  const std::string what = fmt::format("ROPEWALK_JOB_KEY_FILE={}: ", path);
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  if (!fd || fstat(fd.get(), &status) != 0)
    refuse(what + bootstrap::errno_text(errno), "give a file that holds the job's key");
  const bool is_roots = status.st_uid == 0;
  if (S_ISREG(status.st_mode) && !is_roots && status.st_uid != geteuid())
    refuse(what + "it belongs to another user", "chown it to this user");
  if (S_ISREG(status.st_mode) && (status.st_mode & (is_roots ? 037 : 077)) != 0)
    refuse(what + "others than this user can read or write it", "chmod 600 " + path);
  std::array<char, kBytesMax + 1> bytes;
  size_t size = 0;
  // No further than the line: who writes into a pipe may keep it open.
  for (ssize_t n = 0;
       size < bytes.size() && std::count(bytes.data(), bytes.data() + size, '\n') == 0;
       size += static_cast<size_t>(std::max<ssize_t>(n, 0))) {
    n = ::read(fd.get(), bytes.data() + size, bytes.size() - size);
    if (n < 0 && errno != EINTR)
      refuse(what + bootstrap::errno_text(errno), "give a file that holds the job's key");
    if (n == 0) break;
  }
  const std::string_view read(bytes.data(), size);
  const Secret secret(read.substr(0, read.find_first_of("\r\n")));
  sodium_memzero(bytes.data(), bytes.size());
  if (secret.empty() || size > kBytesMax)
    refuse(fmt::format("{}its first line must have 1 to {} bytes", what, kBytesMax),
           "openssl rand -hex 32 >" + path);
  return secret;
}

Secret take_job_key() {
  static std::mutex mutex;
  static Secret kept;
  static std::string kept_from;  // a file; empty: the variable
  const std::lock_guard lock(mutex);
  char* value = std::getenv("ROPEWALK_JOB_KEY");
  const std::string file = environment("ROPEWALK_JOB_KEY_FILE");
  if (value != nullptr && std::strlen(value) > kBytesMax)
    refuse("ROPEWALK_JOB_KEY=\"(hidden)\" is not allowed; it must be at most 4096 bytes long",
           "correct or unset ROPEWALK_JOB_KEY");
  if (value != nullptr && *value != '\0') {
    kept = Secret(value);
    kept_from.clear();
    // In place: unsetenv would leave the bytes where /proc shows them.
    if (environment("ROPEWALK_KEEP_JOB_KEY") != std::string_view("1"))
      sodium_memzero(value, std::strlen(value));
  } else if (value != nullptr && kept_from.empty() && !kept.empty()) {
    // Wiped here before.
  } else if (!file.empty()) {
    if (kept_from != file) kept = read_secret(file);  // a pipe can be read once
    kept_from = file;
  } else {
    kept = {};
    kept_from.clear();
  }
  return kept;
}

}  // namespace ropewalk
