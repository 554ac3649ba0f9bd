// The subcommands of `ropewalk`, each in a file of its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/command/command_line.h"

namespace ropewalk::tools {

/// What the command line asked for.
struct Request {
  std::function<int()> action;       // of the subcommand; its value is the exit status
  std::vector<std::string> program;  // of a prefix command: the program and its arguments
};

/// Adds a subcommand to `app`; it sets `request.action`, which main calls after parsing.
void add_run_command(Command app, Request& request);
void add_bench_command(Command app, Request& request);
/// Those of `bench` that measure the link between two ranks; after `bench` has its own options.
void add_p2p_commands(Command bench, Request& request);
void add_explain_command(Command app, Request& request);
void add_simulate_command(Command app, Request& request);
void add_verify_command(Command app, Request& request);
void add_tune_command(Command app, Request& request);
/// Runs an MPI program over Ropewalk.
void add_mpi_command(Command app, Request& request);
void add_env_command(Command app, Request& request);
void add_doctor_command(Command app, Request& request);
/// help, version and completion; they tell of all commands in `app`.
void add_help_command(Command app, Request& request);

}  // namespace ropewalk::tools
