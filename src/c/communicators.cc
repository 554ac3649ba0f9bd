// How communicators are joined, divided, left, broken and followed by others.
#include <fmt/format.h>

#include <ranges>
#include <vector>

#include "c/handles.h"

namespace ropewalk::c {
namespace {

Options options_of(const rw_options* given) {
  const auto options = take_optional(given);
  Options made;
  if (options.ranks != 0) {
    made.rank = options.rank;
    made.size = options.ranks;
  }
  made.coordinator = text_of(options.coordinator);
  if (options.coordinator_fd != 0) made.coordinator_fd = options.coordinator_fd;
  made.key = text_of(options.key);
  made.transport = text_of(options.transport);
  made.secure = switch_of(options.secure);
  made.timeout = timeout_of(options.timeout_ns);
  made.join_timeout = timeout_of(options.join_timeout_ns);
  made.progress_thread = switch_of(options.progress_thread);
  if (switch_of(options.bind_progress).value_or(false)) made.progress_cpu = options.progress_cpu;
  made.elastic = switch_of(options.elastic);
  made.join_running = switch_of(options.join_running);
  made.tie_breaker = switch_of(options.tie_breaker);
  if (options.quorum_min != 0) made.quorum_min = options.quorum_min;
  made.admission_timeout = timeout_of(options.admission_timeout_ns);
  if (options.stop != nullptr) made.stop = look_up(options.stop)->get_token();
  return made;
}

/// What `get(communicator)` gives.
template <class T, class Get>
rw_status tell(const char* operation, rw_comm comm, T* out, const Get& get) {
  return guarded(operation, [&] { required(out, "the result") = get(*communicator_of(comm)); });
}

/// The communicator that `make(communicator)` gives, if any.
template <class Make>
rw_status derive(const char* operation, rw_comm comm, rw_comm* out, const Make& make) {
  return guarded(operation, [&] {
    NewHandle made(out);
    if (auto derived = make(*communicator_of(comm))) made.make(std::move(derived));
  });
}

std::vector<std::string> exchange_texts(rw_exchange exchange, void* context, const std::string& own,
                                        size_t count) {
  std::vector<const char*> texts(count);
  if (const rw_status status = exchange(context, own.c_str(), texts.data()); status != RW_OK)
    throw Error(ErrorCode::aborted, "",
                fmt::format("the exchange of texts failed: {}", rw_status_name(status)));
  std::vector<std::string> all;
  for (const char* text : texts) all.emplace_back(&required(text, "a text of the exchange"));
  return all;
}

thread_local Failure told_failure;  // by rw_comm_failure

}  // namespace
}  // namespace ropewalk::c

using namespace ropewalk;
using namespace ropewalk::c;

