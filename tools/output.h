// The launcher's standard output and error: prefixed lines, never blocking.
#pragma once

#include <string>
#include <string_view>

namespace ropewalk::tools {

/// Text on its way to a descriptor that is shared with others and so stays in blocking mode.
class OutputQueue {
 public:
  explicit OutputQueue(int fd) : fd_(fd) {}
  int fd() const { return fd_; }
  bool empty() const { return written_ == text_.size(); }
  size_t queued_bytes() const { return text_.size() - written_; }
  /// The reader has gone; what comes now is dropped.
  bool broken() const { return broken_; }
  void append(std::string_view text) {
    if (!broken_) text_ += text;
  }
  /// Call when poll says POLLOUT: writes at most PIPE_BUF bytes, which cannot block then.
  void write_some();
  /// Forgets what is queued.
  void drop();

 private:
  int fd_;
  std::string text_;
  size_t written_ = 0;
  bool broken_ = false;
};

/// Cuts one rank's stream into lines and puts a prefix before each. A line longer than
/// kLineBytesMax is cut into several.
class LinePrefixer {
 public:
  static constexpr size_t kLineBytesMax = 64 << 10;

  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}
  void feed(std::string_view text, OutputQueue& to);
  /// The stream has ended: a last line without line feed gets one.
  void end(OutputQueue& to);

 private:
  std::string prefix_;
  std::string partial_;
};

}  // namespace ropewalk::tools
