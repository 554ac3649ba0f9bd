// The subcommands of `ropewalk`, each in a file of its own.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

namespace ropewalk::tools {

/// Adds a subcommand to `app`; what it is to do is stored in `action`, which main calls after
/// parsing and whose value is the exit status.
using Action = std::function<int()>;
void add_run_command(CLI::App& app, Action& action);
void add_bench_command(CLI::App& app, Action& action);
void add_verify_command(CLI::App& app, Action& action);
void add_env_command(CLI::App& app, Action& action);
void add_doctor_command(CLI::App& app, Action& action);

}  // namespace ropewalk::tools
