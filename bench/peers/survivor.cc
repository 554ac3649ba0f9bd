#include "survivor.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace ropewalk::peers {
namespace {

constexpr int kSumsBeforeKill = 20;  // links are there, and plans

}  // namespace

SurvivorOptions parse_survivor_options(int argc, char** argv) {
  SurvivorOptions options;
  CLI::App app("A rank of bench/compare --elastic; bench/peers/kill_ranks starts it.");
  app.add_option("--folder", options.folder)->required();
  app.add_option("--ranks", options.ranks)->required();
  app.add_option("--bytes", options.bytes)->required();
  app.add_option("--transport", options.transport);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  return options;
}

Survivor::Survivor(const SurvivorOptions& options, int rank)
    : options_(options), name_(rank), data_(std::max(size_t{2}, options.bytes / sizeof(float))) {}

std::vector<float>& Survivor::fill(int rank) {
  std::ranges::fill(data_, static_cast<float>(rank + 1));
  data_[0] = std::filesystem::exists(options_.folder + "/end") ? 1 : 0;
  return data_;
}

bool Survivor::check(int size) {
  const auto sum = static_cast<float>(size * (size + 1) / 2);
  if (std::any_of(data_.begin() + 1, data_.end(), [sum](float one) { return one != sum; }))
    throw std::runtime_error("a wrong sum");
  if (size == options_.ranks && ++sums_ == kSumsBeforeKill) tell("ready");
  if (size < options_.ranks && !recovered_) {
    recovered_ = true;
    tell("recovered");
  }
  return data_[0] == 0;
}

/// The file has this process's id and the time, in nanoseconds of CLOCK_MONOTONIC. It is there with
/// all of its content, or not at all.
void Survivor::tell(const char* what) const {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const std::string path = options_.folder + "/" + what + "-" + std::to_string(name_);
  std::ofstream(path + ".new") << ::getpid() << " " << std::chrono::nanoseconds(now).count()
                               << "\n";
  std::filesystem::rename(path + ".new", path);
}

}  // namespace ropewalk::peers
