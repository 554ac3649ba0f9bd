// The job's key, as text.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace ropewalk {

/// One copy of a secret, which is shared: memory that is not dumped, is not swapped out where the
/// limit of locked memory allows it, and is wiped at the end. Immutable; copies may be used by any
/// thread.
class Secret {
 public:
  Secret() = default;
  /// Throws Error(system) where there is no memory.
  Secret(std::string_view text);  // NOLINT(google-explicit-constructor): as a std::string
  Secret(const std::string& text) : Secret(std::string_view(text)) {}  // NOLINT: the same
  Secret(const char* text) : Secret(std::string_view(text)) {}         // NOLINT: the same

  std::string_view text() const { return {bytes_.get(), size_}; }
  bool empty() const { return size_ == 0; }
  /// Whether it may have 128 random bits, or hardly less: 32 hexadecimal digits or more and nothing
  /// else; or digits, capital and small letters, of at least two of the three kinds, as many as
  /// that takes (22 of all), and no blanks.
  bool is_strong() const;

 private:
  std::shared_ptr<const char> bytes_;
  size_t size_ = 0;
};

/// The first line of the file, which only this user and root may read, or a group that root has
/// given it to; a pipe, such as /dev/fd/3, is not asked for that. Throws Error(invalid_argument).
Secret read_secret(const std::string& path);

/// ROPEWALK_JOB_KEY, or else what is in ROPEWALK_JOB_KEY_FILE. The process keeps what it has read
/// for its later communicators, and wipes it from the environment, which others can read
/// (/proc/PID/environ) and children inherit, unless ROPEWALK_KEEP_JOB_KEY is 1. Unsetting the
/// variable forgets it. A value that was put there with putenv must be writable. Thread-safe, as
/// far as the environment is. Throws Error(invalid_argument).
Secret take_job_key();

/// Throws Error(invalid_argument): beyond loopback a key must be strong.
[[noreturn]] void refuse_weak_key(int rank);

inline constexpr const char* kKeyAdvice =
    "export ROPEWALK_JOB_KEY=$(openssl rand -hex 32), the same on every rank";

}  // namespace ropewalk
