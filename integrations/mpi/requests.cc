#include "requests.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <map>
#include <mutex>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "report.h"

namespace ropewalk::mpi {
namespace {

/// Between two looks at what the MPI has to move, while a thread waits for one of these.
constexpr std::chrono::microseconds kPause{100};
constexpr int kLooks = 20;  // before the first pause

/// A nonblocking one is owned by the MPI's request from its start on: `free_operation`. A
/// persistent one until the program frees it.
struct Operation {
  std::unique_ptr<Prepared> prepared;
  Work work;
  int ranks = 0;
  int status = MPI_SUCCESS;
  bool is_under_way = false;
  bool is_freed = false;  // by the program, while it was under way
  bool is_persistent = false;
  Channel* channel = nullptr;  // of a persistent one
  size_t communicator = 0;     // its number there
};

struct Operations {
  std::mutex mutex;
  std::map<MPI_Request, Operation*> all;  // nonblocking ones until the MPI knows of their end
};
Operations& operations = *new Operations;  // lives for ever: a program may exit without the end
std::atomic<int> count_known{0}, count_freed{0};
thread_local int persistent_status = MPI_SUCCESS;  // of one that has failed in this call

// ---- What the MPI calls ----

int query_operation(void* operation, MPI_Status* status) {
  pmpi.Status_set_elements(status, MPI_BYTE, 0);
  pmpi.Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return static_cast<Operation*>(operation)->status;
}

int free_operation(void* operation) {
  delete static_cast<Operation*>(operation);
  return MPI_SUCCESS;
}

/// MPI allows it of no collective.
int cancel_operation(void*, int) {
  return MPI_SUCCESS;
}

// ---- Those that are known ----

/// Null where it is the MPI's own, or a nonblocking one that has ended.
Operation* find(MPI_Request request) {
  if (count_known.load(std::memory_order_relaxed) == 0) return nullptr;
  std::lock_guard lock(operations.mutex);
  const auto found = operations.all.find(request);
  return found == operations.all.end() ? nullptr : found->second;
}

void add(MPI_Request request, std::unique_ptr<Operation> operation) {
  std::lock_guard lock(operations.mutex);
  assert(!operations.all.contains(request));
  operations.all.emplace(request, operation.release());
  ++count_known;
}

void remove(MPI_Request request) {
  std::lock_guard lock(operations.mutex);
  operations.all.erase(request);
  --count_known;
}

void free_persistent(MPI_Request request, Operation* operation) {
  remove(request);
  Channel* const channel = operation->channel;
  if (channel != nullptr && channel->release_persistent(operation->communicator))
    free_channel(channel);
  delete operation;
  pmpi.Request_free(&request);
}

/// That it has ended. It may be gone then.
void tell_mpi(MPI_Request request, Operation& operation) {
  operation.is_under_way = false;
  const bool is_freed = operation.is_freed;
  if (is_freed) --count_freed;
  if (operation.is_persistent) {
    if (is_freed) return free_persistent(request, &operation);
    persistent_status = operation.status;
    pmpi.Start(&request);
    pmpi.Recv(nullptr, 0, MPI_BYTE, 0, 0, own_self(), MPI_STATUS_IGNORE);
    return;
  }
  remove(request);
  pmpi.Grequest_complete(request);
  if (is_freed) pmpi.Request_free(&request);
}

/// False: it goes on, after `pause` at most. Else the MPI has been told of its end.
bool has_ended(MPI_Request request, std::chrono::nanoseconds pause) {
  Operation* const operation = find(request);
  if (operation == nullptr || !operation->is_under_way) return true;
  try {
    Work& work = operation->work;
    if (!(pause.count() > 0 ? work.wait_for(pause) : work.test())) return false;
    operation->prepared->finish();
    operation->status = MPI_SUCCESS;
  } catch (const Error& caught) {
    const Error& error = operation->prepared->told_of(caught);
    print_failure(operation->ranks, error.what());
    operation->status = error_class_of(error);
  }
  if (!operation->is_persistent) operation->prepared.reset();  // not by the MPI: it frees types
  tell_mpi(request, *operation);
  return true;
}

/// A short call ends while it is looked at; a pause gives the CPU away.
void wait_for(MPI_Request request) {
  for (int look = 0; look < kLooks; ++look)
    if (has_ended(request, {})) return;
  while (!has_ended(request, kPause)) progress_mpi();
}

/// What a call gives that has looked at requests: `status`, or that a persistent one has failed.
int result(int status) {
  const int failed = std::exchange(persistent_status, MPI_SUCCESS);
  return failed != MPI_SUCCESS ? failed : status;
}

/// Those that the program has freed: nobody waits for them.
std::vector<MPI_Request> freed_requests() {
  std::vector<MPI_Request> freed;
  if (count_freed.load(std::memory_order_relaxed) == 0) return freed;
  std::lock_guard lock(operations.mutex);
  for (const auto& [request, operation] : operations.all)
    if (operation->is_freed) freed.push_back(request);
  return freed;
}

/// The program's requests as the MPI sees them: without those that are under way here.
class Shown {
 public:
  Shown(int count, MPI_Request* requests) : requests_(requests) {
    if (requests == nullptr || count_known.load(std::memory_order_relaxed) == 0) return;
    for (int i = 0; i < count; ++i) {
      if (has_ended(requests[i], {})) continue;
      if (copy_.empty()) copy_.assign(requests, requests + count);
      copy_[static_cast<size_t>(i)] = MPI_REQUEST_NULL;
      hidden_.push_back(i);
    }
  }
  ~Shown() {
    if (copy_.empty()) return;
    for (const int i : hidden_) copy_[static_cast<size_t>(i)] = requests_[i];
    std::copy(copy_.begin(), copy_.end(), requests_);
  }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

