#include "requests.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "operations.h"
#include "report.h"

namespace ropewalk::mpi {
namespace {

// ---- What the MPI calls ----

/// That it has failed the program is told by `Failures`.
int query_operation(void*, MPI_Status* status) {
  pmpi.Status_set_elements(status, MPI_BYTE, 0);
  pmpi.Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return MPI_SUCCESS;
}

/// MPI allows it of no collective.
int cancel_operation(void*, int) {
  return MPI_SUCCESS;
}

// ---- What the program calls ----

/// The program's requests as the MPI sees them: without those that are under way here.
class Shown {
 public:
  Shown(int count, MPI_Request* requests) : Shown(count, requests, requests) {}
  /// For a call that frees none.
  Shown(int count, const MPI_Request* requests) : Shown(count, requests, nullptr) {}
  ~Shown() {
    if (copy_.empty() || freed_ == nullptr) return;
    for (const int i : hidden_) copy_[static_cast<size_t>(i)] = requests_[i];
    std::copy(copy_.begin(), copy_.end(), freed_);
  }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

  bool hides_any() const { return !hidden_.empty(); }
  MPI_Request* data() { return copy_.empty() ? const_cast<MPI_Request*>(requests_) : copy_.data(); }
  /// Of these one has perhaps ended, soon.
  void pause() const { has_ended(requests_[hidden_.front()], kPause); }

 private:
  Shown(int count, const MPI_Request* requests, MPI_Request* freed)
      : requests_(requests), freed_(freed) {
    if (requests == nullptr || !knows_any()) return;
    for (int i = 0; i < count; ++i) {
      if (has_ended(requests[i], {})) continue;
      if (copy_.empty()) copy_.assign(requests, requests + count);
      copy_[static_cast<size_t>(i)] = MPI_REQUEST_NULL;
      hidden_.push_back(i);
    }
  }

