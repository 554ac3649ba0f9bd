// Life of a backend, and how requests become work.
#include "backend.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <string>
#include <utility>

namespace ropewalk::pytorch {
namespace {

void append(Request& all, Request more) {
  std::ranges::move(more.calls, std::back_inserter(all.calls));
  for (auto member : {&Request::inputs, &Request::outputs, &Request::temporaries})
    std::ranges::move(more.*member, std::back_inserter(all.*member));
  if (more.finish)
    all.finish = [first = std::move(all.finish), second = std::move(more.finish)] {
      if (first) first();
      second();
    };
}

}  // namespace

Backend::Backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                 std::chrono::milliseconds timeout,
                 const std::optional<std::vector<int>>& global_ranks, bool awaits_reconfigure)
    : c10d::Backend(rank, size),
      store_(store),
      options_(c10::make_intrusive<Options>("ropewalk", timeout)),
      is_default_(global_ranks && global_ranks->empty()),
      rendezvous_(std::make_shared<ReconfigureRendezvous>(rank)) {
  try {
    if (!awaits_reconfigure) enter(join_group(store, rank, size, timeout, global_ranks));
  } catch (const Error& error) {
    std::rethrow_exception(as_backend_error(error, rank));
  }
  init();
}

Backend::Backend(const c10::intrusive_ptr<c10d::Store>& store, Joined joined,
                 std::chrono::milliseconds timeout, bool is_default)
    : c10d::Backend(joined.comm->rank(), joined.comm->size()),
      store_(store),
      options_(c10::make_intrusive<Options>("ropewalk", timeout)),
      is_default_(is_default),
      rendezvous_(std::make_shared<ReconfigureRendezvous>(joined.comm->rank())) {
  enter(std::move(joined));
  init();
}

Backend::~Backend() {
  try {
    shutdown();
  } catch (const std::exception& error) {
    TORCH_WARN("leaving a process group failed: ", error.what());
  }
}

std::string Backend::transport() {
  return parts("transport").group->comm->transport();
}

std::shared_ptr<Membership> Backend::membership() const {
  const std::lock_guard lock(membership_mutex_);
  return membership_;
}

void Backend::enter(Joined joined) {
#ifdef C10D_BACKEND_HAS_RECONFIGURE  // else they are as torch has said
  rank_ = joined.comm->rank();
  size_ = joined.comm->size();
#endif
  job_ = joined.job;
  shrinks_ = 0;
  sequence_ = 0;
  auto fresh = Membership::begin(std::move(joined.comm), is_default_ ? joined.job : "", hooks_);
  {
    const std::lock_guard lock(membership_mutex_);
    membership_.swap(fresh);
  }
  if (fresh) fresh->retire();
}

Membership::Parts Backend::parts(const char* operation) const {
  const std::string name = call_name(operation);
  process_.require(getRank(), name.c_str());
  const auto current = membership();
  if (!current)
    C10_THROW_ERROR(DistBackendError, c10::str("rank ", getRank(), ": ", name,
                                               ": the process group has no members before the "
                                               "first reconfigure"));
  Membership::Parts both = current->parts();
  if (!both.group)
    C10_THROW_ERROR(
        DistBackendError,
        c10::str("rank ", getRank(), ": ", name, ": the process group has been destroyed",
                 "; make another with init_process_group or new_group"));
  return both;
}

WorkPtr Backend::start(Request request, std::chrono::milliseconds timeout, bool is_async) {
  if (collected_) {
    append(*collected_, std::move(request));
    return nullptr;
  }
  const auto both = parts(request.title);
  Communicator& comm = *both.group->comm;
  const WorkInfo info{getRank(), request.type, request.title, sequence_++, timeout};
  const Tensors inputs = request.inputs, outputs = request.outputs;
  if (!is_async && request.calls.size() == 1)  // without a thread of the communicator's
    return run_now(info, both, inputs, outputs, [&] {
      comm.run(request.calls[0], timeout);
      if (request.finish) request.finish();
    });
  auto work = c10::make_intrusive<PendingWork>(info, both, inputs, outputs);
  try {
    if (request.calls.empty()) {
      work->call()->end();
      return work;
    }
    auto started = comm.start_group(request.calls);
    // The request's memory is in use until then.
    auto finish = [kept = std::make_shared<Request>(std::move(request))] {
      if (kept->finish) kept->finish();
    };
    work->call()->begin(std::move(started), std::move(finish));
  } catch (const Error& error) {
    const auto raised = as_backend_error(error, info.rank, info.title);
    if (error.code() == ErrorCode::timeout) hooks_->tell_of_abort();
    work->call()->end(raised);
    std::rethrow_exception(raised);
  }
  both.calls->add(work->call());
  return work;
}

void Backend::startCoalescing() {
  TORCH_CHECK(!collected_, "calls are being coalesced already");
  collected_.emplace().title = "ropewalk:coalesced";
  collected_->type = c10d::OpType::COALESCED;
}

WorkPtr Backend::endCoalescing() {
  TORCH_CHECK(collected_, "no calls are being coalesced");
  Request all = std::move(*std::exchange(collected_, std::nullopt));
  return start(std::move(all), options_->timeout, true);
}

at::Tensor Backend::allocateTensor(long elements, at::TensorOptions options) {
  struct Owner {
    std::shared_ptr<Group> group;
    Buffer<std::byte> buffer;  // goes first
  };
  const auto bytes = static_cast<size_t>(elements) * options.dtype().itemsize();
  auto owner = std::make_shared<Owner>();
  owner->group = parts("allocate_tensor").group;
  try {
    owner->buffer = owner->group->comm->allocate<std::byte>(bytes);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::exhausted) throw;
    // DDP asks without being told to, and ordinary memory serves as well, only slower.
    TORCH_WARN("ropewalk: ordinary memory instead of registered: ", error.what());
    return at::empty({elements}, options);
  }
  return at::from_blob(
      owner->buffer.data(), {elements}, [owner](void*) {}, options);
}

void Backend::abort() {
  const auto current = membership();
  const auto group = current ? current->parts().group : nullptr;
  if (!group) return;
  hooks_->tell_of_abort();
  group->comm->abort("torch aborted the process group");
}

void Backend::shutdown() {
  if (const auto current = membership()) current->leave();
}

}  // namespace ropewalk::pytorch