  bool hides_any() const { return !hidden_.empty(); }
  MPI_Request* data() { return copy_.empty() ? requests_ : copy_.data(); }
  /// Of these one has perhaps ended, soon.
  void pause() const { has_ended(requests_[hidden_.front()], kPause); }

 private:
  MPI_Request* const requests_;
  std::vector<MPI_Request> copy_;
  std::vector<int> hidden_;
};

// ---- What the program calls ----

int start_persistent(Operation& operation) {
  if (operation.channel == nullptr) {
    print_failure(operation.ranks, "a persistent collective was started after MPI_Finalize");
    return MPI_ERR_REQUEST;
  }
  try {
    operation.prepared->read_again();
    operation.work = operation.channel->start(*operation.prepared, operation.communicator);
    operation.is_under_way = true;
    return MPI_SUCCESS;
  } catch (const Error& error) {
    print_failure(operation.ranks, error.what());
    return error_class_of(error);
  } catch (const std::exception& error) {
    print_failure(operation.ranks, error.what());
    return MPI_ERR_OTHER;
  }
}

int take_Start(MPI_Request* request) {
  Operation* const operation = request == nullptr ? nullptr : find(*request);
  if (operation == nullptr || !operation->is_persistent || operation->is_under_way)
    return pmpi.Start(request);
  return start_persistent(*operation);
}

int take_Startall(int count, MPI_Request* requests) {
  if (count_known.load(std::memory_order_relaxed) == 0 || requests == nullptr)
    return pmpi.Startall(count, requests);
  for (int i = 0; i < count; ++i)
    if (const int status = take_Start(requests + i); status != MPI_SUCCESS) return status;
  return MPI_SUCCESS;
}

int take_Wait(MPI_Request* request, MPI_Status* status) {
  if (request != nullptr) wait_for(*request);
  return result(pmpi.Wait(request, status));
}

int take_Test(MPI_Request* request, int* ended, MPI_Status* status) {
  if (request == nullptr || has_ended(*request, {}))
    return result(pmpi.Test(request, ended, status));
  *ended = 0;
  progress_mpi();
  return MPI_SUCCESS;
}

int take_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  for (int i = 0; requests != nullptr && i < count; ++i) wait_for(requests[i]);
  return result(pmpi.Waitall(count, requests, statuses));
}

int take_Testall(int count, MPI_Request* requests, int* ended, MPI_Status* statuses) {
  if (const Shown shown(count, requests); shown.hides_any()) {
    *ended = 0;
    progress_mpi();
    return result(MPI_SUCCESS);
  }
  return result(pmpi.Testall(count, requests, ended, statuses));
}

int take_Testany(int count, MPI_Request* requests, int* index, int* ended, MPI_Status* status) {
  Shown shown(count, requests);
  const int error = pmpi.Testany(count, shown.data(), index, ended, status);
  if (shown.hides_any() && *index == MPI_UNDEFINED) *ended = 0;
  return result(error);
}

int take_Waitany(int count, MPI_Request* requests, int* index, MPI_Status* status) {
  for (;;) {
    Shown shown(count, requests);
    if (!shown.hides_any()) return result(pmpi.Waitany(count, requests, index, status));
    int ended = 0;
    const int error = result(pmpi.Testany(count, shown.data(), index, &ended, status));
    if (error != MPI_SUCCESS || (ended != 0 && *index != MPI_UNDEFINED)) return error;
    shown.pause();
  }
}

int take_Testsome(int count, MPI_Request* requests, int* ended, int* indices,
                  MPI_Status* statuses) {
  Shown shown(count, requests);
  const int error = pmpi.Testsome(count, shown.data(), ended, indices, statuses);
  if (shown.hides_any() && *ended == MPI_UNDEFINED) *ended = 0;
  return result(error);
}

int take_Waitsome(int count, MPI_Request* requests, int* ended, int* indices,
                  MPI_Status* statuses) {
  for (;;) {
    Shown shown(count, requests);
    if (!shown.hides_any()) return result(pmpi.Waitsome(count, requests, ended, indices, statuses));
    const int error = result(pmpi.Testsome(count, shown.data(), ended, indices, statuses));
    if (error != MPI_SUCCESS || (*ended != 0 && *ended != MPI_UNDEFINED)) return error;
    shown.pause();
  }
}

int take_Request_get_status(MPI_Request request, int* ended, MPI_Status* status) {
  if (has_ended(request, {})) return result(pmpi.Request_get_status(request, ended, status));
  *ended = 0;
  progress_mpi();
  return MPI_SUCCESS;
}

int take_Request_free(MPI_Request* request) {
  const bool is_idle = request == nullptr || has_ended(*request, {});
  Operation* const operation = request == nullptr ? nullptr : find(*request);
  if (operation == nullptr) return pmpi.Request_free(request);
  if (is_idle) {
    free_persistent(*request, operation);
  } else {
    operation->is_freed = true;  // MPICH would free what it has not been told the end of
    ++count_freed;
  }
  *request = MPI_REQUEST_NULL;
  return result(MPI_SUCCESS);
}

}  // namespace

