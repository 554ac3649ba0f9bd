// The owner's end of asynchronous elastic averaging: a shard of the center, and the thread that
// answers for it. The vector of all parameters is cut into a shard for each owner, and each shard
// into pieces, which travel one by one.
//
// An exchange of one piece: a worker sends its parameters on channel 0; the owner computes
// delta = alpha (parameters - center), adds it to the center and answers with it on channel 1. Each
// request is applied by one thread, once, and its answer is the delta that was applied. So nothing
// is lost, applied twice, or computed from a center that has moved on.
//
// Nothing waits in a circle: the thread waits for a request that has begun to arrive, and for
// answers, for which their worker has started a recv before it sent.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/start_thread.h"
#include "reduce/element.h"
#include "ropewalk/communicator.h"

namespace ropewalk {

constexpr int kRequests = 0, kAnswers = 1;  // channels

/// A part of the vector, in elements.
struct Part {
  size_t begin = 0, size = 0;
};

/// Pure. Shards differ by one element at most; only the last piece of a shard may be short.
class Shards {
 public:
  Shards(size_t total, int owners, size_t piece)
      : total_(total), owners_(static_cast<size_t>(owners)), piece_(piece) {}

  size_t total() const { return total_; }
  int owners() const { return static_cast<int>(owners_); }

  Part shard(int owner) const {
    const size_t begin = bound(static_cast<size_t>(owner));
    return {begin, bound(static_cast<size_t>(owner) + 1) - begin};
  }
  size_t pieces(int owner) const { return (shard(owner).size + piece_ - 1) / piece_; }
  /// Of the largest shard.
  size_t pieces_max() const {
    size_t most = 0;
    for (int owner = 0; owner < owners(); ++owner) most = std::max(most, pieces(owner));
    return most;
  }
  /// Where piece `index` of the shard of `owner` lies in the vector.
  Part piece(int owner, size_t index) const {
    const Part whole = shard(owner);
    const size_t begin = index * piece_;
    return {whole.begin + begin, std::min(piece_, whole.size - begin)};
  }

 private:
  /// Without the overflow of total * owner.
  size_t bound(size_t owner) const {
    return total_ / owners_ * owner + std::min(owner, total_ % owners_);
  }

  size_t total_, owners_, piece_;
};

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
    comm_.run(Call::recv(data, worker, kRequests));
    apply(index, data);
    slot.answer = comm_.start(Call::send(data, worker, kAnswers));
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