  const MPI_Request* const requests_;
  MPI_Request* const freed_;  // where the MPI sets those null that it frees
  std::vector<MPI_Request> copy_;
  std::vector<int> hidden_;
};

int start_persistent(Operation& operation) {
  if (operation.channel == nullptr) {
    print_failure(operation.ranks, "a persistent collective was started after MPI_Finalize");
    return MPI_ERR_REQUEST;
  }
  int error_class = MPI_ERR_OTHER;
  try {
    operation.prepared->read_again();
    operation.work = operation.channel->start(*operation.prepared, operation.communicator);
    be_under_way(operation);
    return MPI_SUCCESS;
  } catch (const Error& error) {
    print_failure(operation.ranks, error.what());
    error_class = error_class_of(error);
  } catch (const std::exception& error) {
    print_failure(operation.ranks, error.what());
  }
  operation.errors->call(error_class);
  return error_class;
}

int take_Start(MPI_Request* request) {
  Operation* const operation = request == nullptr ? nullptr : find_idle_persistent(*request);
  return operation == nullptr ? pmpi.Start(request) : start_persistent(*operation);
}

int take_Startall(int count, MPI_Request* requests) {
  if (!knows_any() || requests == nullptr) return pmpi.Startall(count, requests);
  for (int i = 0; i < count; ++i)
    if (const int status = take_Start(requests + i); status != MPI_SUCCESS) return status;
  return MPI_SUCCESS;
}

int take_Wait(MPI_Request* request, MPI_Status* status) {
  if (request != nullptr) wait_for(*request);
  const Failures failures(1, request);
  return failures.report(pmpi.Wait(request, status), 0);
}

int take_Test(MPI_Request* request, int* ended, MPI_Status* status) {
  if (request != nullptr && !has_ended(*request, {})) {
    *ended = 0;
    progress_mpi();
    return MPI_SUCCESS;
  }
  const Failures failures(1, request);
  return failures.report(pmpi.Test(request, ended, status), 0);
}

int take_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  for (int i = 0; requests != nullptr && i < count; ++i) wait_for(requests[i]);
  const Failures failures(count, requests);
  return failures.report(pmpi.Waitall(count, requests, statuses), count, nullptr, statuses);
}

int take_Testall(int count, MPI_Request* requests, int* ended, MPI_Status* statuses) {
  if (const Shown shown(count, requests); shown.hides_any()) {
    *ended = 0;
    progress_mpi();
    return MPI_SUCCESS;
  }
  const Failures failures(count, requests);
  const int error = pmpi.Testall(count, requests, ended, statuses);
  return failures.report(error, *ended != 0 ? count : 0, nullptr, statuses);
}

int take_Testany(int count, MPI_Request* requests, int* index, int* ended, MPI_Status* status) {
  Shown shown(count, requests);
  const Failures failures(count, requests);
  const int error = pmpi.Testany(count, shown.data(), index, ended, status);
  if (shown.hides_any() && *index == MPI_UNDEFINED) *ended = 0;
  return failures.report(error, *index);
}

int take_Waitany(int count, MPI_Request* requests, int* index, MPI_Status* status) {
  for (;;) {
    Shown shown(count, requests);
    const Failures failures(count, requests);
    if (!shown.hides_any())
      return failures.report(pmpi.Waitany(count, requests, index, status), *index);
    int ended = 0;
    const int error = pmpi.Testany(count, shown.data(), index, &ended, status);
    if (error != MPI_SUCCESS || (ended != 0 && *index != MPI_UNDEFINED))
      return failures.report(error, *index);
    shown.pause();
  }
}

int take_Testsome(int count, MPI_Request* requests, int* ended, int* indices,
                  MPI_Status* statuses) {
  Shown shown(count, requests);
  const Failures failures(count, requests);
  const int error = pmpi.Testsome(count, shown.data(), ended, indices, statuses);
  if (shown.hides_any() && *ended == MPI_UNDEFINED) *ended = 0;
  return failures.report(error, *ended, indices, statuses);
}

int take_Waitsome(int count, MPI_Request* requests, int* ended, int* indices,
                  MPI_Status* statuses) {
  for (;;) {
    Shown shown(count, requests);
    const Failures failures(count, requests);
    int error = MPI_SUCCESS;
    if (!shown.hides_any()) {
      error = pmpi.Waitsome(count, requests, ended, indices, statuses);
      return failures.report(error, *ended, indices, statuses);
    }
    error = pmpi.Testsome(count, shown.data(), ended, indices, statuses);
    if (error != MPI_SUCCESS || (*ended != 0 && *ended != MPI_UNDEFINED))
      return failures.report(error, *ended, indices, statuses);
    shown.pause();
  }
}

// These end no request, so they tell of no failure: the call that does will.

int take_Request_get_status(MPI_Request request, int* ended, MPI_Status* status) {
  if (has_ended(request, {})) return pmpi.Request_get_status(request, ended, status);
  *ended = 0;
  progress_mpi();
  return MPI_SUCCESS;
}

// Where the MPI lacks these, a program may find them here nevertheless: they ask one by one then.

/// `status`: null where the program wants none.
int ask_one(MPI_Request request, int* ended, MPI_Status* status) {
  const int error =
      pmpi.Request_get_status(request, ended, status == nullptr ? MPI_STATUS_IGNORE : status);
  if (status != nullptr) status->MPI_ERROR = MPI_SUCCESS;
  return error;
}

int take_Request_get_status_all(int count, const MPI_Request* requests, int* ended,
                                MPI_Status* statuses) {
  *ended = 1;
  if (const Shown shown(count, requests); shown.hides_any()) {
    *ended = 0;
    progress_mpi();
    return MPI_SUCCESS;
  }
  if (pmpi.Request_get_status_all != nullptr)
    return pmpi.Request_get_status_all(count, requests, ended, statuses);
  int error = MPI_SUCCESS;
  for (int i = 0; i < count && *ended != 0 && error == MPI_SUCCESS; ++i)
    error = ask_one(requests[i], ended, statuses == MPI_STATUSES_IGNORE ? nullptr : statuses + i);
  return error;
}

int take_Request_get_status_any(int count, const MPI_Request* requests, int* index, int* ended,
                                MPI_Status* status) {
  Shown shown(count, requests);
  int error = MPI_SUCCESS;
  if (pmpi.Request_get_status_any != nullptr) {
    error = pmpi.Request_get_status_any(count, shown.data(), index, ended, status);
    if (shown.hides_any() && *index == MPI_UNDEFINED) *ended = 0;
    return error;
  }
  bool are_null = true;
  *index = MPI_UNDEFINED;
  *ended = 0;
  for (int i = 0; i < count && *ended == 0 && error == MPI_SUCCESS; ++i) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    are_null = false;
    if (shown.data()[i] == MPI_REQUEST_NULL) continue;
    error = ask_one(requests[i], ended, status == MPI_STATUS_IGNORE ? nullptr : status);
    if (*ended != 0) *index = i;
  }
  if (!are_null) return error;
  return ask_one(MPI_REQUEST_NULL, ended, status == MPI_STATUS_IGNORE ? nullptr : status);
}

