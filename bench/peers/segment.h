// What the ranks of a measured job share, whatever library they measure: a file that all map.
#pragma once

#include <string>

#include "barrier.h"

namespace ropewalk::peers {

constexpr int kIterationsMax = 20000;

/// Lies in shared memory; all zeros is its first state.
struct SegmentContent {
  BarrierFlags start;                                 // the barrier before every iteration
  BarrierFlags inside;                                // for a contender's own use
  std::atomic<int> iterations;                        // as rank 0 decided
  std::atomic<uint32_t> address;                      // where the raw TCP program listens: IPv4,
  std::atomic<uint16_t> port;                         // in network order; set last
  std::atomic<int64_t> wrong[kRanksMax];              // elements
  std::atomic<double> us[kRanksMax][kIterationsMax];  // time of each iteration, by rank
};

/// A file of so many bytes, zeros at first, made by whoever comes first.
void* map_file(const std::string& path, size_t bytes);

/// The mapping of one of those.
class Segment {
 public:
  explicit Segment(const std::string& path);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  SegmentContent* operator->() const { return content_; }

 private:
  SegmentContent* content_;
};

}  // namespace ropewalk::peers