void start_request(Channel& channel, std::unique_ptr<Prepared> prepared, MPI_Request* request) {
  for (const MPI_Request freed : freed_requests()) has_ended(freed, {});
  auto operation = std::make_unique<Operation>();
  operation->prepared = std::move(prepared);
  operation->prepared->keep_types();
  operation->ranks = channel.size();
  operation->work = channel.start(*operation->prepared);
  operation->is_under_way = true;
  if (pmpi.Grequest_start(query_operation, free_operation, cancel_operation, operation.get(),
                          request) != MPI_SUCCESS)
    throw std::bad_alloc();
  add(*request, std::move(operation));
}

void make_persistent_request(Channel& channel, std::unique_ptr<Prepared> prepared,
                             MPI_Request* request) {
  auto operation = std::make_unique<Operation>();
  operation->is_persistent = true;
  operation->prepared = std::move(prepared);
  operation->prepared->keep_types();
  operation->channel = &channel;
  operation->communicator = channel.acquire_persistent();
  operation->ranks = channel.size();
  if (pmpi.Send_init(nullptr, 0, MPI_BYTE, 0, 0, own_self(), request) != MPI_SUCCESS)
    throw std::bad_alloc();
  add(*request, std::move(operation));
}

void forget_channel(const Channel& channel) {
  std::lock_guard lock(operations.mutex);
  for (const auto& [request, operation] : operations.all)
    if (operation->channel == &channel) operation->channel = nullptr;
}

void wait_for_freed_requests() {
  for (const MPI_Request freed : freed_requests()) wait_for(freed);
}

void take_requests(Table& table) {
#define ROPEWALK_TAKE(name, parameters, arguments, ...) table.name = take_##name;
  ROPEWALK_MPI_REQUESTS(ROPEWALK_TAKE)
#undef ROPEWALK_TAKE
}

}  // namespace ropewalk::mpi
