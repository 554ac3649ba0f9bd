// What ranks tell each other of parts of the job, over its control tree.
#pragma once

#include <cstdint>
#include <deque>

#include "bootstrap/part.h"
#include "bootstrap/tree.h"

namespace ropewalk::bootstrap {

/// The control thread only.
///
/// A rank that has something to say of a part (a failure, a leave, what it waits for) sends it to
/// all ranks of the job: each passes on what comes, and takes what is of a part of its own. Ranks
/// that find another parent in the tree may have missed some: a new neighbour is sent the last that
/// have passed.
class PartControl {
 public:
  /// All references outlive it.
  PartControl(int rank, int size, JobMonitor& monitor, Statements& statements, Tree& tree,
              Parts& parts);

  /// Whether it is a frame of a part.
  static bool is_of_part(FrameType type) {
    return type >= FrameType::part_failure && type <= FrameType::part_waits;
  }
  /// Takes such a frame of `peer`, and passes it on.
  void handle(int peer, const Frame& frame, int64_t now_ns);
  /// Says what this rank has to say.
  void advance(int64_t now_ns);
  /// The monitor's next epoch has begun: nothing has failed in it. Parts of those before have.
  void renew() { told_of_job_ = false; }
  /// Sends it what it may have missed.
  void greet(int new_neighbour);

 private:
  template <class Message>
  void take(int peer, const Frame& frame);
  void take(Part& part, int rank, PartFailure& failure);
  void take(Part& part, int rank, PartLeave& leave);
  void take(Part& part, int rank, PartWaits& waits);
  void take_question(int peer, const Frame& frame, int64_t now_ns);
  template <class Message>
  void say(Message message);
  void answer(Part& part, int64_t now_ns);
  void pass_on(const Bytes& frame, int from);

  const int rank_, size_;
  JobMonitor& monitor_;
  Statements& statements_;
  Tree& tree_;
  Parts& parts_;
  bool told_of_job_ = false;  // the parts, of the job's failure
  std::deque<Bytes> passed_;  // the last frames that a new neighbour may have missed
};

}  // namespace ropewalk::bootstrap