int take_Request_get_status_some(int count, const MPI_Request* requests, int* ended, int* indices,
                                 MPI_Status* statuses) {
  Shown shown(count, requests);
  int error = MPI_SUCCESS;
  if (pmpi.Request_get_status_some != nullptr) {
    error = pmpi.Request_get_status_some(count, shown.data(), ended, indices, statuses);
    if (shown.hides_any() && *ended == MPI_UNDEFINED) *ended = 0;
    return error;
  }
  *ended = MPI_UNDEFINED;
  for (int i = 0; i < count && error == MPI_SUCCESS; ++i) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    if (*ended == MPI_UNDEFINED) *ended = 0;
    if (shown.data()[i] == MPI_REQUEST_NULL) continue;
    int has_one_ended = 0;
    error = ask_one(requests[i], &has_one_ended,
                    statuses == MPI_STATUSES_IGNORE ? nullptr : statuses + *ended);
    if (has_one_ended != 0) indices[(*ended)++] = i;
  }
  return error;
}

int take_Request_free(MPI_Request* request) {
  if (request == nullptr || !free_request(*request)) return pmpi.Request_free(request);
  *request = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}

std::unique_ptr<Operation> make_operation(Channel& channel, std::unique_ptr<Prepared> prepared) {
  auto operation = std::make_unique<Operation>();
  operation->prepared = std::move(prepared);
  operation->prepared->keep_types();
  operation->errors = channel.errors();
  operation->ranks = channel.size();
  return operation;
}

}  // namespace

void start_request(Channel& channel, std::unique_ptr<Prepared> prepared, MPI_Request* request) {
  look_after_freed();
  auto operation = make_operation(channel, std::move(prepared));
  operation->work = channel.start(*operation->prepared);
  operation->phase = Operation::Phase::under_way;
  if (pmpi.Grequest_start(query_operation, free_operation, cancel_operation, operation.get(),
                          request) != MPI_SUCCESS)
    throw std::bad_alloc();
  add_operation(*request, std::move(operation));
}

void make_persistent_request(Channel& channel, std::unique_ptr<Prepared> prepared,
                             MPI_Request* request) {
  auto operation = make_operation(channel, std::move(prepared));
  operation->is_persistent = true;
  operation->channel = &channel;
  operation->communicator = channel.acquire_persistent();
  if (pmpi.Send_init(nullptr, 0, MPI_BYTE, 0, 0, own_self(), request) != MPI_SUCCESS)
    throw std::bad_alloc();
  add_operation(*request, std::move(operation));
}

void take_requests(Table& table) {
#define ROPEWALK_TAKE(name, parameters, arguments, ...) table.name = take_##name;
  ROPEWALK_MPI_REQUESTS(ROPEWALK_TAKE)
  ROPEWALK_MPI_5_REQUESTS(ROPEWALK_TAKE)
#undef ROPEWALK_TAKE
}

}  // namespace ropewalk::mpi
