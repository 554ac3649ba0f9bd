// The Monitor of one of the epochs of a World, by the numbers that its ranks have in it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "bootstrap/monitor.h"

namespace ropewalk::bootstrap {

class JobMonitor;

/// One epoch may follow another over the same connections: then the World's monitor, whose ranks
/// keep their numbers, begins anew (JobMonitor::renew). Who belongs to an epoch that is over keeps
/// its monitor: it has failed for ever, and says nothing more to the World.
class EpochMonitor final : public Monitor {
 public:
  /// Epoch `number` of `whole`, which outlives it, from 0; `members` are its ranks as `whole`
  /// numbers them.
  EpochMonitor(JobMonitor& whole, uint32_t number, std::vector<int> members)
      : whole_(whole), number_(number), members_(std::move(members)) {}

  const std::vector<int>& members() const { return members_; }
  const Failure* failure() const noexcept override {
    return failure_.load(std::memory_order_acquire);
  }
  void report(const Failure& failure) override;
  void report_silent(const Failure& failure) override;
  bool has_left(int peer) const noexcept override;
  std::optional<CallsMade> calls_of(int peer) const override;
  void note_calls(uint32_t calls) noexcept override;
  void note_waits(std::span<const Wait> waits) override;
  void ask_who_waits() override;
  std::vector<RankWaits> waits() const override;
  int event_fd() const noexcept override;
  int rank_in_epoch(int rank_in_job) const override;

 private:
  friend class JobMonitor;
  /// The World's, once: under its lock.
  void set(const Failure& failure);
  bool is_over() const noexcept { return failure() != nullptr; }

  JobMonitor& whole_;
  const uint32_t number_;
  const std::vector<int> members_;
  std::unique_ptr<const Failure> stored_;  // never changes once set
  std::atomic<const Failure*> failure_{nullptr};
};

}  // namespace ropewalk::bootstrap
