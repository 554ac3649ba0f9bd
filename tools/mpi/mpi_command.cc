// ropewalk mpi: starts an MPI program with Ropewalk in front of its MPI.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "ropewalk/status.h"
#include "tools/command/command.h"
#include "tools/launcher/processes.h"
#include "tools/mpi/explain_mpi.h"
#include "tools/mpi/find_mpi.h"

namespace ropewalk::tools {
namespace {

namespace fs = std::filesystem;

struct MpiFlags {
  std::optional<std::string> kind;
  bool report = false, print = false, explain = false;
};

constexpr const char* kMpiExamples =
    "Examples:\n"
    "  ropewalk mpi -- mpirun -n 4 ./app\n"
    "  ropewalk mpi --report -- mpiexec -n 4 python3 train.py      # with mpi4py\n"
    "  ropewalk mpi --explain -- ./app                             # what would be taken\n"
    "  LD_PRELOAD=$(ropewalk mpi --print -- ./app) srun ./app      # by hand\n"
    "The program's collectives go over Ropewalk, all else over its MPI: docs/swap_in.md.\n"
    "Exit status: that of the command; 127: it was not found; 2: wrong command line; 1: there is "
    "no\n"
    "library for its MPI.";

/// Beside the installed command, or in the build folder.
fs::path front_of(const MpiKind& kind) {
  const fs::path folder = fs::path(own_path()).parent_path();
  const std::string file = "libropewalk_" + kind.name + ".so";
  for (const char* place : {"../integrations/mpi", "../" ROPEWALK_MPI_FOLDER})
    if (const fs::path path = folder / place / file; fs::exists(path)) return fs::canonical(path);
  throw Error(ErrorCode::unavailable, "mpi", fmt::format("this Ropewalk has no {}", file),
              fmt::format("build it where the headers of {} are installed", kind.text));
}

FoundMpi mpi_of(const MpiFlags& flags, const std::vector<std::string>& words) {
  const auto& kinds = mpi_kinds();
  if (flags.kind) return {*std::ranges::find(kinds, *flags.kind, &MpiKind::name), {}, {}};
  if (auto found = find_mpi(words)) return *found;
  throw Error(ErrorCode::invalid_argument, "mpi",
              fmt::format("neither \"{}\" nor another word of the command loads an MPI that "
                          "Ropewalk knows",
                          words.front()),
              "name it: --mpi openmpi, openmpi5, mpich, or mpi_abi");
}

/// `value` behind what the variable has already.
void add_to_variable(const char* name, const std::string& value, char separator) {
  const char* const old = getenv(name);
  const std::string all = old == nullptr || *old == '\0' ? value : value + separator + old;
  setenv(name, all.c_str(), 1);
}

/// ";NAME" of each that is set.
std::string own_variables() {
  std::string names;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (const std::string_view text = *variable; text.starts_with("ROPEWALK_"))
      names.append(";").append(text.substr(0, text.find('=')));
  return names;
}

int run_program(const MpiFlags& flags, std::vector<std::string> words) {
  if (words.empty() && !(flags.explain && flags.kind))
    throw Error(ErrorCode::invalid_argument, "mpi", "no command was given",
                "write: ropewalk mpi -- mpirun -n 4 ./app");
  const FoundMpi found = mpi_of(flags, words);
  const MpiKind& kind = found.kind;
  const fs::path front = front_of(kind);
  if (flags.explain) return fmt::print("{}", explain_mpi(found, front)), 0;
  if (flags.print) return fmt::print("{}\n", front.string()), 0;
  add_to_variable("LD_PRELOAD", front.string(), ':');
  if (flags.report) setenv("ROPEWALK_MPI_REPORT", "1", 1);
  // Open MPI's launcher passes on to other hosts what is named here.
  if (kind.name.starts_with("openmpi"))
    add_to_variable("OMPI_MCA_mca_base_env_list", "LD_PRELOAD" + own_variables(), ';');
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  fmt::print(stderr, "ropewalk mpi: {}: {}\n", words.front(), strerror(errno));
  return 127;
}

}  // namespace

void add_mpi_command(Command app, Request& request) {
  auto flags = std::make_shared<MpiFlags>();
  Command mpi = app.add_command(
      "mpi", "run an MPI program's collectives over Ropewalk: mpi [OPTIONS] [--] mpirun -n 4 ./app",
      kMpiExamples);
  std::vector<std::string> names;
  for (const MpiKind& kind : mpi_kinds()) names.push_back(kind.name);
  mpi.take_program();
  mpi.add_option("--mpi", flags->kind, "which MPI the program loads; default: looked up")
      .one_of(names);
  mpi.add_flag("--report", flags->report, "tell at the end what was taken (ROPEWALK_MPI_REPORT=1)");
  mpi.add_flag(
      "--explain", flags->explain,
      "print which collectives are taken of the MPI that the program loads, and run nothing");
  mpi.add_flag("--print", flags->print, "print what LD_PRELOAD must be, and run nothing");
  mpi.set_action(request, [flags, &request] { return run_program(*flags, request.program); });
}

}  // namespace ropewalk::tools
