// The job's key, as text.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace ropewalk {

/// One copy of a secret, which is shared: memory that is neither swapped out nor dumped, and is
/// wiped at the end. Immutable; copies may be used by any thread.
class Secret {
 public:
  Secret() = default;
  /// Throws Error(system) where there is no memory.
  Secret(std::string_view text);  // NOLINT(google-explicit-constructor): as a std::string
  Secret(const std::string& text) : Secret(std::string_view(text)) {}  // NOLINT: the same
  Secret(const char* text) : Secret(std::string_view(text)) {}         // NOLINT: the same

  std::string_view text() const { return {bytes_.get(), size_}; }
  bool empty() const { return size_ == 0; }
  /// Whether it may have 128 random bits: 32 hexadecimal digits or more and nothing else, or 22
  /// characters or more with digits, capital and small letters among them, and without blanks.
  bool is_strong() const;

 private:
  std::shared_ptr<const char> bytes_;
  size_t size_ = 0;
};

/// The first line of the file, which only this user and root may read; a pipe, such as /dev/fd/3,
/// is not asked for that. Throws Error(invalid_argument).
Secret read_secret(const std::string& path);

/// ROPEWALK_JOB_KEY, or else what is in ROPEWALK_JOB_KEY_FILE. The process keeps what it has read
/// for its later communicators, and wipes it from the environment, which others can read
/// (/proc/PID/environ) and children inherit, unless ROPEWALK_KEEP_JOB_KEY is 1. Unsetting the
/// variable forgets it. Thread-safe, as far as the environment is. Throws Error(invalid_argument).
Secret take_job_key();

inline constexpr const char* kKeyAdvice =
    "export ROPEWALK_JOB_KEY=$(openssl rand -hex 32), the same on every rank";

}  // namespace ropewalk
