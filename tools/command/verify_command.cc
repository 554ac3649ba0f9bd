// ropewalk verify: proves every schedule by replay.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>

#include "ropewalk/status.h"
#include "schedule/verify.h"
#include "tools/command/command.h"

namespace ropewalk::tools {
namespace {

constexpr int kRanksVerifiedMax = 4096;
// Rendezvous, the tightest buffer, and the smallest that lets a rank run ahead.
constexpr int kCredits[] = {0, 1, 2, kInListOrder};
constexpr size_t kFindingsShown = 10;
constexpr const char* kVerifyExamples =
    "Examples:\n"
    "  ropewalk verify\n"
    "  ropewalk verify --ranks 1:64\n"
    "Each schedule of each rank count is replayed with rendezvous and with bounded buffers: no\n"
    "deadlock, every send matched, every contribution exactly once, bytes at the algorithm's "
    "bound.\n"
    "Exit status: 0; 1 where something was found; 2 for wrong input.";

struct Range {
  int low, high;
};

Range parse_range(const std::string& text) {
  const size_t colon = text.find(':');
  const auto number = [&](std::string_view word) {
    int value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    return error == std::errc() && end == word.data() + word.size() ? value : 0;
  };
  const int low = number(std::string_view(text).substr(0, colon));
  const int high =
      colon == std::string::npos ? low : number(std::string_view(text).substr(colon + 1));
  if (low < 1 || high < low || high > kRanksVerifiedMax) {
    throw Error(ErrorCode::invalid_argument, "verify",
                fmt::format("--ranks \"{}\" is not a range from 1 to {}", text, kRanksVerifiedMax),
                "write --ranks 1:64");
  }
  return {low, high};
}

// One line of the table: a collective by an algorithm.
struct Row {
  Collective collective;
  Algorithm algorithm;
  int ranks_min, ranks_max;
  size_t schedules = 0, steps_max = 0, findings = 0;
  double sent_max = 0, bound_max = 0;
  int rounds_max = 0, rounds_bound = 0;
};

void add(Row& row, const ScheduleKey& key, const VerifyReport& report) {
  row.ranks_min = std::min(row.ranks_min, key.ranks);
  row.ranks_max = std::max(row.ranks_max, key.ranks);
  row.steps_max = std::max(row.steps_max, report.steps_max);
  row.sent_max = std::max(row.sent_max, report.sent_max);
  row.bound_max = std::max(row.bound_max, report.bound.sent);
  row.rounds_max = std::max(row.rounds_max, report.rounds);
  row.rounds_bound = std::max(row.rounds_bound, report.bound.rounds);
  row.findings += report.findings.size();
}

void print(const Row& row) {
  const std::string verdict = row.findings == 0 ? "ok" : fmt::format("{} FINDINGS", row.findings);
  fmt::print("{:<15} {:<19} {:>9} {:>9} {:>9} {:>10.4f} {:>10.4f} {:>7} {:>7}  {}\n",
             name_of(row.collective), name_of(row.algorithm),
             fmt::format("{}:{}", row.ranks_min, row.ranks_max), row.schedules, row.steps_max,
             row.sent_max, row.bound_max, row.rounds_max, row.rounds_bound, verdict);
}

void report_findings(const ScheduleKey& key, int credits, const VerifyReport& report) {
  for (size_t i = 0; i < std::min(report.findings.size(), kFindingsShown); ++i) {
    const Finding& finding = report.findings[i];
    fmt::print(stderr, "ropewalk verify: {} ({} credits): {}: {}\n", describe(key), credits,
               name_of(finding.flaw), finding.text);
  }
}

int run_verify(const std::string& ranks) {
  const Range range = parse_range(ranks);
  const std::vector<ScheduleKey> keys = keys_to_verify(range.low, range.high);
  const bool shows_progress = isatty(STDERR_FILENO) == 1;
  std::vector<Row> rows;
  for (size_t i = 0; i < keys.size(); ++i) {
    const ScheduleKey& key = keys[i];
    auto row = std::find_if(rows.begin(), rows.end(), [&key](const Row& r) {
      return r.collective == key.collective && r.algorithm == key.algorithm;
    });
    if (row == rows.end()) {
      row = rows.insert(rows.end(), Row{key.collective, key.algorithm, key.ranks, key.ranks});
    }
    ++row->schedules;
    for (const int credits : kCredits) {
      const VerifyReport report = verify(key, credits);
      add(*row, key, report);
      report_findings(key, credits, report);
    }
    if (shows_progress && (i % 64 == 0 || i + 1 == keys.size())) {
      fmt::print(stderr, "\r{} of {} schedules{}", i + 1, keys.size(),
                 i + 1 == keys.size() ? "\n" : "");
    }
  }
  fmt::print("# sent: by the rank that sends most, in whole vectors; rounds: longest chain\n");
  fmt::print("{:<15} {:<19} {:>9} {:>9} {:>9} {:>10} {:>10} {:>7} {:>7}  {}\n", "# collective",
             "algorithm", "ranks", "schedules", "steps", "sent", "bound", "rounds", "bound",
             "verdict");
  size_t findings = 0;
  for (const Row& row : rows) {
    print(row);
    findings += row.findings;
  }
  return findings == 0 ? 0 : 1;
}

}  // namespace

void add_verify_command(Command app, Request& request) {
  auto ranks = std::make_shared<std::string>("1:64");
  Command verify =
      app.add_command("verify", "prove every schedule for a range of rank counts", kVerifyExamples);
  verify.add_option("--ranks", *ranks, "how many ranks: 8, or 1:64").show_default();
  verify.set_action(request, [ranks] { return run_verify(*ranks); });
}

}  // namespace ropewalk::tools
