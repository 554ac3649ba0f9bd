// Takes the news of a failure around ranks of the tree that are silent and pass nothing on.
#pragma once

#include <list>
#include <memory>

#include "bootstrap/dialer.h"
#include "bootstrap/frame_stream.h"
#include "bootstrap/statements.h"

namespace ropewalk::bootstrap {

/// The control thread only. A rank that is stopped, or whose host is down, splits the tree. Its
/// neighbours find it silent at different times; who knows of the failure meanwhile tells the
/// others over connections made for that: the first of the neighbours, which is the parent where
/// there is one, tells all of them, and any other tells the first.
class Bypass {
 public:
  /// `statements` must outlive it.
  explicit Bypass(Statements& statements) : statements_(statements) {}

  /// Tells the rank that `dialer` reaches, until `deadline_ns` at the latest. The job has failed.
  void tell(std::unique_ptr<Dialer> dialer, int64_t deadline_ns);
  /// `peer` tells this rank, until `deadline_ns` at the latest.
  void hear(int peer, ConnectedSocket socket, int64_t deadline_ns);

  void prepare(PollSet& set);
  void advance(const PollSet& set, int64_t now_ns);
  /// All that were to be told have been, or cannot be.
  bool all_told() const { return told_.empty(); }

 private:
  struct Told {
    std::unique_ptr<Dialer> dialer;
    std::optional<FrameStream> stream;  // once connected
    int64_t deadline_ns;
  };
  struct Heard {
    int peer;
    FrameStream stream;
    int64_t deadline_ns;
  };
  bool is_told(Told& told, const PollSet& set, int64_t now_ns) const;
  bool is_heard(Heard& heard, const PollSet& set, int64_t now_ns);

  Statements& statements_;
  std::list<Told> told_;
  std::list<Heard> heard_;
};

/// Whom `rank`, a neighbour of `silent` in the tree of `size` ranks, tells. Nobody that has left.
std::vector<int> told_around(int silent, int rank, int size, const JobMonitor& monitor);

}  // namespace ropewalk::bootstrap
