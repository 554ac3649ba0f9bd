// Shared by the tests of this folder.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "schedule/verify.h"

namespace ropewalk {

inline std::vector<Schedule> build_all(const ScheduleKey& key) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < key.ranks; ++rank) schedules.push_back(build_schedule(key, rank));
  return schedules;
}

/// "+>1:0" sends block 0 to rank 1 to be added, "=<1:0" stores block 0 from rank 1, "0+=1" is
/// local; lane 1 is marked with a prime.
inline std::string text_of(const Schedule& schedule) {
  std::string text;
  for (const Step& step : schedule.steps) {
    if (!text.empty()) text += ' ';
    const bool adds = step.op == StepOp::send_reduce || step.op == StepOp::recv_reduce;
    if (step.op == StepOp::reduce)
      text += fmt::format("{}+={}", step.block, step.from);
    else
      text += fmt::format("{}{}{}:{}{}", adds ? '+' : '=', is_send(step.op) ? '>' : '<', step.peer,
                          step.block, step.lane == 1 ? "'" : "");
  }
  return text;
}

inline std::string text_of(const VerifyReport& report) {
  std::string text;
  for (const Finding& finding : report.findings)
    text += fmt::format("{}: {}\n", name_of(finding.flaw), finding.text);
  return text;
}

/// Correct under rendezvous, with one slot, and in list order.
inline void expect_correct(const ScheduleKey& key) {
  for (int credits : {0, 1, kInListOrder}) {
    const VerifyReport report = verify(key, credits);
    EXPECT_TRUE(report.ok()) << describe(key) << ", credits " << credits << "\n" << text_of(report);
  }
}

/// The sum of `block` on `rank` as the steps add it up, for expecting an order: lists the ranks.
/// Only where contributions arrive unsummed (direct).
inline std::vector<int> order_of_sum(const Schedule& schedule, int block) {
  std::vector<int> order{schedule.rank};
  for (const Step& step : schedule.steps)
    if (step.op == StepOp::recv_reduce && step.block == block) order.push_back(step.peer);
  return order;
}

}  // namespace ropewalk
