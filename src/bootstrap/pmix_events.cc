#include "bootstrap/pmix_events.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/log.h"

namespace ropewalk::bootstrap::pmix {
namespace {

constexpr std::chrono::seconds kAnswerMax(1);
constexpr Status kNoActionTaken = -331;  // other handlers get the event, too: MPI's
/// Ends of processes: aborted (of PMIx 3), by PMIx_Abort, without PMIx_Finalize, any, by command,
/// not started, by a signal, by a sensor, with an exit code.
constexpr std::array<Status, 9> kEnds = {-7, -8, -200, -201, -400, -401, -402, -403, -404};
constexpr const char *kAffectedProc = "pmix.evproc", *kExitCode = "pmix.exit.code",
                     *kNonDefault = "pmix.evnondef";

struct State {
  EndedRanks ended;
  std::optional<Library> library;  // constant while the handler is registered
  std::atomic<bool> passes_on{true};
};

State& state() {
  static State* const of_process = new State;
  return *of_process;
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
  if (!is_rank(ended) || ended->rank == library.own.rank) return;
  const Info* const exit_code = find(infos, kExitCode, kTypeInt);
  std::string how = library.error_string(status);
  if (exit_code != nullptr) how += fmt::format(", exit code {}", exit_code->value.integer);
  const bool is_passed_on =
      is_rank(source) && source->rank != ended->rank && source->rank != library.own.rank;
  if (!is_passed_on && all.passes_on.exchange(false)) pass_on(library, status, *ended, exit_code);
  all.ended.note({static_cast<int>(ended->rank), std::move(how)});
}

void handle(size_t, Status status, const Proc* source, Info* infos, size_t count, Info*, size_t,
            OnHandled on_handled, void* event) {
  take(status, source, {infos, count});
  if (on_handled != nullptr) on_handled(kNoActionTaken, nullptr, 0, nullptr, nullptr, event);
}

}  // namespace

EndEvents::EndEvents(const Library& library) {
  state().library = library;
  const auto call = std::make_shared<PendingCall>();
  const Status begun = PendingCall::begin(call, [&](void* owner) {
    return library.register_handler(kEnds.data(), kEnds.size(), nullptr, 0, handle,
                                    PendingCall::on_registered, owner);
  });
  const bool has_ended = begun == kSuccess && call->wait(kAnswerMax);
  const std::lock_guard lock(call->mutex);
  if (has_ended && *call->status == kSuccess)
    handler_ = call->handler;
  else
    log(LogLevel::info, static_cast<int>(library.own.rank),
        "PMIx will not tell of ranks that end: PMIx_Register_event_handler: {}",
        begun != kSuccess ? library.error_string(begun)
        : has_ended       ? library.error_string(*call->status)
                          : "no answer");
}

void EndEvents::close() {
  if (!handler_) return;
  const auto call = std::make_shared<PendingCall>();
  const Status begun = PendingCall::begin(call, [&](void* owner) {
    return state().library->deregister_handler(*handler_, PendingCall::on_end, owner);
  });
  if (begun == kSuccess) call->wait(kAnswerMax);
  handler_.reset();
}

EndedRanks& EndEvents::ended_ranks() {
  return state().ended;
}

void EndEvents::note_met() {
  state().passes_on = false;
}

}  // namespace ropewalk::bootstrap::pmix
