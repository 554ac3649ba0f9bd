// What rank 0 tells a person: on a terminal one line that updates itself, else a line an epoch.
#pragma once

#include <cstddef>

namespace digits {

struct EpochReport {
  int epoch = 0, epochs = 0;
  double loss = 0;                 // mean over all training images of the epoch, all ranks
  double accuracy = 0;             // on the held-out images, 0 to 1
  double images_per_s = 0;         // all ranks together
  double communication_share = 0;  // of the ranks' time, 0 to 1
};

class Progress {
 public:
  /// Silent unless `enabled`. Writes to standard output.
  explicit Progress(bool enabled);
  /// Ends the updating line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(int epoch, int epochs, size_t step, size_t steps);  // on a terminal only
  void epoch(const EpochReport& report);

 private:
  const bool enabled_, terminal_;
  bool open_ = false;  // a line is shown and not ended
};

}  // namespace digits
