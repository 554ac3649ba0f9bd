#include "tools/launcher/rank_environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>

namespace ropewalk::tools {
namespace {

constexpr std::array<std::string_view, 8> kIdentity = {
    "ROPEWALK_RANK",         "ROPEWALK_SIZE",        "ROPEWALK_LOCAL_RANK",
    "ROPEWALK_LOCAL_SIZE",   "ROPEWALK_COORDINATOR", "ROPEWALK_COORDINATOR_FD",
    "ROPEWALK_JOIN_RUNNING", "ROPEWALK_JOINED_FD"};

std::string_view name_part(std::string_view entry) {
  return entry.substr(0, entry.find('='));
}

}  // namespace

bool is_identity_variable(std::string_view name) {
  return std::find(kIdentity.begin(), kIdentity.end(), name) != kIdentity.end();
}

std::vector<std::string> ropewalk_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name = name_part(*entry);
    if (name.starts_with("ROPEWALK_") && name != "ROPEWALK_JOB_KEY" &&
        !is_identity_variable(name)) {
      entries.emplace_back(*entry);
    }
  }
  return entries;
}

std::vector<std::string> rank_environment(const JobPart& part, const RankRole& role) {
  std::map<std::string, std::string, std::less<>> by_name;
  const auto set = [&by_name](std::string_view entry) {
    by_name.insert_or_assign(std::string(name_part(entry)), std::string(entry));
  };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!is_identity_variable(name_part(*entry))) set(*entry);
  }
  for (const std::string& entry : part.environment) set(entry);
  const bool is_newcomer = role.joined_fd >= 0;
  if (is_newcomer) {
    set("ROPEWALK_JOIN_RUNNING=1");
    set(fmt::format("ROPEWALK_JOINED_FD={}", role.joined_fd));
  } else {
    set(fmt::format("ROPEWALK_RANK={}", part.first_rank + role.index));
    set(fmt::format("ROPEWALK_SIZE={}", part.size));
  }
  set(fmt::format("ROPEWALK_LOCAL_RANK={}", part.first_local_rank + role.index));
  set(fmt::format("ROPEWALK_LOCAL_SIZE={}", is_newcomer ? part.local_slots : part.local_size));
  set("ROPEWALK_COORDINATOR=" + role.coordinator);
  set("ROPEWALK_JOB_KEY=" + part.job_key);
  if (role.coordinator_fd >= 0) set(fmt::format("ROPEWALK_COORDINATOR_FD={}", role.coordinator_fd));
  std::vector<std::string> environment;
  for (auto& [name, entry] : by_name) environment.push_back(std::move(entry));
  return environment;
}

}  // namespace ropewalk::tools
