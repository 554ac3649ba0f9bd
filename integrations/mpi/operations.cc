#include "operations.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <map>
#include <mutex>
#include <utility>

#include "report.h"

namespace ropewalk::mpi {
namespace {

constexpr int kLooks = 20;  // before the first pause

using Phase = Operation::Phase;

struct Operations {
  std::mutex mutex;  // the MPI is not called with it, nor calls back
  std::map<MPI_Request, Operation*> all;
};
Operations& operations = *new Operations;  // lives for ever: a program may exit without the end
std::atomic<int> count_known{0}, count_freed{0}, count_failed{0};

/// With the lock.
void remove(MPI_Request request) {
  operations.all.erase(request);
  --count_known;
}

/// It has no request any more.
void release_persistent(Operation* operation) {
  Channel* const channel = operation->channel;
  if (channel != nullptr && channel->release_persistent(operation->communicator))
    free_channel(channel);
  MPI_Request request = operation->request;
  delete operation;
  pmpi.Request_free(&request);
}

/// Whether it has ended, after `pause` at most: with what class.
bool look(Operation& operation, std::chrono::nanoseconds pause, int& failed) {
  failed = MPI_SUCCESS;
  try {
    Work& work = operation.work;
    if (!(pause.count() > 0 ? work.wait_for(pause) : work.test())) return false;
    operation.prepared->finish();
  } catch (const Error& caught) {
    const Error& error = operation.prepared->told_of(caught);
    print_failure(operation.ranks, error.what());
    failed = error_class_of(error);
  } catch (const std::exception& error) {
    print_failure(operation.ranks, error.what());
    failed = MPI_ERR_OTHER;
  }
  if (!operation.is_persistent) operation.prepared.reset();  // not by the MPI: it frees types
  return true;
}

/// It has ended, and may be gone then.
void tell_mpi(Operation& operation, int failed) {
  MPI_Request request = operation.request;
  const bool is_persistent = operation.is_persistent;
  const std::shared_ptr<ErrorHandler> errors = operation.errors;
  bool is_freed;
  {
    std::lock_guard lock(operations.mutex);
    operation.phase = Phase::idle;
    is_freed = operation.is_freed;
    if (is_freed) --count_freed;
    if (failed != MPI_SUCCESS && !is_freed) {
      operation.failed = failed;
      ++count_failed;
    } else if (is_freed || !is_persistent) {
      remove(request);
    }
  }
  if (is_persistent && is_freed) {
    release_persistent(&operation);
  } else if (is_persistent) {
    pmpi.Start(&request);
    pmpi.Recv(nullptr, 0, MPI_BYTE, 0, 0, own_self(), MPI_STATUS_IGNORE);
  } else {
    pmpi.Grequest_complete(request);
    if (is_freed) pmpi.Request_free(&request);
  }
  if (is_freed && failed != MPI_SUCCESS) errors->call(failed);  // nobody asks
}

std::vector<MPI_Request> freed_requests() {
  std::vector<MPI_Request> freed;
  if (count_freed.load(std::memory_order_relaxed) == 0) return freed;
  std::lock_guard lock(operations.mutex);
  for (const auto& [request, operation] : operations.all)
    if (operation->is_freed) freed.push_back(request);
  return freed;
}

}  // namespace

bool knows_any() {
  return count_known.load(std::memory_order_relaxed) > 0;
}

Operation* find_idle_persistent(MPI_Request request) {
  if (!knows_any()) return nullptr;
  std::lock_guard lock(operations.mutex);
  const auto found = operations.all.find(request);
  if (found == operations.all.end()) return nullptr;
  Operation* const operation = found->second;
  return operation->is_persistent && operation->phase == Phase::idle ? operation : nullptr;
}

void add_operation(MPI_Request request, std::unique_ptr<Operation> operation) {
  std::lock_guard lock(operations.mutex);
  assert(!operations.all.contains(request));
  operation->request = request;
  operations.all.emplace(request, operation.release());
  ++count_known;
}

int free_operation(void* data) {
  const std::unique_ptr<Operation> operation(static_cast<Operation*>(data));
  std::lock_guard lock(operations.mutex);
  if (operation->failed == MPI_SUCCESS) return MPI_SUCCESS;
  remove(operation->request);
  --count_failed;
  return MPI_SUCCESS;
}

void be_under_way(Operation& operation) {
  std::lock_guard lock(operations.mutex);
  operation.phase = Phase::under_way;
}

bool has_ended(MPI_Request request, std::chrono::nanoseconds pause) {
  if (!knows_any()) return true;
  Operation* operation = nullptr;
  {
    std::lock_guard lock(operations.mutex);
    const auto found = operations.all.find(request);
    if (found == operations.all.end() || found->second->phase == Phase::idle) return true;
    operation = found->second;
    if (operation->phase == Phase::looked_at) return false;
    operation->phase = Phase::looked_at;
  }
  int failed = MPI_SUCCESS;
  if (look(*operation, pause, failed)) return tell_mpi(*operation, failed), true;
  be_under_way(*operation);
  return false;
}

void wait_for(MPI_Request request) {
  // A short call ends while it is looked at; a pause gives the CPU away.
  for (int look = 0; look < kLooks; ++look)
    if (has_ended(request, {})) return;
  while (!has_ended(request, kPause)) progress_mpi();
}

bool free_request(MPI_Request request) {
  has_ended(request, {});
  Operation* operation = nullptr;
  int failed = MPI_SUCCESS;
  {
    std::lock_guard lock(operations.mutex);
    const auto found = operations.all.find(request);
    if (found == operations.all.end()) return false;
    operation = found->second;
    if (operation->phase != Phase::idle) {
      operation->is_freed = true;  // MPICH would free what it has not been told the end of
      ++count_freed;
      return true;
    }
    failed = operation->failed;
    if (operation->is_persistent) {
      if (failed != MPI_SUCCESS) --count_failed;
      remove(request);
    }
  }
  const bool is_persistent = operation->is_persistent;
  const std::shared_ptr<ErrorHandler> errors = operation->errors;
  if (is_persistent)
    release_persistent(operation);
  else
    pmpi.Request_free(&request);  // and the operation
  if (failed != MPI_SUCCESS) errors->call(failed);
  return true;
}

void look_after_freed() {
  for (const MPI_Request freed : freed_requests()) has_ended(freed, {});
}

void wait_for_freed_requests() {
  for (const MPI_Request freed : freed_requests()) wait_for(freed);
}

void forget_channel(const Channel& channel) {
  std::lock_guard lock(operations.mutex);
  for (const auto& [request, operation] : operations.all)
    if (operation->channel == &channel) operation->channel = nullptr;
}

// ---- What has failed ----

Failures::Failures(int count, const MPI_Request* requests) {
  if (requests == nullptr || count_failed.load(std::memory_order_relaxed) == 0) return;
  std::lock_guard lock(operations.mutex);
  for (int i = 0; i < count; ++i) {
    const auto found = operations.all.find(requests[i]);
    if (found == operations.all.end() || found->second->failed == MPI_SUCCESS) continue;
    const Operation& operation = *found->second;
    failed_.push_back({i, operation.failed,
                       operation.is_persistent ? operation.request : MPI_REQUEST_NULL,
                       operation.errors});
  }
}

const Failures::Failed* Failures::at(int index) const {
  const auto found = std::ranges::find(failed_, index, &Failed::index);
  if (found == failed_.end()) return nullptr;
  if (found->persistent == MPI_REQUEST_NULL) return &*found;  // the MPI has freed it
  std::lock_guard lock(operations.mutex);
  operations.all.at(found->persistent)->failed = MPI_SUCCESS;
  --count_failed;
  return &*found;
}

int Failures::report(int error, int index) const {
  const Failed* const failed = failed_.empty() ? nullptr : at(index);
  if (failed == nullptr) return error;
  failed->errors->call(failed->error_class);
  return failed->error_class;
}

int Failures::report(int error, int ended, const int* indices, MPI_Status* statuses) const {
  if (failed_.empty()) return error;
  int error_class = error;
  pmpi.Error_class(error, &error_class);
  if (error_class != MPI_SUCCESS && error_class != MPI_ERR_IN_STATUS) return error;
  std::shared_ptr<ErrorHandler> errors;
  for (int i = 0; i < ended; ++i) {
    const Failed* const failed = at(indices == nullptr ? i : indices[i]);
    if (failed != nullptr && !errors) errors = failed->errors;
    if (statuses == MPI_STATUSES_IGNORE) continue;
    if (failed != nullptr)
      statuses[i].MPI_ERROR = failed->error_class;
    else if (error_class == MPI_SUCCESS)
      statuses[i].MPI_ERROR = MPI_SUCCESS;
  }
  if (!errors || error_class == MPI_ERR_IN_STATUS) return error;  // its handler has been called
  errors->call(MPI_ERR_IN_STATUS);
  return MPI_ERR_IN_STATUS;
}

}  // namespace ropewalk::mpi
