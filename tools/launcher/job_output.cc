#include "tools/launcher/job_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace ropewalk::tools {
namespace {

constexpr size_t kQueuedBytesMax = 4 << 20;

std::string reason_of(const OutputQueue& queue) {
  if (queue.reader_gone()) return "nobody reads it any more";
  if (queue.error() != 0) return strerror(queue.error());
  return "its reader did not take them before the job's end";
}

}  // namespace

void JobOutput::add_rank(const std::string& label) {
  const std::string prefix = fmt::format("[{}] ", label);
  lines_.push_back({LinePrefixer(prefix), LinePrefixer(prefix)});
}

void JobOutput::append(int rank, bool is_err, std::string_view text) {
  OutputQueue& queue = is_err ? err_ : out_;
  if (!prefix_) return queue.append(text);
  Lines& lines = lines_[static_cast<size_t>(rank)];
  LinePrefixer& stream = is_err ? lines.err : lines.out;
  return text.empty() ? stream.end(queue) : stream.feed(text, queue);
}

void JobOutput::end_lines(int rank) {
  Lines& lines = lines_[static_cast<size_t>(rank)];
  lines.out.end(out_);
  lines.err.end(err_);
}

void JobOutput::say(const std::string& text) {
  err_.append(command_ + ": " + text + "\n");
}

void JobOutput::tell_errors() {
  if (told_error_ || out_.error() == 0 || out_.reader_gone()) return;
  told_error_ = true;
  say(fmt::format("standard output: {}; the job goes on, what cannot be written is lost",
                  strerror(out_.error())));
}

void JobOutput::tell_losses() {
  if (out_.lost_bytes() > 0) {
    say(fmt::format("{} bytes of standard output were lost: {}", out_.lost_bytes(),
                    reason_of(out_)));
  }
  if (err_.lost_bytes() > 0) {
    say(fmt::format("{} bytes of standard error were lost: {}", err_.lost_bytes(),
                    reason_of(err_)));
  }
}

bool JobOutput::is_full() const {
  return std::max(out_.queued_bytes(), err_.queued_bytes()) >= kQueuedBytesMax;
}

bool JobOutput::has_room() const {
  return std::max(out_.queued_bytes(), err_.queued_bytes()) < kQueuedBytesMax / 2;
}

void JobOutput::give_up() {
  for (OutputQueue* queue : {&out_, &err_}) {
    if (!queue->empty() && !queue->can_write()) queue->close();
  }
}

}  // namespace ropewalk::tools
