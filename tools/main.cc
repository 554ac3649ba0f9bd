// The `ropewalk` command.
#include <fmt/format.h>

#include "tools/command/cli.h"
#include "tools/command/command.h"

int main(int argc, char** argv) {
  using namespace ropewalk::tools;
  return run_cli(argc, argv,
                 {add_run_command, add_mpi_command, add_bench_command, add_tune_command,
                  add_explain_command, add_simulate_command, add_verify_command, add_doctor_command,
                  add_env_command, add_help_command});
}
