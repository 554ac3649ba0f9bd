// The owner's end of asynchronous elastic averaging: a shard of the center, and the thread that
// answers for it.
//
// An exchange of one piece: a worker sends its parameters on channel 0; the owner computes
// delta = alpha (parameters - center), adds it to the center and answers with it on channel 1. Each
// request is applied by one thread, once, and its answer is the delta that was applied. So nothing
// is lost, applied twice, or computed from a center that has moved on.
//
// Nothing waits in a circle: the thread waits for a request that has begun to arrive, and for
// answers, for which their worker has started a recv before it sent.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/start_thread.h"
#include "policies/shards.h"
#include "reduce/element.h"
#include "ropewalk/communicator.h"

namespace ropewalk {

constexpr int kRequests = 0, kAnswers = 1;  // channels

/// Of `data`, to or from `peer`.
template <class T>
Call message(Collective collective, int peer, int channel, std::span<T> data) {
  Call call;
  call.collective = collective;
  call.in = collective == Collective::send ? data.data() : nullptr;
  call.out = collective == Collective::recv ? data.data() : nullptr;
  call.count = data.size();
  call.type = data_type_of<T>();
  call.root = peer;
  call.channel = channel;
  return call;
}

/// Thread-safe, but for the constructor's and destructor's thread: it starts and ends the other.
template <class T>
class CenterShard {
 public:
  /// Answers requests for this rank's shard from here on. `initial` is what the shard holds first;
  /// `comm` outlives this.
  CenterShard(Communicator& comm, const Shards& shards, double alpha, std::span<const T> initial)
      : comm_(comm),
        shards_(shards),
        alpha_(static_cast<Wide<T>>(alpha)),
        center_(comm.allocate<T>(initial.size())),
        next_piece_(static_cast<size_t>(comm.size())) {
    std::ranges::copy(initial, center_.begin());
    if (comm.size() == 1 || initial.empty()) return;
    for (Slot& slot : slots_) slot.memory = comm.allocate<T>(shards.piece(comm.rank(), 0).size);
    thread_ = start_thread("AsyncEa", "ropewalk-center", [this] { serve_until_stopped(); });
  }
  CenterShard(const CenterShard&) = delete;
  CenterShard& operator=(const CenterShard&) = delete;
  /// All exchanges must have ended, or the communicator be broken.
  ~CenterShard() {
    stopping_ = true;
    if (!thread_.joinable()) return;
    comm_.interrupt_next_sender(kRequests);
    thread_.join();
  }

  /// An exchange of this rank with its own shard: piece `index`.
  void exchange(size_t index, std::span<const T> parameters, std::span<T> delta) {
    std::ranges::copy(parameters, delta.begin());
    apply(index, delta);
  }

  void copy_to(std::span<T> out) {
    std::lock_guard lock(mutex_);
    std::ranges::copy(center_, out.begin());
  }

  /// Throws what ended the thread before its time.
  void throw_if_failed() const {
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(error_);
  }

 private:
  /// An answer may be on its way while the next request is received.
  struct Slot {
    Buffer<T> memory;
    std::optional<Work> answer;  // uses memory
  };

  void serve_until_stopped() {
    constexpr std::chrono::hours kLong(1);
    try {
      while (!stopping_)
        if (const std::optional<int> worker = comm_.next_sender(kLong, kRequests)) answer(*worker);
      for (Slot& slot : slots_) take_back(slot);
    } catch (const std::exception& error) {
      error_ = std::current_exception();
      failed_.store(true, std::memory_order_release);
      comm_.abort(error.what());  // where it is not the communicator's failure: tells the others
      for (Slot& slot : slots_) abandon(slot);
    }
  }

  void answer(int worker) {
    Slot& slot = slots_[turn_++ % slots_.size()];
    take_back(slot);
    size_t& next = next_piece_[static_cast<size_t>(worker)];
    const size_t index = next;
    next = (next + 1) % shards_.pieces(comm_.rank());
    const std::span<T> data = slot.memory.span().first(shards_.piece(comm_.rank(), index).size);
    comm_.run(message(Collective::recv, worker, kRequests, data));
    apply(index, data);
    slot.answer = comm_.start(message(Collective::send, worker, kAnswers, data));
  }

  static void take_back(Slot& slot) {
    if (slot.answer) slot.answer->wait();
    slot.answer.reset();
  }

  /// After a failure, which another answer need not tell again.
  static void abandon(Slot& slot) noexcept {
    try {
      take_back(slot);
    } catch (const std::exception&) {
      slot.answer.reset();
    }
  }

  /// In: parameters; out: delta.
  void apply(size_t index, std::span<T> data) {
    const size_t begin =
        shards_.piece(comm_.rank(), index).begin - shards_.shard(comm_.rank()).begin;
    T* center = center_.data() + begin;
    std::lock_guard lock(mutex_);
    for (T& value : data) {
      value = narrow<T>(alpha_ * (widen(value) - widen(*center)));
      *center = narrow<T>(widen(*center) + widen(value));
      ++center;
    }
  }

  Communicator& comm_;
  const Shards shards_;
  const Wide<T> alpha_;
  std::mutex mutex_;  // guards the elements of center_
  Buffer<T> center_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // written before failed_ is set
  // The thread's own:
  std::array<Slot, 2> slots_;
  size_t turn_ = 0;
  std::vector<size_t> next_piece_;  // by worker: of its next request
  std::thread thread_;
};

}  // namespace ropewalk
