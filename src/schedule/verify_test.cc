#include "schedule/verify.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ropewalk {
namespace {

std::vector<Schedule> build_all(const ScheduleKey& key) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < key.ranks; ++rank) schedules.push_back(build_schedule(key, rank));
  return schedules;
}

std::string text_of(const VerifyReport& report) {
  std::string text;
  for (const Finding& finding : report.findings)
    text += std::string(name_of(finding.flaw)) + ": " + finding.text + "\n";
  return text;
}

bool has(const VerifyReport& report, Flaw flaw) {
  return std::any_of(report.findings.begin(), report.findings.end(),
                     [flaw](const Finding& finding) { return finding.flaw == flaw; });
}

// `ropewalk verify` goes up to 64 ranks; here a part of that, so that the test takes a second.
TEST(Verify, EveryScheduleIsCorrect) {
  for (const ScheduleKey& key : keys_to_verify(1, 24))
    for (int credits : {0, 1, 2}) {
      const VerifyReport report = verify(key, credits);
      ASSERT_TRUE(report.ok()) << describe(key) << ", credits " << credits << "\n"
                               << text_of(report);
    }
}

}  // namespace
}  // namespace ropewalk
