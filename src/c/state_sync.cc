// State for those who lack it.
#include <vector>

#include "c/handles.h"

namespace ropewalk::c {

ROPEWALK_C_HANDLE(rw_state_sync, StateSync)

namespace {

std::vector<NamedBuffer> buffers_of(const rw_named_buffer* buffers, size_t count) {
  require_array(buffers, count, "buffers");
  std::vector<NamedBuffer> named;
  for (const auto& [name, data, bytes] : std::span(buffers, count)) {
    require_array(data, bytes, "a buffer's data");
    named.emplace_back(&required(name, "a buffer's name"),
                       std::span(static_cast<std::byte*>(data), bytes));
  }
  return named;
}

StateSource source_of(rw_state_source source, int rank) {
  StateSource made;
  made.kind = enumerator<StateSource::Kind>(source, RW_OF_RANK + 1, "rw_state_source");
  if (made.kind == StateSource::Kind::rank) made.of_rank = rank;
  return made;
}

/// Of this thread, until its next.
struct ToldReport {
  StateReport report;
  std::vector<const char*> changed;
};
thread_local ToldReport told_report;

void fill(Filled<rw_state_report>& filled, const StateReport& report) {
  told_report = {report, {}};
  const StateReport& kept = told_report.report;
  for (const std::string& name : kept.changed) told_report.changed.push_back(name.c_str());
  filled.fill({sizeof(rw_state_report), kept.revision, kept.hash.c_str(), kept.sources.data(),
               kept.sources.size(), told_report.changed.data(), told_report.changed.size(),
               kept.bytes_received, kept.bytes_sent});
}

}  // namespace
}  // namespace ropewalk::c

using namespace ropewalk;
using namespace ropewalk::c;

extern "C" {

rw_status rw_sync_state(rw_comm comm, const rw_named_buffer* buffers, size_t count,
                        uint64_t revision, rw_state_source source, int rank, int64_t timeout_ns,
                        rw_state_report* report) {
  return guarded(__func__, [&] {
    Filled filled(report);
    fill(filled,
         communicator_of(comm)->sync_state(buffers_of(buffers, count), revision,
                                           source_of(source, rank), timeout_of(timeout_ns)));
  });
}
rw_status rw_state_sync_start(rw_comm comm, const rw_named_buffer* buffers, size_t count,
                              uint64_t revision, rw_state_source source, int rank,
                              rw_state_sync* sync) {
  return guarded(__func__, [&] {
    NewHandle made(sync);
    made.make(communicator_of(comm)->start_sync_state(buffers_of(buffers, count), revision,
                                                      source_of(source, rank)));
  });
}
rw_status rw_state_sync_test(rw_state_sync sync, bool* done) {
  return guarded(__func__, [&] { required(done, "done") = look_up(sync)->done(); });
}
rw_status rw_state_sync_wait(rw_state_sync sync, int64_t timeout_ns, rw_state_report* report) {
  return guarded(__func__, [&] {
    Filled filled(report);
    fill(filled, look_up(sync)->wait(timeout_of(timeout_ns)));
  });
}
rw_status rw_state_sync_free(rw_state_sync sync) {
  return release(__func__, sync);
}

}  // extern "C"
