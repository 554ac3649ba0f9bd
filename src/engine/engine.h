// Runs operations: for each ready (step, slice), move and reduce. One loop for every algorithm and
// every transport.
//
// Threads: none of its own. One thread at a time calls `start` and `progress` (the Driver locks).
// Nothing here blocks; after `prepare`, and once links stand, nothing allocates or makes a system
// call of its own.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "bootstrap/monitor.h"
#include "engine/operation.h"
#include "memory/memory_registry.h"

namespace ropewalk {

class Engine {
 public:
  /// `transports[route[peer]]` reaches `peer`. All references outlive the engine.
  Engine(int rank, int size, std::vector<Transport*> transports, std::vector<int> route,
         MemoryRegistry& memories, Monitor& monitor, const Clock& clock);

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::vector<Transport*>& transports() const { return transports_; }
  bool is_mapped(int peer) const;

  /// Binds `call` to `schedule`; throws Error. Allocates everything that runs will need.
  std::shared_ptr<Operation> prepare(const Call& call, const Schedule& schedule,
                                     Algorithm algorithm, size_t slice_bytes);

  /// Begins a run. The operation must be idle or done, and stay alive until done. Throws Error, and
  /// the job fails, where its memory must be registered anew and cannot be.
  void start(Operation& operation);

  /// Moves what can be moved. True when anything did. Does nothing once the job has failed.
  bool progress();

  /// True while operations are under way.
  bool has_operations() const { return !active_.empty(); }
  /// The same, or bytes that a transport could not take at once.
  bool has_work();
  /// The collectives started so far, and the last of them in words; empty where there is none.
  const CallHistory& calls() const { return calls_; }
  std::string last_call() const;
  /// The job's failure, as soon as this rank knows it.
  const Failure* failure() const { return monitor_.failure(); }

  /// Called now and then while an operation waits and nothing moves (`now` from the clock): asks
  /// peers what they are doing, notices peers that left. Cheap, not for every turn.
  void check_stalled(int64_t now_ns);
  /// Looks for messages that peers stored into mapped inboxes; true when there are new ones. Before
  /// sleeping, after Transport::arm.
  bool look_for_arrivals();
  /// Gives back peers' memory that they no longer name, unless an operation is under way, which may
  /// be using it. Cheap where there is none.
  void unmap_deregistered();
  /// After a failure, before callers hear of it and free their memory: transports move nothing any
  /// more. The first call counts.
  void stop_transports();
  /// A peer that waits for this rank in another call cannot ask before this side connects, too.
  void answer_connects();
  /// As Communicator::next_sender, without waiting: fails the job where nobody can send any more.
  /// Turns around the peers, so that all are served.
  std::optional<int> next_sender(int channel);
  /// Whether next_sender would tell one.
  bool has_message(int channel) {
    return std::ranges::any_of(open_links_,
                               [&](Link* link) { return has_message(*link, channel); });
  }
  /// Ends the job: `operation` has waited too long.
  void fail_timeout(const Operation& operation, int64_t waited_ns);
  /// The oldest operation under way in which peers may wait for this rank: any but a receive. Null
  /// where there is none.
  const Operation* owed_to_peers() const {
    const auto owed = std::ranges::find_if(active_, [](const Operation* operation) {
      return operation->call.collective != Collective::recv;
    });
    return owed == active_.end() ? nullptr : *owed;
  }
  /// "waiting for rank 3 to send block 2 (1 of 4 slices here)".
  std::string what_blocks(const Operation& operation) const;
  /// The same for the oldest operation under way, with its name; empty where there is none.
  std::string what_blocks() const;

 private:
  // engine.cc
  Link& link_to(int peer);
  bool advance();
  bool needs_poll();
  bool poll_transports();
  void on_completion(int transport, const Completion& completion);
  void on_notice(int peer, uint32_t notice);
  void on_lost(int transport, int peer);
  void note_lost(int peer);
  int64_t left_grace_ns(int peer) const;
  bool run(Operation& operation);
  bool has_message(Link& link, int channel);
  void begin(Operation& operation);
  static bool is_linked(Operation& operation);
  void finish(Operation& operation);
  Transport& transport_to(int peer) const {
    return *transports_[static_cast<size_t>(route_[static_cast<size_t>(peer)])];
  }

  // sequential.cc
  bool run_sequential(Operation& operation);

  // owner_executor.cc
  void begin_owner(Operation& operation);
  bool run_owner_executor(Operation& operation);
  bool run_contributor(Operation& operation, OwnerPeer& owner);
  bool send_descriptor(Operation& operation, OwnerPeer& owner);
  bool accept_descriptor(Operation& operation, OwnerPeer& contributor);
  bool run_owner(Operation& operation, OwnedBlock& block);
  static void reduce_slices(Operation& operation, const OwnedBlock& block, uint32_t slices);

  // prepare.cc
  class Binder;
  using Windows = std::vector<std::pair<Link*, Window*>>;
  void prepare_streams(Operation& operation);
  void prepare_owner(Operation& operation, const Schedule& schedule,
                     const std::vector<BlockMemory>& blocks);
  void bind(Operation& operation);
  static bool bind_steps(Operation& operation, size_t stream, Binder& binder);
  static bool bind_peer(OwnerPeer& peer, Binder& binder);
  void give_windows(Operation& operation, const Windows& windows);
  void bind_anew(Operation& operation);
  bool are_all_mapped() const;

