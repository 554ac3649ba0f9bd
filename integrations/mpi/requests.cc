#include "requests.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <new>
#include <span>
#include <vector>

#include "report.h"

namespace ropewalk::mpi {
namespace {

/// Between two looks at what the MPI has to move, while a thread waits for one of these.
constexpr std::chrono::microseconds kPause{100};

/// Under way. Owned by the request: the MPI frees it by `free_state`.
struct UnderWay {
  std::unique_ptr<Prepared> prepared;
  Work work;
  int ranks = 0;
  int status = MPI_SUCCESS;
  bool is_freed = false;  // by the program
};

struct Requests {
  std::mutex mutex;
  std::map<MPI_Request, UnderWay*> all;  // that the MPI has not been told the end of
};
Requests& requests_under_way = *new Requests;  // lives for ever: a program may exit without the end
std::atomic<int> count_under_way{0};
std::atomic<int> count_freed{0};  // of these

// ---- What the MPI calls ----

int query_state(void* state, MPI_Status* status) {
  pmpi.Status_set_elements(status, MPI_BYTE, 0);
  pmpi.Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return static_cast<UnderWay*>(state)->status;
}

int free_state(void* state) {
  delete static_cast<UnderWay*>(state);
  return MPI_SUCCESS;
}

/// MPI allows it of no collective.
int cancel_state(void*, int) {
  return MPI_SUCCESS;
}

// ---- Those under way ----

/// Null where it is the MPI's own, or has ended.
UnderWay* find(MPI_Request request) {
  if (count_under_way.load(std::memory_order_relaxed) == 0) return nullptr;
  std::lock_guard lock(requests_under_way.mutex);
  const auto found = requests_under_way.all.find(request);
  return found == requests_under_way.all.end() ? nullptr : found->second;
}

void tell_mpi(MPI_Request request) {
  bool is_freed = false;
  {
    std::lock_guard lock(requests_under_way.mutex);
    const auto found = requests_under_way.all.find(request);
    is_freed = found->second->is_freed;
    if (is_freed) --count_freed;
    requests_under_way.all.erase(found);
    --count_under_way;
  }
  pmpi.Grequest_complete(request);
  if (is_freed) pmpi.Request_free(&request);
}

/// False: it goes on, after `pause` at most. Else the MPI has been told of its end.
bool has_ended(MPI_Request request, std::chrono::nanoseconds pause) {
  UnderWay* const state = find(request);
  if (state == nullptr) return true;
  try {
    if (!(pause.count() > 0 ? state->work.wait_for(pause) : state->work.test())) return false;
    state->prepared->finish();
  } catch (const Error& error) {
    print_failure(state->ranks, error.what());
    state->status = MPI_ERR_OTHER;
  }
  tell_mpi(request);
  return true;
}

void wait_for(MPI_Request request) {
  while (!has_ended(request, kPause)) progress_mpi();
}

/// Those that the program has freed: nobody waits for them.
std::vector<MPI_Request> freed_requests() {
  std::vector<MPI_Request> freed;
  if (count_freed.load(std::memory_order_relaxed) == 0) return freed;
  std::lock_guard lock(requests_under_way.mutex);
  for (const auto& [request, state] : requests_under_way.all)
    if (state->is_freed) freed.push_back(request);
  return freed;
}

/// The first that has not ended, in `requests`; null: all of them have.
const MPI_Request* first_under_way(std::span<const MPI_Request> requests) {
  if (count_under_way.load(std::memory_order_relaxed) == 0) return nullptr;
  const MPI_Request* first = nullptr;
  for (const MPI_Request& request : requests)
    if (!has_ended(request, {}) && first == nullptr) first = &request;
  return first;
}

std::span<const MPI_Request> span_of(const MPI_Request* requests, int count) {
  if (requests == nullptr || count <= 0) return {};  // the MPI says what is wrong
  return {requests, static_cast<size_t>(count)};
}

// ---- What the program calls ----

int take_Wait(MPI_Request* request, MPI_Status* status) {
  if (request != nullptr) wait_for(*request);
  return pmpi.Wait(request, status);
}

int take_Test(MPI_Request* request, int* ended, MPI_Status* status) {
  first_under_way(span_of(request, 1));
  return pmpi.Test(request, ended, status);
}

int take_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  for (const MPI_Request& request : span_of(requests, count)) wait_for(request);
  return pmpi.Waitall(count, requests, statuses);
}

int take_Testall(int count, MPI_Request* requests, int* ended, MPI_Status* statuses) {
  first_under_way(span_of(requests, count));
  return pmpi.Testall(count, requests, ended, statuses);
}

int take_Waitany(int count, MPI_Request* requests, int* index, MPI_Status* status) {
  while (const MPI_Request* first = first_under_way(span_of(requests, count))) {
    int ended = 0;
    const int error = pmpi.Testany(count, requests, index, &ended, status);
    if (ended != 0 || error != MPI_SUCCESS) return error;
    has_ended(*first, kPause);
  }
  return pmpi.Waitany(count, requests, index, status);
}

int take_Testany(int count, MPI_Request* requests, int* index, int* ended, MPI_Status* status) {
  first_under_way(span_of(requests, count));
  return pmpi.Testany(count, requests, index, ended, status);
}

int take_Waitsome(int count, MPI_Request* requests, int* ended, int* indices,
                  MPI_Status* statuses) {
  while (const MPI_Request* first = first_under_way(span_of(requests, count))) {
    const int error = pmpi.Testsome(count, requests, ended, indices, statuses);
    if (*ended != 0 || error != MPI_SUCCESS) return error;
    has_ended(*first, kPause);
  }
  return pmpi.Waitsome(count, requests, ended, indices, statuses);
}

int take_Testsome(int count, MPI_Request* requests, int* ended, int* indices,
                  MPI_Status* statuses) {
  first_under_way(span_of(requests, count));
  return pmpi.Testsome(count, requests, ended, indices, statuses);
}

int take_Request_get_status(MPI_Request request, int* ended, MPI_Status* status) {
  has_ended(request, {});
  return pmpi.Request_get_status(request, ended, status);
}

int take_Request_free(MPI_Request* request) {
  if (request == nullptr || has_ended(*request, {})) return pmpi.Request_free(request);
  find(*request)->is_freed = true;  // MPICH would free what it has not been told the end of
  ++count_freed;
  *request = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}

}  // namespace

void start_request(Channel& channel, std::unique_ptr<Prepared> prepared, MPI_Request* request) {
  for (const MPI_Request freed : freed_requests()) has_ended(freed, {});
  auto state = std::make_unique<UnderWay>();
  state->prepared = std::move(prepared);
  state->ranks = channel.size();
  state->work = channel.start(state->prepared->call);
  if (pmpi.Grequest_start(query_state, free_state, cancel_state, state.get(), request) !=
      MPI_SUCCESS)
    throw std::bad_alloc();
  std::lock_guard lock(requests_under_way.mutex);
  requests_under_way.all.emplace(*request, state.release());
  ++count_under_way;
}

void wait_for_freed_requests() {
  for (const MPI_Request freed : freed_requests()) wait_for(freed);
}

void take_completions(Table& table) {
#define ROPEWALK_TAKE(name, parameters, arguments, ...) table.name = take_##name;
  ROPEWALK_MPI_COMPLETIONS(ROPEWALK_TAKE)
#undef ROPEWALK_TAKE
}

}  // namespace ropewalk::mpi
