// The real engine on every rank, over a network that takes no time, in one thread.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "tests/support/lone_engine.h"
#include "transports/fake/instant_fabric.h"

namespace ropewalk::micro {

/// One call that an engine makes on its transport.
struct TransportCall {
  int rank = 0;
  bool is_put = false;  // else a poll
  PutRequest put;
};

struct EngineCase {
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::ring;
  int ranks = 2;
  size_t bytes = 8;
  size_t slice_bytes = 4096;
  bool mapped = false;
  bool driven = false;  // through a Driver each, as communicators do
};

class EngineJob {
 public:
  /// `calls`, where not null, gets what the engines ask of their transports.
  EngineJob(const EngineCase& c, std::vector<TransportCall>* calls);
  ~EngineJob();

  /// The collective once, on all ranks.
  void run();
  /// Makes `calls` again; of a job that recorded them, and that is not run any more.
  void replay(const std::vector<TransportCall>& calls);
  /// Steps times slices, over all ranks: of the schedule, also where passes take their place.
  size_t steps() const;

 private:
  class NoFailures;
  void start(int rank);
  bool advance(int rank);

  const EngineCase case_;
  const MonotonicClock clock_;
  InstantFabric fabric_;
  std::unique_ptr<NoFailures> monitor_;
  std::vector<std::unique_ptr<Transport>> recorders_;
  std::vector<std::unique_ptr<MemoryRegistry>> registries_;
  std::vector<std::unique_ptr<LoneEngine>> engines_;
  std::vector<std::shared_ptr<RegisteredMemory>> buffers_;
  std::vector<std::shared_ptr<Operation>> operations_;
  std::vector<std::unique_ptr<LoneDriver>> drivers_;
  std::vector<std::unique_ptr<Group>> groups_;  // by which drivers run the operations
};

}  // namespace ropewalk::micro