  // The FIFO runner: engine.cc, send.cc, receive.cc, local.cc
  static void begin_pipelined(Operation& operation);
  bool run_pipelined(Operation& operation);
  bool advance_send(Operation& operation, size_t stream);
  bool announce(Operation& operation, size_t stream, uint32_t step);
  bool send_slice(Operation& operation, size_t stream, uint32_t step);
  bool expose_slice(Operation& operation, size_t stream, uint32_t step);
  bool collect_consumed(Operation& operation, size_t stream);
  const Grant* grant_for(const Operation& operation, const StreamState& stream);
  bool advance_receive(Operation& operation, size_t stream);
  bool issue_grants(Operation& operation, size_t stream);
  bool accept(Operation& operation, size_t stream, uint32_t step);
  bool take_slice(Operation& operation, size_t stream, uint32_t step);
  void apply(Operation& operation, uint32_t step, uint32_t slice, const std::byte* data);
  bool advance_locals(Operation& operation);
  static void run_local(const Program& program, const ProgramStep& step, uint32_t slice);

  // checks.cc
  bool check_header(const Operation& operation, const Link& link, const EagerHeader& header,
                    MessageKind kind, size_t bytes);
  void check_arrivals(const Operation& operation, int64_t now_ns);
  void check_probe(int peer);
  void check_senders();
  void fail_mismatch(const Signature& own, const Signature& other, int peer);
  void compare_calls(int peer, const Signature& theirs, bool waits);
  void compare_calls_of_left(int peer);
  void fail(Failure failure);
  void fail_lost(const Operation& operation, Link& link);
  const Signature* known_signature(uint32_t sequence) const;
  /// A peer that an operation waits for, and for what.
  struct Blocker {
    Link* link;
    bool to_take;  // what this rank sends; else to send
    int32_t block;
    uint32_t done, slices;
  };
  template <class Visit>
  void for_each_blocker(const Operation& operation, const Visit& visit) const;
  std::optional<Blocker> first_blocker(const Operation& operation) const;
  std::optional<Blocker> blocker_of_stream(const Operation& operation, size_t stream) const;
  static std::optional<Blocker> blocker_of_owner(const Operation& operation, const OwnerPeer& peer);
  void probe(Operation& operation, const Blocker& blocker, int64_t now_ns);

  static bool slice_ready(const Operation& operation, uint32_t step, uint32_t slice,
                          uint32_t deps_end);
  static void finish_slice(StepState& step);

  const int rank_, size_;
  const std::vector<Transport*> transports_;
  std::vector<Transport*> networks_;  // of these, where bytes may wait: not in mapped memory
  const std::vector<int> route_;
  MemoryRegistry& memories_;
  Monitor& monitor_;
  const Clock& clock_;

  std::vector<std::unique_ptr<Link>> links_;  // by peer; null until needed
  std::vector<Link*> open_links_;
  std::vector<Operation*> active_;  // the first of each queue, in order of their start
  CallHistory calls_;
  uint32_t puts_under_way_ = 0;  // posted, put_done still to come
  bool failed_ = false;          // this engine has reported a failure
  bool stopped_ = false;         // its transports are
  bool owing_ = false;           // some link owes notices that the transport refused
  std::array<OperationQueue, kContexts> contexts_{};  // collectives
  std::array<Completion, 64> completions_;            // of one poll
  static constexpr size_t kHistory = 64;
  std::array<Signature, kHistory> history_{};  // of the last started collectives
  struct Channel {
    uint32_t sends_started = 0, recvs_started = 0;
    OperationQueue sends, recvs;
  };
  struct Pair {
    std::array<Channel, kChannels> channels;
    int64_t lost_ns = 0;  // when the transport lost the peer, or last heard of it; 0: not lost
    int64_t left_ns = 0;  // when this rank saw that the peer had left; 0: not
  };
  std::vector<Pair> pairs_;
  uint32_t turns_unpolled_ = 0;
  size_t last_sender_ = 0;  // index in open_links_ of the link that next_sender() answered last

  template <class Pairs>
  static auto& channel_in(Pairs& pairs, const Operation& operation) {
    return pairs[static_cast<size_t>(operation.call.root)]
        .channels[static_cast<size_t>(operation.call.channel)];
  }
  OperationQueue& queue_for(const Operation& operation);
};

/// Where slice `slice` begins, and how many of the `bytes` of a message it has.
inline size_t slice_begin(const Program& program, uint32_t slice) {
  return static_cast<size_t>(slice) * program.slice_bytes;
}
inline size_t slice_length(size_t bytes, size_t slice_bytes, uint32_t slice) {
  return std::min(slice_bytes, bytes - slice * slice_bytes);
}
inline size_t slice_length(const Program& program, const ProgramStep& step, uint32_t slice) {
  return slice_length(step.bytes, program.slice_bytes, slice);
}

}  // namespace ropewalk
