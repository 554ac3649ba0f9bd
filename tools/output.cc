#include "output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace ropewalk::tools {

void OutputQueue::write_some() {
  const size_t bytes = std::min<size_t>(queued_bytes(), PIPE_BUF);
  const ssize_t n = ::write(fd_, text_.data() + written_, bytes);
  if (n < 0) {
    if (errno == EINTR || errno == EAGAIN) return;
    broken_ = true;
    return drop();
  }
  written_ += static_cast<size_t>(n);
  if (empty()) {
    drop();
  } else if (written_ >= size_t{256} << 10) {
    text_.erase(0, written_);
    written_ = 0;
  }
}

void OutputQueue::drop() {
  text_.clear();
  written_ = 0;
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
