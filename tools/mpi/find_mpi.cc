#include "tools/mpi/find_mpi.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace ropewalk::tools {
namespace {

namespace fs = std::filesystem;

// Without MPI_Init: that may start processes, or wait for others.
constexpr const char* kAskPython =
    "import mpi4py; mpi4py.rc.initialize = mpi4py.rc.finalize = False; from mpi4py import MPI; "
    "print(open('/proc/self/maps').read())";

std::string quoted(const std::string& word) {
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

/// What a command prints; its complaints are dropped.
std::string output_of(const std::vector<std::string>& words) {
  std::string line, output;
  for (const std::string& word : words) line += quoted(word) + " ";
  FILE* const pipe = popen((line + "</dev/null 2>&1").c_str(), "re");
  if (pipe == nullptr) return {};
  std::array<char, 4096> piece;
  while (const size_t bytes = std::fread(piece.data(), 1, piece.size(), pipe))
    output.append(piece.data(), bytes);
  pclose(pipe);
  return output;
}

/// The file that starting `word` would run; nothing where there is none.
std::optional<fs::path> program_of(const std::string& word) {
  const auto can_run = [](const fs::path& path) {
    return fs::is_regular_file(path) && access(path.c_str(), X_OK) == 0;
  };
  if (word.find('/') != word.npos)
    return can_run(word) ? std::optional<fs::path>(word) : std::nullopt;
  const char* const folders = getenv("PATH");
  for (const std::string_view folder : split(folders == nullptr ? "" : folders, ':'))
    if (can_run(fs::path(folder) / word)) return fs::path(folder) / word;
  return {};
}

/// The words behind "#!", of a script.
std::vector<std::string> interpreter_of(const fs::path& program) {
  std::ifstream file(program);
  std::array<char, 2> begin{};
  std::string line, word;
  if (!file.read(begin.data(), 2) || begin != std::array{'#', '!'}) return {};
  std::getline(file, line);
  std::istringstream stream(line);
  std::vector<std::string> words;
  while (stream >> word) words.push_back(word);
  return words;
}

constexpr size_t kOpenMpi5 = 3;  // in mpi_kinds

/// The file of this library.
std::string path_among(const std::string& libraries, const std::string& soname) {
  std::istringstream words(libraries);
  for (std::string word; words >> word;)
    if (word.starts_with('/') && word.find(soname) != word.npos) return word;
  return {};
}

/// Of what a program has loaded, as ldd or /proc/self/maps lists it.
std::optional<FoundMpi> mpi_among(const std::string& libraries) {
  constexpr std::array<std::pair<const char*, size_t>, 4> kSonames{
      {{"libmpi_abi.so.1", 2}, {"libmpi.so.40", 0}, {"libmpi.so.12", 1}, {"libmpich.so.12", 1}}};
  for (const auto& [soname, number] : kSonames) {
    if (libraries.find(soname) == libraries.npos) continue;
    const std::string path = path_among(libraries, soname);
    // 4 and 5 have one name.
    const bool is_open_mpi_5 = number == 0 && has_call(read_library(path), "Allreduce_init");
    return FoundMpi{mpi_kinds()[is_open_mpi_5 ? kOpenMpi5 : number], {}, path};
  }
  return {};
}

std::optional<FoundMpi> mpi_of_program(const fs::path& program) {
  std::vector<std::string> python = interpreter_of(program);
  if (python.empty()) python = {program.string()};
  if (fs::path(python.back()).filename().string().starts_with("python")) {
    python.insert(python.end(), {"-c", kAskPython});
    return mpi_among(output_of(python));
  }
  return mpi_among(output_of({"ldd", program.string()}));
}

std::optional<MpiKind> mpi_of_launcher(const fs::path& launcher) {
  const std::string version = output_of({launcher.string(), "--version"});
  const auto names = [&](const char* name) { return version.find(name) != version.npos; };
  if (names("(Open MPI) 5") || names("PRRTE")) return mpi_kinds()[kOpenMpi5];
  if (names("Open MPI") || names("OpenRTE")) return mpi_kinds()[0];
  if (names("HYDRA") || names("Intel(R) MPI") || names("MPICH")) return mpi_kinds()[1];
  return {};
}

}  // namespace

const std::vector<MpiKind>& mpi_kinds() {
  static const std::vector<MpiKind> kinds{{"openmpi", "Open MPI"},
                                          {"mpich", "MPICH's ABI"},
                                          {"mpi_abi", "the standard ABI of MPI 5"},
                                          {"openmpi5", "Open MPI 5"}};
  return kinds;
}

std::string read_library(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(bytes).str();
}

bool has_call(const std::string& bytes, const std::string& name) {
  const std::string_view none("\0", 1);  // between the names of symbols
  return bytes.find(fmt::format("{}PMPI_{}{}", none, name, none)) != bytes.npos;
}

std::optional<FoundMpi> find_mpi(const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (const auto program = program_of(word))
      if (auto found = mpi_of_program(*program)) {
        found->because = word;
        return found;
      }
  if (const auto launcher = program_of(words.front()))
    if (const auto kind = mpi_of_launcher(*launcher)) return FoundMpi{*kind, words.front(), {}};
  return {};
}

}  // namespace ropewalk::tools
