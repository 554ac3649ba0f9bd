// Proof by replay: all ranks' schedules are run symbolically, together.
//
// A block's content is the set of ranks whose contributions it holds or, where a collective only
// moves data, the (rank, block) it came from. Order of execution does not matter: what one step
// enables no other step can take away, so one replay stands for all.
#pragma once

#include "schedule/algorithm.h"

namespace ropewalk {

/// What can be wrong with a schedule, and the name of it.
#define ROPEWALK_FLAWS(X)                                                                         \
  X(bad_peer, "bad peer")   /* not a rank, or a peer in a local step */                           \
  X(self_send, "self send") /* a rank sends to or receives from itself */                         \
  X(bad_lane, "bad lane")                                                                         \
  X(bad_block, "bad block")              /* not a block of the schedule */                        \
  X(unequal_layout, "unequal layout")    /* ranks disagree about ranks, rank numbers or blocks */ \
  X(unmatched_send, "unmatched send")    /* nobody receives it */                                 \
  X(unmatched_recv, "unmatched receive") /* nobody sends it */                                    \
  X(op_mismatch, "op mismatch")          /* send_copy meets recv_reduce, or the reverse */        \
  X(length_mismatch, "length mismatch")  /* the two blocks need not be equally long */            \
  X(deadlock, "deadlock")                                                                         \
  X(undefined_content, "undefined content") /* sends or adds a block never written to */          \
  X(duplicate_contribution, "duplicate contribution")                                             \
  X(missing_contribution, "missing contribution") /* of a rank, in a final block */               \
  X(wrong_content, "wrong content")               /* a final block holds something else, */       \
                                                  /* or a reduction where data only moves */      \
  X(input_overwritten, "input overwritten")       /* all_to_all: the input is the caller's */     \
  X(too_many_bytes, "too many bytes")             /* more than the algorithm's bound */           \
  X(too_many_rounds, "too many rounds")

#define ROPEWALK_FLAW(flaw, name) flaw,
enum class Flaw { ROPEWALK_FLAWS(ROPEWALK_FLAW) };
#undef ROPEWALK_FLAW
std::string_view name_of(Flaw flaw);

struct Finding {
  Flaw flaw;
  int rank = -1;
  int step = -1;     // index in the rank's list; -1: not about one step
  std::string text;  // a sentence that names ranks, steps and blocks
};

struct VerifyReport {
  std::vector<Finding> findings;  // at most kFindingsMax are kept
  size_t steps_max = 0;           // of any rank
  double sent_max = 0;            // of any rank; unit as in Bound
  int rounds = 0;                 // as in Bound
  Bound bound;

  bool ok() const { return findings.empty(); }
};
inline constexpr size_t kFindingsMax = 32;

/// `credits` >= 1: a FIFO holds that many blocks, and a send completes when there is room. 0:
/// rendezvous, a send completes when its receive is ready too. kInListOrder: each rank runs its
/// steps one after the other, and a FIFO holds list_order_credits(key.algorithm) blocks (how the
/// engine runs short messages).
inline constexpr int kInListOrder = -1;
VerifyReport verify(const ScheduleKey& key, int credits);
/// The same for schedules (one per rank) that claim to implement `key`.
VerifyReport verify(const ScheduleKey& key, const std::vector<Schedule>& schedules, int credits);
/// What schedules promise that no algorithm has built.
struct Promise {
  Bound bound;
  uint32_t list_order_credits = 1;  // as an AlgorithmDescriptor says
  bool needs_equal_parts = false;   // the same
};
/// The same for schedules that were not built for `key.algorithm`, which is not looked at.
VerifyReport verify(const ScheduleKey& key, const std::vector<Schedule>& schedules, int credits,
                    const Promise& promise);

/// Every collective, algorithm and rank count in the range, with every root up to 8 ranks and three
/// roots above, and for those that use hosts, with hosts of several shapes.
std::vector<ScheduleKey> keys_to_verify(int ranks_min, int ranks_max);

/// "all_reduce ring, 5 ranks, root 2, hosts 0 0 1 1 1": root and hosts only where they matter.
std::string describe(const ScheduleKey& key);

}  // namespace ropewalk
