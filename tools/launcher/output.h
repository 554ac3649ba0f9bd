// The launcher's standard output and error: prefixed lines, never blocking.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ropewalk::tools {

/// Text on its way to a descriptor that is shared with others and so stays in blocking mode. What
/// cannot be written is counted.
class OutputQueue {
 public:
  explicit OutputQueue(int fd) : fd_(fd) {}
  int fd() const { return fd_; }
  bool empty() const { return written_ == text_.size(); }
  size_t queued_bytes() const { return text_.size() - written_; }
  void append(std::string_view text);
  /// Call when poll says POLLOUT: writes at most PIPE_BUF bytes, which cannot block then. What
  /// fails is lost; what follows is tried again (a full disk may get room), unless the reader has
  /// gone.
  void write_some();
  /// What is queued, and all that comes, is lost.
  void close();
  bool can_write() const;  // now, without blocking

  uint64_t lost_bytes() const { return lost_bytes_; }
  /// errno of the first write that failed; 0: none has.
  int error() const { return error_; }
  /// The last write found that nobody reads any more.
  bool reader_gone() const { return reader_gone_; }

 private:
  int fd_;
  std::string text_;
  size_t written_ = 0;
  uint64_t lost_bytes_ = 0;
  int error_ = 0;
  bool closed_ = false, reader_gone_ = false;
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
