// Takes the news of a failure around ranks of the tree that pass nothing on.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <set>

#include "bootstrap/dialer.h"
#include "bootstrap/frame_stream.h"
#include "bootstrap/statements.h"

namespace ropewalk::bootstrap {

/// The control thread only. A rank that is stopped or dead, or whose host is down, splits the tree,
/// and its neighbours find that out at different times, or not while they are behind a second one.
/// Who knows of the failure tells the others over connections made for that: the first of the
/// neighbours, which is the parent where there is one, tells all of them, and any other tells the
/// first. Who then does not answer is gone around in turn. Those whom the failure names are not
/// told.
///
/// In a later epoch a neighbour may not be linked yet with who has become its parent, so that the
/// first may not see that it passes nothing on. Its neighbours, in the order of their ranks, are a
/// ring then: each tells also those 1, 2, 4, ... places behind it, and the next behind one that
/// does not answer; so does the first where they are many. So all of them hear of it that can, over
/// connections of which a rank makes but few.
class Bypass {
 public:
  using Dial = std::function<std::unique_ptr<Dialer>(int peer)>;
  /// Of `rank` among `size`. Tries to tell each rank for `limit` at most. The references must
  /// outlive it.
  Bypass(int rank, int size, std::chrono::nanoseconds limit, Dial dial, Statements& statements,
         const JobMonitor& monitor);

  /// `neighbour` may not pass the failure on, which the monitor has.
  void relay_around(int neighbour, int64_t now_ns);
  /// `peer` tells this rank of one.
  void hear(int peer, ConnectedSocket socket, int64_t now_ns);

  /// The monitor's next epoch has begun: nobody is to be told of a failure.
  void renew();

  void prepare(PollSet& set);
  void advance(const PollSet& set, int64_t now_ns);
  /// All that were to be told have been, or cannot be.
  bool all_told() const { return told_.empty(); }

 private:
  struct Told {
    int peer;
    std::unique_ptr<Dialer> dialer;
    int64_t since_ns;
    std::optional<FrameStream> stream;  // once connected
    bool is_silent = false;             // has not answered in time, or has ended

    bool has_heard() const { return stream && stream->flushed(); }
  };
  struct Heard {
    int peer;
    FrameStream stream;
    int64_t since_ns;
  };
  std::vector<int> neighbours_of(int rank) const;
  bool is_culprit(int rank) const;
  bool is_first_epoch() const { return monitor_.epoch() == 0; }
  void tell(int peer, int64_t now_ns);
  void notify_ring(const std::vector<int>& ring, int64_t now_ns);
  void tell_next(const std::vector<int>& ring, size_t place, int64_t now_ns);
  bool is_over(Told& told, const PollSet& set, int64_t now_ns) const;
  bool is_over(Heard& heard, const PollSet& set, int64_t now_ns);
  void relay_around_silent(int rank, int64_t now_ns);

  const int rank_, size_;
  const int64_t limit_ns_;
  const Dial dial_;
  Statements& statements_;
  const JobMonitor& monitor_;
  std::set<int> done_;                   // told, or gone around
  std::vector<std::vector<int>> rings_;  // of a later epoch: neighbours of who is gone around
  std::list<Told> told_;
  std::list<Heard> heard_;
};

}  // namespace ropewalk::bootstrap
