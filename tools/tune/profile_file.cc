#include "tools/tune/profile_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "ropewalk/status.h"

namespace ropewalk::tools {
namespace {

/// Nothing where there is none.
std::optional<TuningProfile> profile_at(const std::string& path) {
  try {
    return parse_tuning(read_tuning(path));
  } catch (const Error&) {
    return {};
  }
}

bool are_same_hosts(const TuningProfile& a, const TuningProfile& b) {
  return std::ranges::equal(a.hosts, b.hosts, [](const auto& one, const auto& other) {
    return one.name == other.name && one.ranks == other.ranks;
  });
}

}  // namespace

ProfileFile::ProfileFile(std::string path)
    : path_(std::move(path)), written_(fmt::format("{}.{}", path_, getpid())) {
  if (path_.empty())
    throw Error(ErrorCode::invalid_argument, "tune", "there is no home to save the profile in",
                "name a file with --output");
  std::error_code ignored;
  const auto folder = std::filesystem::path(path_).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  if (!std::ofstream(written_, std::ios::binary)) fail();
  std::filesystem::remove(written_, ignored);
}

void ProfileFile::save_part(const TuningProfile& profile) const {
  TuningProfile all = profile;
  if (const auto former = profile_at(path_); former && are_same_hosts(*former, profile))
    for (const TuningProfile::Calls& calls : former->jobs) {
      const bool is_measured = std::ranges::any_of(profile.jobs, [&](const auto& job) {
        return job.ranks == calls.ranks && job.transport == calls.transport;
      });
      if (!is_measured) all.jobs.push_back(calls);
    }
  save(all);
}

void ProfileFile::save(const TuningProfile& profile) const {
  std::ofstream file(written_, std::ios::binary);
  file << text_of(profile);
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(written_, path_, error);
  if (file && !error) return;
  std::filesystem::remove(written_, error);
  fail();
}

void ProfileFile::fail() const {
  throw Error(ErrorCode::system, "tune", fmt::format("cannot write {}", path_),
              "name another file with --output");
}

}  // namespace ropewalk::tools