extern "C" {

rw_status rw_comm_create(const rw_options* options, rw_comm* comm) {
  return guarded(__func__, [&] {
    NewHandle made(comm);
    made.make(Communicator::create(options_of(options)));
  });
}
rw_status rw_comm_free(rw_comm comm) {
  return release(__func__, comm, [](HeldCommunicator& held) { held.comm->leave(); });
}
rw_status rw_comm_leave(rw_comm comm) {
  return guarded(__func__, [&] { communicator_of(comm)->leave(); });
}

rw_status rw_stop_create(rw_stop* stop) {
  return guarded(__func__, [&] { NewHandle(stop).make(); });
}
rw_status rw_stop_request(rw_stop stop) {
  return guarded(__func__, [&] { look_up(stop)->request_stop(); });
}
rw_status rw_stop_free(rw_stop stop) {
  return release(__func__, stop);
}

rw_status rw_comm_rank(rw_comm comm, int* rank) {
  return tell(__func__, comm, rank, [](auto& of) { return of.rank(); });
}
rw_status rw_comm_size(rw_comm comm, int* size) {
  return tell(__func__, comm, size, [](auto& of) { return of.size(); });
}
rw_status rw_comm_local_rank(rw_comm comm, int* rank) {
  return tell(__func__, comm, rank, [](auto& of) { return of.local_rank(); });
}
rw_status rw_comm_local_size(rw_comm comm, int* size) {
  return tell(__func__, comm, size, [](auto& of) { return of.local_size(); });
}
rw_status rw_comm_transport(rw_comm comm, const char** name) {
  return guarded(__func__, [&] { required(name, "name") = look_up(comm)->transport.c_str(); });
}

rw_status rw_rendezvous_create(const rw_options* common, bool this_host_only,
                               rw_rendezvous* rendezvous) {
  return guarded(__func__, [&] {
    NewHandle made(rendezvous);
    made.make(options_of(common), this_host_only);
  });
}
rw_status rw_rendezvous_unique_id(rw_rendezvous rendezvous, const char** unique_id) {
  return guarded(__func__, [&] {
    required(unique_id, "unique_id") = look_up(rendezvous)->unique_id().c_str();
  });
}
rw_status rw_rendezvous_join(rw_rendezvous rendezvous, int ranks, const rw_options* common,
                             rw_comm* comm) {
  return guarded(__func__, [&] {
    NewHandle made(comm);
    const auto here = look_up(rendezvous);
    made.make(Communicator::create(here->options(0, ranks, options_of(common))));
  });
}
rw_status rw_rendezvous_free(rw_rendezvous rendezvous) {
  return release(__func__, rendezvous);
}
rw_status rw_join(const char* unique_id, int rank, int ranks, const rw_options* common,
                  rw_comm* comm) {
  return guarded(__func__, [&] {
    NewHandle made(comm);
    made.make(Communicator::create(
        Rendezvous::options(&required(unique_id, "unique_id"), rank, ranks, options_of(common))));
  });
}

rw_status rw_comm_next_sender(rw_comm comm, int64_t limit_ns, int channel, int* sender) {
  return tell(__func__, comm, sender,
              [&](auto& of) { return of.next_sender(limit_of(limit_ns), channel).value_or(-1); });
}
rw_status rw_comm_interrupt_next_sender(rw_comm comm, int channel) {
  return guarded(__func__, [&] { communicator_of(comm)->interrupt_next_sender(channel); });
}

rw_status rw_comm_split(rw_comm comm, int color, int key, rw_comm* part) {
  return derive(__func__, comm, part, [&](auto& whole) { return whole.split(color, key); });
}
rw_status rw_comm_create_group(rw_comm comm, const int* ranks, size_t count, rw_exchange exchange,
                               void* context, int64_t timeout_ns, rw_comm* group) {
  return derive(__func__, comm, group, [&](auto& whole) {
    require_array(ranks, count, "ranks");
    required(exchange, "exchange");
    const auto pass = [&](const std::string& own) {
      return exchange_texts(exchange, context, own, count);
    };
    return whole.create_group({ranks, ranks + count}, pass, timeout_of(timeout_ns));
  });
}

rw_status rw_comm_abort(rw_comm comm, const char* reason) {
  return guarded(__func__, [&] { communicator_of(comm)->abort(&required(reason, "reason")); });
}
rw_status rw_comm_failure(rw_comm comm, rw_failure* failure) {
  return guarded(__func__, [&] {
    required(failure, "failure");
    Filled filled(failure);
    told_failure = communicator_of(comm)->failure().value_or(Failure());
    filled.fill(view_of(told_failure));
  });
}
rw_status rw_comm_culprit_process(rw_comm comm, int64_t* pid) {
  return tell(__func__, comm, pid, [](auto& of) { return of.culprit_process().value_or(0); });
}
rw_status rw_comm_revoke(rw_comm comm, const char* reason) {
  return guarded(__func__, [&] { communicator_of(comm)->revoke(&required(reason, "reason")); });
}
rw_status rw_comm_shrink(rw_comm comm, int64_t timeout_ns, rw_comm* next) {
  return derive(__func__, comm, next, [&](auto& of) { return of.shrink(timeout_of(timeout_ns)); });
}
rw_status rw_comm_grow(rw_comm comm, int64_t timeout_ns, rw_comm* next) {
  return derive(__func__, comm, next, [&](auto& of) { return of.grow(timeout_of(timeout_ns)); });
}
rw_status rw_comm_depart(rw_comm comm, int64_t timeout_ns) {
  return guarded(__func__, [&] { communicator_of(comm)->depart(timeout_of(timeout_ns)); });
}
rw_status rw_comm_pending(rw_comm comm, int* processes) {
  return tell(__func__, comm, processes, [](auto& of) { return of.pending(); });
}
rw_status rw_comm_agree(rw_comm comm, uint64_t* bits, int* ranks, int* count, int64_t timeout_ns) {
  return guarded(__func__, [&] {
    required(bits, "bits");
    const Agreed agreed = communicator_of(comm)->agree(*bits, timeout_of(timeout_ns));
    *bits = agreed.bits;
    if (ranks != nullptr) std::ranges::copy(agreed.ranks, ranks);
    if (count != nullptr) *count = static_cast<int>(agreed.ranks.size());
  });
}
rw_status rw_comm_epoch(rw_comm comm, rw_epoch* epoch) {
  return guarded(__func__, [&] {
    required(epoch, "epoch");
    Filled filled(epoch);
    const Epoch& known = communicator_of(comm)->epoch();
    filled.fill({sizeof(rw_epoch), known.number, static_cast<int>(known.former_ranks.size()),
                 known.former_ranks.data(), known.departures.size(), known.reason.c_str(),
                 known.change_time.count(), known.keeps_connections});
  });
}
rw_status rw_comm_departure(rw_comm comm, size_t index, rw_departure* departure) {
  return guarded(__func__, [&] {
    required(departure, "departure");
    Filled filled(departure);
    const auto communicator = communicator_of(comm);
    const auto& known = communicator->epoch().departures;
    if (index >= known.size())
      reject(fmt::format("there is no departure {} of {}", index, known.size()));
    const Departure& one = known[index];
    filled.fill({sizeof(rw_departure), one.rank, one.has_ended, one.pid, one.host_name.c_str()});
  });
}

}  // extern "C"
