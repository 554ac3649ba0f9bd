#include "tools/mpi/explain_mpi.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "integrations/mpi/reasons.h"
#include "ropewalk/status.h"

namespace ropewalk::tools {
namespace {

#define ROPEWALK_TEXT(name, text) text,
constexpr const char* kReasons[] = {ROPEWALK_MPI_REASONS(ROPEWALK_TEXT)};
#undef ROPEWALK_TEXT
enum Reason {
#define ROPEWALK_ENUMERATOR(name, text) reason_##name,
  ROPEWALK_MPI_REASONS(ROPEWALK_ENUMERATOR)
#undef ROPEWALK_ENUMERATOR
};

struct Explanation {
  std::string library;  // its bytes; empty: not known
  std::string text;
};

void tell(void* context, const char* name, bool is_taken) {
  auto& [library, text] = *static_cast<Explanation*>(context);
  constexpr size_t kPrefix = 4;  // "MPI_"
  const bool is_there = library.empty() || has_call(library, name + kPrefix);
  text += fmt::format("  {:<32} ", name);
  if (!is_there)
    text += "not there: this MPI has no such call\n";
  else if (is_taken)
    text += "taken\n";
  else
    text += fmt::format("left to the MPI: {}\n", kReasons[reason_never]);
}

}  // namespace

std::string explain_mpi(const FoundMpi& mpi, const std::string& front) {
  void* const library = dlopen(front.c_str(), RTLD_LAZY | RTLD_LOCAL);
  const auto explain = library == nullptr
                           ? nullptr
                           : reinterpret_cast<mpi::Explain>(dlsym(library, ROPEWALK_MPI_EXPLAIN));
  if (explain == nullptr)
    throw Error(ErrorCode::unavailable, "mpi", dlerror(), "install Ropewalk anew");
  Explanation told{mpi.library.empty() ? "" : read_library(mpi.library), mpi.kind.text};
  if (!mpi.because.empty()) told.text += fmt::format(", by {}", mpi.because);
  if (!mpi.library.empty()) told.text += fmt::format(", which loads {}", mpi.library);
  told.text += ":\n";
  explain(tell, &told);
  told.text += "All ranks leave these to the MPI, too, of what is taken:\n";
  for (size_t i = 1; i < std::size(kReasons); ++i)
    if (i != reason_never) told.text += fmt::format("  {}\n", kReasons[i]);
  return told.text;
}

}  // namespace ropewalk::tools
