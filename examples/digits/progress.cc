#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace digits {

Progress::Progress(bool enabled) : enabled_(enabled), terminal_(isatty(STDOUT_FILENO) == 1) {}

Progress::~Progress() {
  if (open_) std::fputc('\n', stdout);
}

void Progress::step(int epoch, int epochs, size_t step, size_t steps) {
  if (!enabled_ || !terminal_) return;
  fmt::print("\repoch {}/{}  step {}/{}\x1b[K", epoch, epochs, step, steps);
  std::fflush(stdout);
  open_ = true;
}

void Progress::epoch(const EpochReport& report) {
  if (!enabled_) return;
  const auto text = fmt::format(
      "epoch {}/{}  loss {:.4f}  held-out {:.1f} %  {:.0f} images/s  communication {:.0f} %",
      report.epoch, report.epochs, report.loss, 100 * report.accuracy, report.images_per_s,
      100 * report.communication_share);
  if (terminal_)
    fmt::print("\r{}\x1b[K", text);
  else
    fmt::print("{}\n", text);
  std::fflush(stdout);
  open_ = terminal_;
}

}  // namespace digits
