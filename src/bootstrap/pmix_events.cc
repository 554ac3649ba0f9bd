#include "bootstrap/pmix_events.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/log.h"

namespace ropewalk::bootstrap::pmix {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kAnswerMax(1);
/// So long after it was asked to register, an event may be one that the server has kept.
constexpr std::chrono::seconds kRegisteringMax(1);
constexpr Status kNoActionTaken = -331;  // other handlers get the event, too: MPI's
/// Ends of processes: aborted (of PMIx 3), by PMIx_Abort, without PMIx_Finalize, any, by command,
/// not started, by a signal, by a sensor, with an exit code.
constexpr std::array<Status, 9> kEnds = {-7, -8, -200, -201, -400, -401, -402, -403, -404};
constexpr const char *kAffectedProc = "pmix.evproc", *kAffectedProcs = "pmix.evaffected",
                     *kExitCode = "pmix.exit.code", *kNonDefault = "pmix.evnondef";

struct State {
  EndedRanks ended;
  std::optional<Library> library;  // constant while the handler is registered
  std::atomic<bool> passes_on{true};
  std::atomic<Clock::time_point> passes_on_until{};
};

State& state() {
  static State* const of_process = new State;
  return *of_process;
}

bool has(std::span<const Info> infos, const char* key) {
  return std::ranges::any_of(infos,
                             [key](const Info& info) { return info.key == std::string_view(key); });
}
const Info* find(std::span<const Info> infos, const char* key, uint16_t type) {
  for (const Info& info : infos)
    if (std::string_view(info.key) == key && info.value.type == type) return &info;
  return nullptr;
}

/// To the server of this host, which keeps it for those that register later.
struct PassedOn {
  PassedOn(const Proc& who, const Info* exit_code) : ended(who) {
    Value affected(kTypeProc);
    affected.proc = &ended;
    infos = {Info(kAffectedProc, affected), Info(kNonDefault, flag())};
    if (exit_code != nullptr) infos.push_back(*exit_code);
  }
  PassedOn(const PassedOn&) = delete;
  PassedOn& operator=(const PassedOn&) = delete;

  Proc ended;
  std::vector<Info> infos;

  static void on_end(Status, void* passed_on) { delete static_cast<PassedOn*>(passed_on); }
};

void pass_on(const Library& library, Status status, const Proc& ended, const Info* exit_code) {
  auto owner = std::make_unique<PassedOn>(ended, exit_code);
  const Status begun = library.notify(status, &library.own, kRangeLocal, owner->infos.data(),
                                      owner->infos.size(), PassedOn::on_end, owner.get());
  if (begun == kSuccess) std::ignore = owner.release();
}

void take(Status status, const Proc* source, std::span<const Info> infos) {
  State& all = state();
  const Library& library = *all.library;
  const Info* const affected = find(infos, kAffectedProc, kTypeProc);
  const Proc* const ended = affected != nullptr ? affected->value.proc : source;
  const auto is_rank = [&](const Proc* proc) {
    return proc != nullptr && proc->rank <= INT32_MAX &&
           std::strncmp(proc->name_space, library.own.name_space, sizeof proc->name_space) == 0;
  };
  // Of several, a rank may tell that has not ended itself.
  if (affected == nullptr && has(infos, kAffectedProcs)) return;
  if (!is_rank(ended) || ended->rank == library.own.rank) return;
  const Info* const exit_code = find(infos, kExitCode, kTypeInt);
  std::string how = library.error_string(status);
  if (exit_code != nullptr) how += fmt::format(", exit code {}", exit_code->value.integer);
  const bool is_passed_on =
      is_rank(source) && source->rank != ended->rank && source->rank != library.own.rank;
  const bool may_be_kept = Clock::now() < all.passes_on_until.load();
  if (!is_passed_on && may_be_kept && all.passes_on.exchange(false))
    pass_on(library, status, *ended, exit_code);
  all.ended.note({static_cast<int>(ended->rank), std::move(how)});
}

/// The callers are functions in C, and wait to be answered.
void handle(size_t, Status status, const Proc* source, Info* infos, size_t count, Info*, size_t,
            OnHandled on_handled, void* event) {
  try {
    take(status, source, {infos, count});
  } catch (const std::exception& error) {
    log(LogLevel::warn, static_cast<int>(state().library->own.rank),
        "an event of PMIx's is lost: {}", error.what());
  }
  if (on_handled != nullptr) on_handled(kNoActionTaken, nullptr, 0, nullptr, nullptr, event);
}

/// The library may call functions here after all others have closed what they are in.
void stay_loaded() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&handle), &info) != 0 && info.dli_fname != nullptr)
    std::ignore = ::dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

void log_refused(const Library& library, const char* why) {
  log(LogLevel::info, static_cast<int>(library.own.rank),
      "PMIx will not tell of ranks that end: {}", why);
}

}  // namespace

EndEvents::EndEvents(const Library& library) {
  if (!library.has_events()) {
    log_refused(library, library.version());
    return;
  }
  stay_loaded();
  state().library = library;
  state().passes_on_until = Clock::now() + kRegisteringMax;
  registration_ = std::make_shared<PendingCall>();
  const Status begun = PendingCall::begin(registration_, [&](void* owner) {
    return library.register_handler(kEnds.data(), kEnds.size(), nullptr, 0, handle,
                                    PendingCall::on_registered, owner);
  });
  if (begun == kSuccess) return;
  registration_.reset();
  log_refused(library, library.error_string(begun));
}

void EndEvents::close() {
  if (!registration_ || !registration_->wait(kAnswerMax)) return;
  if (*registration_->status != kSuccess) return;
  const auto call = std::make_shared<PendingCall>();
  const Status begun = PendingCall::begin(call, [&](void* owner) {
    return state().library->deregister_handler(registration_->handler, PendingCall::on_end, owner);
  });
  if (begun == kSuccess) call->wait(kAnswerMax);
  registration_.reset();
}

EndedRanks& EndEvents::ended_ranks() {
  return state().ended;
}

void EndEvents::note_met() {
  state().passes_on = false;
  if (!registration_) return;
  const std::lock_guard lock(registration_->mutex);
  if (registration_->status.value_or(kSuccess) != kSuccess)
    log_refused(*state().library, state().library->error_string(*registration_->status));
}

}  // namespace ropewalk::bootstrap::pmix
