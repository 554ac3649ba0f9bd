#include "tools/command/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <numeric>

#include "ropewalk/status.h"
#include "tools/command/descriptors.h"
#include "tools/command/program_words.h"
#include "tools/command/standard_output.h"
#include "tools/command/version.h"

namespace ropewalk::tools {
namespace {

constexpr int kStatusUsage = 2;

// Levenshtein's distance: insertions, deletions and substitutions from `a` to `b`.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

bool has_command(const CLI::App& app, std::string_view word) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == word) return true;
  }
  return false;
}

int refuse_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  const std::string nearest = nearest_word(word, names);
  fmt::print(stderr, "ropewalk: unknown command \"{}\"{}; see: ropewalk --help\n", word,
             nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest));
  return kStatusUsage;
}

// What CLI11 parses, in the order that it wants: the last word first. It would mix the words of a
// program with its own.
std::vector<std::string> own_words(const CLI::App& app, std::vector<std::string> words,
                                   Request& request) {
  if (!words.empty() && has_command(app, words[0])) {
    const CLI::App* command = app.get_subcommand(words[0]);
    if (command->get_prefix_command()) {
      ProgramWords parted = part_words(*command, {words.begin() + 1, words.end()});
      request.program = std::move(parted.program);
      words.resize(1);
      words.insert(words.end(), parted.own.begin(), parted.own.end());
    }
  }
  return {words.rbegin(), words.rend()};
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& words) {
  std::string nearest;
  size_t least = std::max<size_t>(2, word.size() / 2);
  for (const std::string& candidate : words) {
    const size_t distance = edit_distance(word, candidate);
    if (distance <= least && (nearest.empty() || distance < least)) {
      nearest = candidate;
      least = distance;
    }
  }
  return nearest;
}

namespace {

constexpr const char* kFooter =
    "Each command has its own help with examples: ropewalk run --help\n"
    "Exit status: 0 only for success; 2 for wrong input, such as an unknown option or a value of "
    "a\n"
    "variable that is not allowed; 74 where output could not be written; 1 for other failures.\n"
    "That of `run` is its program's: 126 where it cannot be executed, 127 where there is none.";

int run_parsed(const CLI::App& app, const Request& request) {
  try {
    if (request.action) return request.action();
    fmt::print("{}", app.help());
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "ropewalk: %s\n", error.what());
    return error.code() == ErrorCode::invalid_argument ? kStatusUsage : 1;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr,
                 "ropewalk: there is not enough memory for this; ask for less: of "
                 "`simulate`, fewer ranks\n");
    return 1;
  } catch (const std::exception& error) {
    // What fmt throws where output cannot be written is told by who flushes it.
    if (std::ferror(stdout) != 0) return 0;
    std::fprintf(stderr, "ropewalk: %s\n", error.what());
    return 1;
  }
}

int parse_and_run(int argc, char** argv, const std::vector<void (*)(Command, Request&)>& commands) {
  CLI::App app("Ropewalk: an RDMA-first allreduce layer for distributed training.", "ropewalk");
  app.set_version_flag("--version", std::string("ropewalk ") + kVersion);
  app.require_subcommand(0, 1);
  app.footer(kFooter);
  Request request;
  for (const auto add : commands) add(Command(app), request);
  if (argc > 1 && argv[1][0] != '-' && !has_command(app, argv[1])) {
    return refuse_command(app, argv[1]);
  }
  try {
    app.parse(own_words(app, {argv + 1, argv + argc}, request));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kStatusUsage;
  }
  return run_parsed(app, request);
}

}  // namespace

int run_cli(int argc, char** argv, const std::vector<void (*)(Command, Request&)>& commands) {
  occupy_standard_descriptors();
  const int status = parse_and_run(argc, argv, commands);
  const bool arrived = flush_standard_output();
  return status == 0 && !arrived ? kStatusOutputLost : status;
}

}  // namespace ropewalk::tools
