// The measurement, the same for every contender. One iteration: each rank rewrites its own input,
// as a backward pass does; a barrier; clock; the call; clock. Its time is the slowest rank's. The
// result of one more call on known data is checked element by element.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "options.h"
#include "segment.h"

namespace ropewalk::peers {

/// One call on one rank, ready to run again and again: all that can be prepared has been.
class Runner {
 public:
  virtual ~Runner() = default;
  virtual std::byte* in() = 0;
  virtual std::byte* out() = 0;  // in() where the call works in place
  virtual void run() = 0;
  /// False for a program that moves bytes but computes nothing: there is no result to check.
  virtual bool has_result() const { return true; }
  /// What a measured time is divided by: 2 where one run() is there and back.
  virtual int trips() const { return 1; }
  /// What the library chose, where it tells.
  virtual Algorithm algorithm() const { return Algorithm::automatic; }
};
using MakeRunner = std::function<std::unique_ptr<Runner>(const tools::BenchShape& shape)>;

/// Page-aligned ordinary memory, present from the start.
std::shared_ptr<std::byte[]> plain_memory(size_t bytes);

/// Input and output in ordinary memory; one buffer where the call works in place.
class PlainRunner : public Runner {
 public:
  PlainRunner(const PeerOptions& options, const tools::BenchShape& shape);
  std::byte* in() override { return in_.get(); }
  std::byte* out() override { return out_.get(); }

 private:
  std::shared_ptr<std::byte[]> in_, out_;
};

/// Binds the calling thread to the rank's core, where there is a core for each rank; else no rank
/// is bound. To be called before the library under test looks at its CPUs. Returns how to wait.
Waiting bind_to_core(const PeerOptions& options, int rank);

/// Measures every size, and prints a JSON object a line on rank 0.
/// `waiting`: what bind_to_core returned. Returns how many elements were wrong, over all ranks.
int64_t measure(const PeerOptions& options, int rank, Waiting waiting, Segment& segment,
                const MakeRunner& make);

}  // namespace ropewalk::peers
