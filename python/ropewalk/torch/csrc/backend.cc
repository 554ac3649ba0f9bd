// Life of a backend, and how requests become work.
#include "backend.h"

#include <c10/util/Exception.h>
#include <ropewalk/rendezvous.h>

#include <utility>

namespace ropewalk::pytorch {
namespace {

constexpr const char* kUniqueIdKey = "ropewalk";

/// Stands in the unique id's place where there is none.
const std::string kNoRendezvous = "rank 0 failed: ";

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

std::unique_ptr<Communicator> join(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                   std::chrono::milliseconds timeout) {
  std::optional<Rendezvous> rendezvous;
  Options options;
  options.rank = rank;
  options.size = size;
  if (size > 1 && rank == 0) {
    try {
      store->set(kUniqueIdKey, bytes_of(rendezvous.emplace().unique_id()));
    } catch (const Error& error) {
      store->set(kUniqueIdKey, bytes_of(kNoRendezvous + error.what()));
      throw;
    }
    options = rendezvous->options(rank, size);
  } else if (size > 1) {
    const std::vector<uint8_t> bytes = store->get(kUniqueIdKey);
    const std::string text(bytes.begin(), bytes.end());
    if (text.starts_with(kNoRendezvous))
      throw Error(ErrorCode::unavailable, "process group", text.substr(kNoRendezvous.size()));
    options = Rendezvous::options(text, rank, size);
  }
  options.timeout = timeout;
  auto comm = Communicator::create(options);
  if (rendezvous) store->deleteKey(kUniqueIdKey);  // a later group of this name meets again
  return comm;
}

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
                 std::chrono::milliseconds timeout)
    : c10d::Backend(rank, size), options_(c10::make_intrusive<Options>("ropewalk", timeout)) {
  try {
    membership_ = Membership::begin(join(store, rank, size, timeout));
  } catch (const Error& error) {
    std::rethrow_exception(as_backend_error(error, rank));
  }
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

Membership::Parts Backend::parts(const char* operation) const {
  const std::string name = call_name(operation);
  membership_->process().require(getRank(), name.c_str());
  Membership::Parts both = membership_->parts();
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
    work->call()->end();
    std::rethrow_exception(as_backend_error(error, info.rank, info.title));
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
  if (const auto group = membership_->parts().group)
    group->comm->abort("torch aborted the process group");
}

void Backend::shutdown() {
  membership_->leave();
}

}  // namespace ropewalk::pytorch
