#include "report.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "channel.h"

namespace ropewalk::mpi {
namespace {

constexpr size_t kKinds = static_cast<size_t>(Kind::count);
constexpr size_t kReasons = static_cast<size_t>(Left::count);

std::array<std::atomic<uint64_t>, kKinds * kReasons> counted{};
std::atomic<bool> is_wanted{false};

#define ROPEWALK_NAME(name, parameters, arguments, ...) "MPI_" #name,
constexpr const char* kNames[] = {ROPEWALK_MPI_COLLECTIVES(ROPEWALK_NAME)
                                      ROPEWALK_MPI_LEFT(ROPEWALK_NAME)};
#undef ROPEWALK_NAME
#define ROPEWALK_TEXT(name, text) text,
constexpr const char* kTexts[] = {ROPEWALK_MPI_REASONS(ROPEWALK_TEXT)};
#undef ROPEWALK_TEXT

#define ROPEWALK_LEAVE(name, parameters, arguments, ...) \
  int count_##name parameters {                          \
    count_call(Kind::name, Left::never);                 \
    return pmpi.name arguments;                          \
  }
ROPEWALK_MPI_LEFT(ROPEWALK_LEAVE)
#undef ROPEWALK_LEAVE

}  // namespace

// Not by fmt, which throws where nothing can be written.
void print_failure(int ranks, const char* what) noexcept {
  std::fprintf(stderr, "ropewalk: MPI communicator of %d ranks: %s\n", ranks, what);
}

// Headers of Open MPI before 5 do not name the class; programs that were built with them run
// with 5. MPIs that know it have calls to go on without the process.
int error_class_of(const Error& error) {
#ifdef MPIX_ERR_PROC_FAILED
  constexpr int kProcessFailed = MPIX_ERR_PROC_FAILED;
#elif defined(OPEN_MPI)
  constexpr int kProcessFailed = 75;
#else
  constexpr int kProcessFailed = MPI_ERR_OTHER;
#endif
  static const bool is_known = find_variable("MPIX_Comm_revoke") != nullptr;
  if (is_known && error.code() == ErrorCode::peer_lost) return kProcessFailed;
  if (error.code() == ErrorCode::invalid_argument) return MPI_ERR_BUFFER;  // they overlap
  // Nearly always of lengths, and MPI has no class for what else may differ.
  return error.code() == ErrorCode::mismatch ? MPI_ERR_TRUNCATE : MPI_ERR_OTHER;
}

void count_call(Kind kind, Left left) {
  if (!wants_report()) return;
  counted[static_cast<size_t>(kind) * kReasons + static_cast<size_t>(left)].fetch_add(
      1, std::memory_order_relaxed);
}

void count_left(Table& table) {
#define ROPEWALK_LEAVE(name, parameters, arguments, ...) table.name = count_##name;
  ROPEWALK_MPI_LEFT(ROPEWALK_LEAVE)
#undef ROPEWALK_LEAVE
}

void agree_on_report() {
  const char* const wish = getenv("ROPEWALK_MPI_REPORT");
  int wants = wish != nullptr && std::string_view(wish) == "1" ? 1 : 0, any = 0;
  pmpi.Allreduce(&wants, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  is_wanted = any != 0;
}

bool wants_report() {
  return is_wanted.load(std::memory_order_relaxed);
}

void print_report(Communicator& job) {
  std::array<uint64_t, kKinds * kReasons> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = counted[i];
  try {
    job.run_beside(Call::all_reduce(all), progress_mpi);
  } catch (const Error&) {
    return;  // said already
  }
  if (job.rank() != 0) return;
  std::string text = fmt::format("ropewalk: collectives of {} ranks ({}), calls of all ranks:\n",
                                 job.size(), job.transport());
  for (size_t kind = 0; kind < kKinds; ++kind)
    for (size_t reason = 0; reason < kReasons; ++reason)
      if (const uint64_t calls = all[kind * kReasons + reason])
        text += fmt::format("  {:<32} {:>9} {}{}\n", kNames[kind], calls,
                            reason == 0 ? "" : "left to the MPI: ", kTexts[reason]);
  std::fputs(text.c_str(), stderr);
}

}  // namespace ropewalk::mpi
