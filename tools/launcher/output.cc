#include "tools/launcher/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace ropewalk::tools {

void OutputQueue::append(std::string_view text) {
  if (closed_) {
    lost_bytes_ += text.size();
  } else {
    text_ += text;
  }
}

void OutputQueue::write_some() {
  const size_t bytes = std::min<size_t>(queued_bytes(), PIPE_BUF);
  const ssize_t n = ::write(fd_, text_.data() + written_, bytes);
  if (n < 0) {
    if (errno == EINTR || errno == EAGAIN) return;
    if (error_ == 0) error_ = errno;
    reader_gone_ = errno == EPIPE || errno == ECONNRESET;
    if (reader_gone_) return close();
    lost_bytes_ += bytes;
  }
  written_ += n < 0 ? bytes : static_cast<size_t>(n);
  if (empty() || written_ >= size_t{256} << 10) {
    text_.erase(0, written_);
    written_ = 0;
  }
}

void OutputQueue::close() {
  closed_ = true;
  lost_bytes_ += queued_bytes();
  text_.clear();
  written_ = 0;
}

bool OutputQueue::can_write() const {
  pollfd polled{fd_, POLLOUT, 0};
  return ::poll(&polled, 1, 0) > 0;
}

void LinePrefixer::feed(std::string_view text, OutputQueue& to) {
  while (!text.empty()) {
    const size_t line_feed = text.find('\n');
    const size_t room = kLineBytesMax - partial_.size();
    const size_t taken = std::min({line_feed, text.size(), room});
    partial_ += text.substr(0, taken);
    text.remove_prefix(taken);
    const bool is_whole = line_feed == taken;
    if (is_whole) text.remove_prefix(1);
    if (is_whole || partial_.size() == kLineBytesMax) {
      to.append(prefix_);
      to.append(partial_);
      to.append("\n");
      partial_.clear();
    }
  }
}

void LinePrefixer::end(OutputQueue& to) {
  if (!partial_.empty()) feed("\n", to);
}

}  // namespace ropewalk::tools
