// What torch asks to be told of a group's calls. Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace ropewalk::pytorch {

/// Of one backend, whatever its members are. Hooks are called, copied and destroyed without a lock,
/// as Python's take the GIL for each of that; so one may be called once more after it was removed.
class Hooks {
 public:
  using OnAbort = std::function<void()>;
  using OnCompletion = std::function<void(uint64_t key)>;

  void add(int64_t id, OnAbort hook) { on_abort_.add(id, std::move(hook)); }
  void add(int64_t id, OnCompletion hook) { on_completion_.add(id, std::move(hook)); }
  void remove_on_abort(int64_t id) { on_abort_.remove(id); }
  void remove_on_completion(int64_t id) { on_completion_.remove(id); }

  /// Before the group is aborted, and where a call times out. Not where a rank is lost: the error
  /// names it, and those who go on are not to wait. In a thread of its own, for which this waits
  /// for a tenth of a second, and the end of the process: to write down what was recorded takes
  /// PyTorch seconds.
  void tell_of_abort() const;
  /// A call has succeeded.
  void tell_of_completion(uint64_t key) const;

 private:
  /// By the ids that torch gives them, and called in their order.
  template <class Hook>
  class Table {
   public:
    using Hooks = std::map<int64_t, std::shared_ptr<const Hook>>;

    void add(int64_t id, Hook hook) {
      auto kept = std::make_shared<const Hook>(std::move(hook));
      const std::lock_guard lock(mutex_);
      auto fresh = copy();
      (*fresh)[id].swap(kept);
      hooks_ = std::move(fresh);
    }
    void remove(int64_t id) {
      std::shared_ptr<const Hooks> old;  // goes without the lock
      const std::lock_guard lock(mutex_);
      old = hooks_;
      auto fresh = copy();
      fresh->erase(id);
      hooks_ = std::move(fresh);
    }
    /// Null: there are none, and were none.
    std::shared_ptr<const Hooks> current() const {
      const std::lock_guard lock(mutex_);
      return hooks_;
    }

   private:
    std::shared_ptr<Hooks> copy() const {
      return hooks_ ? std::make_shared<Hooks>(*hooks_) : std::make_shared<Hooks>();
    }

    mutable std::mutex mutex_;  // guards hooks_, whose content does not change
    std::shared_ptr<const Hooks> hooks_;
  };

  Table<OnAbort> on_abort_;
  Table<OnCompletion> on_completion_;
};

}  // namespace ropewalk::pytorch
