// For tests of engines without a job.
#pragma once

#include <gtest/gtest.h>

#include "bootstrap/monitor.h"

namespace ropewalk {

/// Of a job in which nothing may fail.
class NothingFails final : public Monitor {
 public:
  const Failure* failure() const noexcept override { return nullptr; }
  void report(const Failure& failure) override { ADD_FAILURE() << failure.text(); }
  bool has_left(int) const noexcept override { return false; }
  int event_fd() const noexcept override { return -1; }
};

}  // namespace ropewalk
